"""Each preflight check against a real system that is, and is not, as it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.errors import ConnectError, SourceError
from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.preflight import CHECKS, Answer, preflight
from connectors.snapshots.snapshot import wait_snapshot
from connectors.tables.catalogue import read_catalogue
from connectors.tables.facts import read_facts
from console.cli.check import command
from deploy.local.endpoints import Endpoints
from operations.check.sinks import INDICES, checked_sinks
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


def answers(pipeline: Pipeline) -> dict[str, Answer]:
    return {answer.check.name: answer for answer in preflight(pipeline)}


def told(pipeline: Pipeline, check: str) -> str:
    """Everything that one check says, with its state in front."""
    answer = answers(pipeline)[check]
    parts = [f"{f.level.value}: {f.message} ({f.fix})" for f in answer.findings]
    return "\n".join([answer.state, answer.error, answer.skipped, *parts])


@pytest.fixture
def check(source: SourceDatabase) -> Callable[..., str]:
    """Runs some SQL, then one check on some tables."""

    def run(name: str, tables: tuple[str, ...], *statements: str, **parts: Any) -> str:
        source.execute(*statements)
        return told(source.pipeline(*tables, **parts), name)

    return run


def test_fresh_and_then_applied_pipeline_is_ready(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    pipeline = source.pipeline("public.t")
    before = answers(pipeline)
    assert {name: answer.state for name, answer in before.items() if answer.state not in ("ok", "note")} == {
        "disk": "skipped"  # the role may not list the WAL
    }
    assert before["slot"].state == "note"
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    after = {name: answer.state for name, answer in answers(pipeline).items()}
    assert after == {**{check.name: "ok" for check in CHECKS}, "disk": "skipped"}


def test_every_check_has_its_own_name_and_known_needs() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert {need for check in CHECKS for need in check.needs} <= set(names)


def test_server_that_is_away_stops_only_what_needs_it(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    away = source.pipeline("public.t", source={"port": 1})
    source.pipelines.clear()
    found = answers(away)
    assert found["server"].state == "error"
    assert found["tables"].skipped == "needs «server»"
    assert found["kafka"].state == "ok"


def test_refused_login_is_named_without_the_password(source: SourceDatabase) -> None:
    wrong = source.pipeline("public.t", source={"password": "letmein-letmein"})
    source.pipelines.clear()
    text = told(wrong, "server")
    assert "password authentication failed" in text
    assert "letmein" not in text


def test_brokers_and_worker_that_are_away(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    away = source.pipeline("public.t", kafka={"bootstrap": "127.0.0.1:1"}, connect={"url": "http://127.0.0.1:1"})
    source.pipelines.clear()
    found = answers(away)
    assert (found["kafka"].state, found["connect"].state) == ("error", "error")
    assert "Kafka does not answer at 127.0.0.1:1" in found["kafka"].findings[0].message
    assert "Kafka Connect does not answer" in found["connect"].findings[0].message
    assert found["keys"].state == "ok"


@pytest.mark.parametrize(
    ("statements", "table", "message"),
    [
        (["CREATE TABLE flights (id int PRIMARY KEY)"], "public.flihgts", "did you mean public.flights?"),
        (["CREATE VIEW v AS SELECT 1 AS id"], "public.v", "public.v is a view"),
        (["CREATE MATERIALIZED VIEW m AS SELECT 1 AS id"], "public.m", "public.m is a materialised view"),
        (["CREATE UNLOGGED TABLE u (id int PRIMARY KEY)"], "public.u", "public.u is unlogged"),
        (
            [
                "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
                "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)",
            ],
            "public.p1",
            "name public.p in source.tables instead",
        ),
        (
            [
                "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
                "CREATE UNLOGGED TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)",
            ],
            "public.p",
            "are not in the log: public.p1 (unlogged)",
        ),
        (
            ["CREATE TABLE base (id int PRIMARY KEY)", "CREATE TABLE sub () INHERITS (base)"],
            "public.base",
            "part of an inheritance tree",
        ),
        (
            ['CREATE TABLE "Case" (id int PRIMARY KEY)', 'CREATE TABLE "case" (id int PRIMARY KEY)'],
            "public.case",
            "public.Case differs from public.case only in case",
        ),
        (
            ['CREATE TABLE t (id int PRIMARY KEY, "Word" text, g int GENERATED ALWAYS AS (id) STORED, word text)'],
            "public.t",
            "public.t has columns that differ only in case: Word, word",
        ),
    ],
)
def test_tables_that_cannot_be_captured(
    source: SourceDatabase, check: Callable[..., str], statements: list[str], table: str, message: str
) -> None:
    text = check("tables", (table,), *statements)
    assert text.startswith("error")
    assert message in text
    with pytest.raises(SourceError):
        plan_pipeline(source.pipelines[-1])


def test_whole_schema_and_partitioned_root_are_fine(check: Callable[..., str]) -> None:
    text = check(
        "tables",
        ("public.*",),
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE q (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id + 1) STORED)",
    )
    assert "error" not in text.splitlines()[0]
    assert "generated columns are not captured: g" in text
    assert "has a stored generated column (g)" in text  # Postgres 18: Debezium's task may fail over it


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE t (id int)", "public.t has no primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)", "public.t has a primary key that is DEFERRABLE"),
        ("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING", "replica identity NOTHING"),
        (
            "CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL UNIQUE);"
            " ALTER TABLE t REPLICA IDENTITY USING INDEX t_u_key",
            "replica identity is another index",
        ),
        (
            "CREATE TABLE t (id int, k int GENERATED ALWAYS AS (id) STORED PRIMARY KEY)",
            "a generated column in its key (k)",
        ),
        (
            "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
            " CREATE DOMAIN word AS text COLLATE loose; CREATE TABLE t (w word PRIMARY KEY)",
            "its collation is nondeterministic",
        ),
    ],
)
def test_tables_without_a_usable_key(source: SourceDatabase, check: Callable[..., str], ddl: str, message: str) -> None:
    """FAULTS 27. Publishing such a table would make Postgres refuse the application's updates: apply refuses too."""
    text = check("keys", ("public.t",), *ddl.split("; "))
    assert text.startswith("error")
    assert message in text
    with pytest.raises(SourceError) as error:
        apply(source.pipelines[-1])
    assert message in str(error.value)


