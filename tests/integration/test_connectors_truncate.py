"""TRUNCATE at the source: refused, or turned into deletes that travel like any other. FAULTS 28."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from connectors.actions import run_all
from connectors.apply import apply
from connectors.database.schema import plan_schema
from connectors.database.truncate import plan_truncate
from connectors.names import Names
from connectors.servers import open_servers
from connectors.snapshots.snapshot import wait_snapshot
from connectors.tables.facts import read_facts
from tests.support.source import SourceDatabase, eventually

pytestmark = pytest.mark.stack

DELETIONS = """
CREATE TABLE deletions (nth bigserial PRIMARY KEY, tab text, id int);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
$$BEGIN INSERT INTO public.deletions (tab, id) VALUES (TG_TABLE_NAME, OLD.id); RETURN OLD; END$$;
"""


@pytest.fixture
def armed(source: SourceDatabase) -> Callable[..., None]:
    """Arms the truncate triggers of a policy on some tables, without Kafka."""

    def arm(policy: str, *tables: str) -> None:
        pipeline = source.pipeline(*tables, policy={"truncate": policy})
        names = Names.of(pipeline)
        with open_servers(pipeline) as servers:
            facts = list(read_facts(servers.setup, tables).values())
            actions = [*plan_schema(servers.setup, names), *plan_truncate(servers.setup, names, facts, policy)[0]]
            run_all(servers, actions, lambda action: None)
            assert plan_truncate(servers.setup, names, facts, policy) == ([], [])

    return arm


def noted(source: SourceDatabase, *tables: str) -> None:
    source.execute(DELETIONS)
    for table in tables:
        source.execute(f"CREATE TRIGGER note AFTER DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note()")


def deleted(source: SourceDatabase) -> list[tuple[str, int]]:
    return [(tab, number) for tab, number in source.rows("SELECT tab, id FROM deletions ORDER BY tab, id")]


def test_refused_truncate_names_headwater_and_the_way_out(source: SourceDatabase, armed: Callable[..., None]) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    armed("refuse", "public.t")
    for statement in ("TRUNCATE t", "TRUNCATE t RESTART IDENTITY CASCADE"):
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match=r"headwater: TRUNCATE of public\.t is refused"
        ) as error:
            source.execute(statement)
        assert "policy.truncate to propagate" in str(error.value.diag.message_hint)
    assert source.rows("SELECT id FROM t") == [(1,)]


def test_refused_also_when_another_subscription_applies_it(source: SourceDatabase, armed: Callable[..., None]) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    armed("refuse", "public.t")
    with source.connect("superuser") as connection:
        connection.execute("SET session_replication_role = replica")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("TRUNCATE t")


def test_refusal_also_stops_a_cascade_from_a_table_that_is_not_captured(
    source: SourceDatabase, armed: Callable[..., None]
) -> None:
    source.execute("CREATE TABLE p (id int PRIMARY KEY)", "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)")
    armed("refuse", "public.c")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"public\.c"):
        source.execute("TRUNCATE p CASCADE")


def test_propagated_truncate_deletes_every_row_first(source: SourceDatabase, armed: Callable[..., None]) -> None:
    source.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)")
    source.execute("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 3)")
    noted(source, "t")
    armed("propagate", "public.t")
    source.execute("TRUNCATE t RESTART IDENTITY")
    assert deleted(source) == [("t", 1), ("t", 2), ("t", 3)]
    source.execute("INSERT INTO t (v) VALUES ('again')")
    assert source.rows("SELECT id FROM t") == [(1,)]


def test_cascade_reaches_grandchildren_self_references_and_cycles(
    source: SourceDatabase, armed: Callable[..., None]
) -> None:
    source.execute(
        "CREATE TABLE a (id int PRIMARY KEY, boss int REFERENCES a, b int)",
        "CREATE TABLE b (id int PRIMARY KEY, a int NOT NULL REFERENCES a ON DELETE RESTRICT)",
        "ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b",
        "CREATE TABLE c (id int PRIMARY KEY, b int REFERENCES b ON DELETE CASCADE)",
        "CREATE TABLE d (id int PRIMARY KEY, c int REFERENCES c ON DELETE SET NULL)",
        "INSERT INTO a VALUES (1, 1, NULL), (2, 1, NULL)",
        "INSERT INTO b VALUES (1, 1), (2, 2)",
        "UPDATE a SET b = id",
        "INSERT INTO c VALUES (1, 1)",
        "INSERT INTO d VALUES (1, 1)",
    )
    noted(source, "a", "b", "c", "d")
    armed("propagate", "public.a", "public.b", "public.c", "public.d")
    source.execute("TRUNCATE a CASCADE")
    assert deleted(source) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
    for table in "abcd":
        assert source.rows(f"SELECT count(*) FROM {table}") == [(0,)]


def test_listed_tables_in_any_order_and_deferred_foreign_keys(
    source: SourceDatabase, armed: Callable[..., None]
) -> None:
    source.execute(
        'CREATE TABLE "Parent-Table" (id int PRIMARY KEY)',
        'CREATE TABLE kid (id int PRIMARY KEY, p int CONSTRAINT "kid fk" REFERENCES "Parent-Table"'
        " DEFERRABLE INITIALLY DEFERRED)",
        'INSERT INTO "Parent-Table" VALUES (1), (2)',
        "INSERT INTO kid VALUES (10, 1)",
    )
    noted(source, '"Parent-Table"', "kid")
    armed("propagate", "public.Parent-Table", "public.kid")
    with source.connect() as connection, connection.transaction():
        connection.execute('TRUNCATE "Parent-Table", kid')
        connection.execute("INSERT INTO kid VALUES (11, 3)")  # still deferred: the parent comes later
        connection.execute('INSERT INTO "Parent-Table" VALUES (3)')
    assert deleted(source) == [("Parent-Table", 1), ("Parent-Table", 2), ("kid", 10)]
    assert source.rows("SELECT id FROM kid") == [(11,)]


def test_partitions_are_deleted_through_root_and_leaf(source: SourceDatabase, armed: Callable[..., None]) -> None:
    source.execute(
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE ref (id int PRIMARY KEY, p int REFERENCES p)",
        "INSERT INTO p VALUES (1), (2), (11)",
        "INSERT INTO ref VALUES (5, 11)",
    )
    noted(source, "p1", "p2", "ref")
    armed("propagate", "public.p", "public.ref")
    source.execute("TRUNCATE p1 CASCADE")  # Postgres truncates ref as a whole: its rows may refer to p1
    assert deleted(source) == [("p1", 1), ("p1", 2), ("ref", 5)]
    source.execute("TRUNCATE p CASCADE")
    assert deleted(source)[2] == ("p2", 11)


def test_a_row_that_a_trigger_keeps_stops_the_truncate(source: SourceDatabase, armed: Callable[..., None]) -> None:
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$",
        "CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()",
    )
    armed("propagate", "public.t")
    with pytest.raises(psycopg.errors.RaiseException, match="could not be deleted before TRUNCATE"):
        source.execute("TRUNCATE t")
    assert source.rows("SELECT id FROM t") == [(1,)]


def test_rows_that_policies_hide_from_the_owner_stop_the_truncate(
    source: SourceDatabase, armed: Callable[..., None]
) -> None:
    """Under FORCE; each was refused, also where all policies show all."""
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "CREATE POLICY few ON t USING (id > 1)",
    )
    armed("propagate", "public.t")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        source.execute("TRUNCATE t")
    source.execute("DROP POLICY few ON t", "CREATE POLICY shown ON t FOR SELECT USING (true)")
    with pytest.raises(psycopg.errors.RaiseException, match="does a trigger or a policy keep them"):
        source.execute("TRUNCATE t")
    assert source.rows("SELECT count(*) FROM t") == [(2,)]
    source.execute("CREATE POLICY every ON t USING (true)", "TRUNCATE t")
    assert source.rows("SELECT count(*) FROM t") == [(0,)]


def test_a_role_that_may_only_truncate_can_still_truncate(source: SourceDatabase, armed: Callable[..., None]) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    armed("propagate", "public.t")
    source.execute(f'GRANT TRUNCATE ON t TO "{source.replicator}"')
    with source.connect(source.replicator) as connection:
        connection.execute("TRUNCATE public.t")
    assert source.rows("SELECT count(*) FROM t") == [(0,)]


def test_nobody_else_runs_his_sql_as_the_owner(source: SourceDatabase, armed: Callable[..., None]) -> None:
    """The function was open to all: as the trigger of a table of his own it deleted as the owner, and so his triggers
    ran. Also after an older version has left it open."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    armed("propagate", "public.t")
    schema, function = "headwater", f"headwater.on_truncate_{source.name}"
    source.execute(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC")  # as the function of write tokens has it
    borrow = (
        "CREATE TEMP TABLE mine (id int)",
        f"CREATE TRIGGER b BEFORE TRUNCATE ON mine FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
    )
    with source.connect(source.replicator) as connection:
        connection.execute(borrow[0])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(borrow[1])
    source.execute(f"GRANT EXECUTE ON FUNCTION {function}() TO PUBLIC")
    with source.connect(source.replicator) as connection:
        for statement in (
            *borrow,
            "GRANT ALL ON mine TO PUBLIC",
            "CREATE TEMP TABLE seen (who text)",
            "GRANT ALL ON seen TO PUBLIC",
            "CREATE FUNCTION pg_temp.evil() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO seen VALUES (current_user); RETURN OLD; END'",
            "CREATE TRIGGER evil BEFORE DELETE ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.evil()",
            "INSERT INTO mine VALUES (1)",
            "TRUNCATE mine",
        ):
            connection.execute(statement)
        assert connection.execute("SELECT who FROM seen").fetchall() == [(source.owner,)], "what is kept from them"
    armed("propagate", "public.t")  # the body is as it was
    source.execute(f'GRANT TRUNCATE ON t TO "{source.replicator}"')
    with source.connect(source.replicator) as connection:
        connection.execute(borrow[0])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(borrow[1])
        connection.execute("TRUNCATE public.t")  # a trigger needs no right to its function
    assert source.rows("SELECT count(*) FROM t") == [(0,)]


def test_deletes_of_a_truncate_reach_the_topic_as_tombstones(source: SourceDatabase) -> None:
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE k (id int PRIMARY KEY, t int REFERENCES t)"
    )
    source.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO k VALUES (1, 2)")
    pipeline = source.pipeline("public.t", "public.k", policy={"truncate": "propagate"})
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=60).done
    source.execute("TRUNCATE t CASCADE")
    source.execute("INSERT INTO t VALUES (3, 'c')")
    topic = pipeline.topic("public.t")
    assert eventually(lambda: '{"id": 3}' in source.latest(topic))
    assert source.latest(topic) == {'{"id": 1}': None, '{"id": 2}': None, '{"id": 3}': {"id": 3, "v": "c"}}
    assert source.latest(pipeline.topic("public.k")) == {'{"id": 1}': None}
