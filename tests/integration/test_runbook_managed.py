"""docs/runbooks.md: a managed Postgres without a superuser, and a pooler before it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from connectors.apply import apply
from connectors.preflight import CHECKS, preflight
from connectors.snapshots.snapshot import wait_snapshot
from tests.support.pooler import pooler
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack]

States = Callable[..., dict[str, str]]


def states(pipeline: object) -> tuple[dict[str, str], str]:
    """Every check's state, and all that was found, with what to do."""
    answers = list(preflight(pipeline))  # type: ignore[arg-type]
    said = [f"{found.message} ({found.fix})" for answer in answers for found in answer.findings]
    return {answer.check.name: answer.state for answer in answers}, "\n".join(said)


def test_roles_as_a_managed_service_gives_them(source: SourceDatabase) -> None:
    """Neither role is a superuser, and neither may read settings or statistics of others: all of it works."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    with source.connect("superuser") as root:
        roles = "SELECT bool_or(rolsuper), bool_or(pg_has_role(oid, 'pg_monitor', 'MEMBER')) FROM pg_roles"
        known = root.execute(f"{roles} WHERE rolname = ANY(%s)", [[source.owner, source.replicator]]).fetchone()
        assert known == (False, False)
    pipeline = source.pipeline("public.t")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    found, said = states(pipeline)
    assert found == {**{check.name: "ok" for check in CHECKS}, "disk": "skipped"}, said
    source.execute("UPDATE t SET v = 'b'")
    assert eventually(lambda: {"id": 1, "v": "b"} in source.latest(pipeline.topic("public.t")).values())


def test_a_role_that_the_service_has_not_let_replicate(source: SourceDatabase) -> None:
    """A grant that says so is not enough where the server does not take it: the session is tried."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = source.pipeline("public.t")
    with source.connect("superuser") as root:
        root.execute(f'ALTER ROLE "{source.replicator}" NOREPLICATION')
        found, said = states(pipeline)
        assert found["role"] == "error" and found["replication"] == "skipped" and "may not replicate" in said
        root.execute("CREATE ROLE rds_replication")
        try:
            root.execute(f'GRANT rds_replication TO "{source.replicator}"')
            found, said = states(pipeline)
            assert found["role"] == "ok"
            assert found["replication"] == "error", said
            assert "no replication session opens" in said and "GRANT rds_replication" in said
        finally:
            root.execute("DROP ROLE rds_replication")
            root.execute(f'ALTER ROLE "{source.replicator}" REPLICATION')
    found, said = states(pipeline)
    assert found["replication"] == "ok", said


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_before_the_database(source: SourceDatabase, mode: str) -> None:
    """It is called what it is, and nothing else is blamed: neither mode lets the connector through."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    users = {source.owner: source.password, source.replicator: source.password}
    with pooler(source.endpoints, users, mode) as port:
        through = {"host": "127.0.0.1", "port": port, "dbname": source.name}
        with psycopg.connect(**through, user=source.owner, password=source.password) as direct:  # type: ignore[arg-type]
            assert direct.execute("SELECT 1").fetchone() == (1,)
        found, said = states(source.pipeline("public.t", source={"port": port}))
        source.pipelines.clear()
        with psycopg.connect(**through, user=source.owner, password=source.password) as direct:  # type: ignore[arg-type]
            assert direct.execute("SHOW search_path").fetchone() == ('"$user", public',), "ours was left in it"
    if mode == "transaction":
        assert "is a connection pooler, not Postgres" in said and "applications may go on using the pooler" in said
    else:
        assert found["server"] == "warning" and "a pooler, or a service's proxy, stands before Postgres" in said
        assert "source.host must be Postgres itself, not a pooler" in said
    # The worker, which is asked too where `server` stops nothing, gets no session with options either.
    failed = {"transaction": {"server"}, "session": {"replication", "connect"}}[mode]
    assert {name for name, state in found.items() if state == "error"} == failed, said
    assert found["kafka"] == {"transaction": "ok", "session": "note"}[mode], "the topics are not there yet"
    found, said = states(source.pipeline("public.t"))
    source.pipelines.clear()
    assert found["server"] == "ok", said