def test_unique_index_as_replica_identity_is_a_key(check: Callable[..., str]) -> None:
    ddl = ["CREATE TABLE t (a int NOT NULL UNIQUE, b int)", "ALTER TABLE t REPLICA IDENTITY USING INDEX t_a_key"]
    assert check("keys", ("public.t",), *ddl).startswith("ok")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("full", "warning"),  # apply sets it
        ("reselect", "error"),  # uuid[] can't be re-selected
        ("allow", "warning"),
    ],
)
def test_large_values_against_the_policy(check: Callable[..., str], policy: str, expected: str) -> None:
    ddl = "CREATE TABLE t (id int PRIMARY KEY, body text, ids uuid[])"
    text = check("toast", ("public.t",), ddl, policy={"toast": policy})
    assert text.startswith(expected)
    assert "REPLICA IDENTITY FULL" in text
    assert "public.t (body" in text


def test_full_identity_would_forget_which_of_several_unique_indexes_is_the_key(check: Callable[..., str]) -> None:
    ddl = ["CREATE TABLE t (a int NOT NULL UNIQUE, b int NOT NULL UNIQUE, body text)"]
    ddl += ["ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_key"]
    text = check("toast", ("public.t",), *ddl, policy={"toast": "full"})
    assert text.startswith("error")
    assert "several unique indexes" in text


def test_virtual_generated_column_forbids_full_identity(source: SourceDatabase, check: Callable[..., str]) -> None:
    with source.connect() as connection:
        if connection.info.server_version < 180000:
            pytest.skip("virtual generated columns came with Postgres 18")
    ddl = "CREATE TABLE t (id int PRIMARY KEY, body text, v int GENERATED ALWAYS AS (id + 1) VIRTUAL)"
    text = check("toast", ("public.t",), ddl, policy={"toast": "full"})
    assert text.startswith("error")
    assert "virtual generated column" in text


def test_roles_that_may_too_little_or_too_much(source: SourceDatabase, check: Callable[..., str]) -> None:
    text = check("role", ("public.t",), "CREATE TABLE t (id int PRIMARY KEY)", source={"user": source.owner})
    assert text.startswith("error")
    assert f"ALTER ROLE {source.owner} REPLICATION" in text
    parts = {"user": source.endpoints.postgres_superuser, "password": source.endpoints.postgres_password}
    assert "is a superuser" in told(source.pipeline("public.t", source=parts), "role")


def test_rights_of_both_roles(source: SourceDatabase, check: Callable[..., str]) -> None:
    text = check("rights", ("public.t",), "CREATE TABLE t (id int PRIMARY KEY)")
    assert text.startswith("note")  # the setup role will grant it
    assert "has no SELECT on public.t (`headwater apply` does it: GRANT SELECT ON public.t TO" in text
    source.execute("CREATE TABLE u (id int PRIMARY KEY, body text)", "CREATE TABLE v (id int PRIMARY KEY, body text)")
    lines = {"rights": "has no SELECT on public.t, public.u, public.v", "toast": "public.u (body), public.v (body)"}
    for name, line in lines.items():
        answer = answers(source.pipeline("public.t", "public.u", "public.v"))[name]
        assert len(answer.findings) == 1, "one line for many tables"
        assert line in answer.findings[0].message + answer.findings[0].fix
    parts = {"setup_user": source.replicator, "setup_password": source.password}
    text = told(source.pipeline("public.t", source=parts), "rights")
    assert f"may not create a schema and a publication in database {source.name}" in text
    assert f"public.t belongs to {source.owner}" in text


def test_publication_that_was_tampered_with(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE TABLE u (id int PRIMARY KEY)")
    pipeline = source.pipeline("public.t", "public.u")
    apply(pipeline)
    name = pipeline.source.publication
    source.execute(f"ALTER PUBLICATION {name} DROP TABLE u", f"ALTER PUBLICATION {name} SET (publish = 'insert')")
    text = told(pipeline, "publication")
    assert f"publication {name} does not send public.u" in text
    assert "has other options than it should: insert" in text
    source.execute(f"ALTER PUBLICATION {name} DROP TABLE t", f"ALTER PUBLICATION {name} ADD TABLE t WHERE (id > 5)")
    assert "sends only some rows or columns of public.t" in told(pipeline, "publication")
    apply(pipeline)
    assert told(pipeline, "publication").startswith("ok")


def test_slot_that_falls_behind(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE busy (v text)")
    pipeline = source.pipeline("public.t", policy={"replication_slot_max_lag_mb": 1})
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    from connectors.debezium import connector_name
    from connectors.rest import ConnectClient

    client = ConnectClient(pipeline.connect)
    client.stop(connector_name(pipeline))
    client.wait_stopped(connector_name(pipeline))
    source.execute("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 8000)")
    text = told(pipeline, "slot")
    assert text.startswith("error")
    assert "MiB of WAL" in text and "of policy.wal_budget (1 MiB)" in text
    assert "policy.replication_slot_max_lag_mb is the old name of policy.wal_budget (write wal_budget: 1MiB)" in text


def test_topic_with_another_policy(source: SourceDatabase) -> None:
    from cdc.log.client import Kafka, Topic

    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = source.pipeline("public.t")
    kafka = Kafka(pipeline)
    kafka.create(Topic(pipeline.topic("public.t"), 2, 1, {"cleanup.policy": "delete"}))
    text = told(pipeline, "kafka")
    assert text.startswith("error")
    assert "cleanup.policy=compact" in text
    apply(pipeline)
    assert told(pipeline, "kafka").startswith("ok")


def test_a_mapping_that_no_server_takes(source: SourceDatabase, stack: Endpoints) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    sink = {"type": "elasticsearch", "url": stack.elasticsearch_url, "view": "any"}
    pipeline = source.pipeline("public.t", sinks={"search": {**sink, "mapping": {"n": {"type": "nonesuch"}}}})
    (answer,) = (one for one in checked_sinks(pipeline) if one.check is INDICES)
    assert answer.state == "error" and "nonesuch" in answer.findings[0].message
    (answer,) = (
        one for one in checked_sinks(source.pipeline("public.t", sinks={"search": sink})) if one.check is INDICES
    )
    assert answer.state == "ok"


@pytest.mark.alone  # a worker that stops a task whose topic is gone answers nobody for a minute
def test_topic_that_is_gone_under_a_running_connector(source: SourceDatabase) -> None:
    from cdc.log.client import Kafka

    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipeline = source.pipeline("public.t")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    topic = pipeline.topic("public.t")
    Kafka(pipeline).delete([pipeline.heartbeat_topic, topic])
    text = told(pipeline, "kafka")
    assert text.startswith("error")
    assert f"topics are gone that the connector writes to: {topic}, {pipeline.heartbeat_topic}" in text

    def mended() -> bool:
        try:
            apply(pipeline)
            return wait_snapshot(pipeline, seconds=90).done
        except ConnectError:  # a heartbeat met no topic, the task ended with its transaction: the next starts it
            return False

    assert eventually(mended, 180)
    source.execute("INSERT INTO t VALUES (2)")
    assert eventually(lambda: set(source.latest(topic)) == {'{"id": 1}', '{"id": 2}'}, 60)


def test_worker_refuses_a_bad_setting(check: Callable[..., str]) -> None:
    parts = {"options": {"snapshot.mode": "sometimes"}}
    text = check("connect", ("public.t",), "CREATE TABLE t (id int PRIMARY KEY)", connect=parts)
    assert text.startswith("error")
    assert "snapshot.mode" in text


FILE = """
version: 1
name: {name}
source: {{host: {host}, port: {port}, database: {name}, user: {user}, password: "{password}", tables: [public.t]}}
kafka: {{bootstrap: "{kafka}"}}
connect: {{url: "{connect}"}}
views: {{t: {{root: t}}}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1", view: t}}}}
"""


def test_command_prints_json_and_exits_by_the_worst_finding(source: SourceDatabase, tmp_path: Path) -> None:
    source.execute("CREATE TABLE t (id int)")
    path = tmp_path / "pipeline.yaml"
    path.write_text(source.filled_in(FILE))
    result = CliRunner().invoke(command, [str(path), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ready"] is False
    states = {check["check"]: check["state"] for check in report["checks"]}
    assert states["keys"] == "error"
    assert states["rights"] == "error"  # no setup role that could grant
    plain = CliRunner().invoke(command, [str(path)])
    assert plain.exit_code == 1
    assert "what to do: ALTER TABLE public.t ADD PRIMARY KEY" in plain.output
    assert source.password not in result.output + plain.output


def test_what_is_no_table_is_told_as_what_it_is(source: SourceDatabase) -> None:
    """`apply` and `preview` said that there is no table of a view's name, and named another one that is like it."""
    source.execute(
        "CREATE TABLE v_cusp (id int PRIMARY KEY)",
        "CREATE VIEW v_cust AS SELECT 1 AS id",
        "CREATE MATERIALIZED VIEW m_cust AS SELECT 1 AS id",
        "CREATE SEQUENCE s_cust",
    )
    with source.connect() as connection:
        for name, what in (("v_cust", "a view"), ("m_cust", "a materialised view"), ("s_cust", "a sequence")):
            with pytest.raises(SourceError, match=rf"public\.{name} is {what}: its changes are not in the log"):
                read_catalogue(connection, [f"public.{name}"])
            assert f"public.{name} is {what}" in told(source.pipeline(f"public.{name}"), "tables")
        with pytest.raises(SourceError, match=r"no table public\.v_cus .*did you mean public\.v_cusp"):
            read_catalogue(connection, ["public.v_cus"])
    source.pipelines.clear()


def test_row_level_security_is_told_of_if_it_holds_for_who_reads(source: SourceDatabase) -> None:
    """The advice was followed, BYPASSRLS given, and the warning stayed."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with source.connect("superuser") as connection, connection.transaction(force_rollback=True):
        for role, right in (("rls_shown", "BYPASSRLS"), ("rls_hidden", "NOBYPASSRLS")):
            connection.execute(f"CREATE ROLE {role} {right}")
        held = {role: read_facts(connection, ["public.t"], role) for role in ("rls_shown", "rls_hidden", None)}
        assert {role: facts["public.t"].row_security for role, facts in held.items()} == {
            "rls_shown": False,
            "rls_hidden": True,
            None: True,  # nobody knows who will
        }
        connection.execute("ALTER TABLE t OWNER TO rls_hidden")
        assert not read_facts(connection, ["public.t"], "rls_hidden")["public.t"].row_security
        connection.execute("ALTER TABLE t FORCE ROW LEVEL SECURITY")
        assert read_facts(connection, ["public.t"], "rls_hidden")["public.t"].row_security
