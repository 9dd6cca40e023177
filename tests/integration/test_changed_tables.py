"""Captured tables that are replaced, renamed, unpublished or keyed anew: noticed, remembered, mended by one command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc.errors import TableChanged
from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.database.history import read_moment
from connectors.database.lost import read_lost
from connectors.names import Names
from connectors.preflight import preflight
from connectors.resnapshot import Wish, resnapshot
from connectors.servers import open_servers
from connectors.snapshot import wait_snapshot
from connectors.tablewatch import TableWatch
from operations.status.source import SourceState
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=1, of=4)]

# Table -> what is done to it while nobody looks, and what is said of it.
DAMAGE = {
    "dropped": (
        "DROP TABLE dropped",
        "CREATE TABLE dropped (id int PRIMARY KEY, v text, more int)",
        "INSERT INTO dropped VALUES (2, 'new', 1), (9, 'new', 2)",
    ),
    "swapped": (
        "CREATE TABLE swapped_new (LIKE swapped INCLUDING ALL)",
        "INSERT INTO swapped_new VALUES (1, 'new'), (7, 'new')",
        "ALTER TABLE swapped RENAME TO swapped_old",
        "ALTER TABLE swapped_new RENAME TO swapped",
    ),
    "renamed": (
        "ALTER TABLE renamed RENAME TO elsewhere",
        "UPDATE elsewhere SET v = 'under another name' WHERE id = 1",
        "DELETE FROM elsewhere WHERE id = 2",
        "INSERT INTO elsewhere VALUES (8, 'under another name')",
        "ALTER TABLE elsewhere RENAME TO renamed",
    ),
    "moved": (
        "CREATE SCHEMA other",
        "ALTER TABLE moved SET SCHEMA other",
        "UPDATE other.moved SET v = 'in another schema'",
        "ALTER TABLE other.moved SET SCHEMA public",
    ),
    "unpublished": (
        "ALTER PUBLICATION {publication} DROP TABLE unpublished",
        "UPDATE unpublished SET v = 'unpublished' WHERE id = 1",
        "DELETE FROM unpublished WHERE id = 2",
    ),
    "away": (
        "ALTER PUBLICATION {publication} DROP TABLE away",
        "UPDATE away SET v = 'away' WHERE id = 1",
        "DELETE FROM away WHERE id = 2",
        "ALTER PUBLICATION {publication} ADD TABLE away",
    ),
    "filtered": (
        "ALTER PUBLICATION {publication} DROP TABLE filtered",
        "ALTER PUBLICATION {publication} ADD TABLE filtered WHERE (id > 100)",
        "UPDATE filtered SET v = 'filtered'",
    ),
    "keyed": (
        "ALTER TABLE keyed DROP CONSTRAINT keyed_pkey, ADD PRIMARY KEY (id, v)",
        "UPDATE keyed SET v = v || ' again'",
        "DELETE FROM keyed WHERE id = 2",
    ),
}
SAID = {
    "public.dropped": "was dropped and made again, is not in publication",
    "public.swapped": "was renamed to public.swapped_old, and another table has its name, is not in publication",
    "public.renamed": "was renamed, and renamed back",
    "public.moved": "was renamed, and renamed back",
    "public.unpublished": "is not in publication",
    "public.away": "was out of publication",
    "public.filtered": "does not get some of its rows or columns sent by publication",
    "public.keyed": "has the key (id, v), and had (id)",
}
# What tables go through without a loss.
HARMLESS = (
    "ALTER TABLE well ADD COLUMN more int, ALTER COLUMN v TYPE varchar(90), REPLICA IDENTITY FULL",
    "CREATE INDEX ON well (v)",
    "REINDEX TABLE CONCURRENTLY well",
    "GRANT SELECT ON well TO PUBLIC",
    "COMMENT ON TABLE well IS 'of many things'",
    "CLUSTER well USING well_pkey",
    "VACUUM FULL ANALYZE well",
    "ALTER TABLE well DROP CONSTRAINT well_pkey, ADD PRIMARY KEY (id)",
    "CREATE TABLE bystander (id int PRIMARY KEY)",
    "ALTER PUBLICATION {publication} ADD TABLE bystander",
)


def made(source: SourceDatabase, *tables: str) -> Pipeline:
    for table in tables:
        source.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {table} SELECT i, 'old' FROM generate_series(1, 5) i",
        )
    pipeline = source.pipeline(*(f"public.{table}" for table in tables))
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    return pipeline


@pytest.fixture
def watch(source: SourceDatabase) -> Iterator[list[TableWatch]]:
    """Watches that are closed before the database goes."""
    watches: list[TableWatch] = []
    yield watches
    for one in watches:
        one.close()


def said(found: dict[str, TableChanged]) -> dict[str, str]:
    return {table: error.what for table, error in found.items()}


def equal(source: SourceDatabase, pipeline: Pipeline, table: str) -> bool:
    latest = source.latest(pipeline.topic(f"public.{table}")).values()
    held = sorted((row["id"], row["v"]) for row in latest if row)
    return held == sorted(source.rows(f"SELECT id, v FROM {table}"))


def test_each_change_is_noticed_afterwards_and_one_apply_mends_all(
    source: SourceDatabase, watch: list[TableWatch]
) -> None:
    pipeline = made(source, *DAMAGE, "well")
    publication = f'"{pipeline.source.publication}"'
    watch.append(TableWatch(pipeline))
    assert watch[0].look() == {} and not watch[0].forgetful
    for statement in HARMLESS:
        source.execute(statement.format(publication=publication))
    assert watch[0].look() == {}
    source.execute(*(line.format(publication=publication) for lines in DAMAGE.values() for line in lines))

    found = said(watch[0].look())
    assert found.keys() == SAID.keys()
    for table, words in SAID.items():
        assert found[table].startswith(f"table {table} {words}"), found[table]
    # It is remembered, also by who comes later; every verb says it.
    source.execute("ALTER TABLE swapped RENAME TO swapped_new", "ALTER TABLE swapped_old RENAME TO swapped")
    watch.append(TableWatch(pipeline))
    assert said(watch[1].look()).keys() == SAID.keys()
    checked = {answer.check.name: answer for answer in preflight(pipeline)}["captured"]
    assert (checked.state, {finding.about for finding in checked.findings}) == ("error", set(SAID))
    assert all("`headwater apply FILE --wait`" in finding.fix for finding in checked.findings)
    assert SourceState(pipeline).report()["tables"].keys() == SAID.keys()
    planned = {
        action.name for action in plan_pipeline(pipeline) if action.kind == "snapshot" and "; it " in action.detail
    }
    assert planned == set(SAID)

    apply(pipeline)
    assert said(watch[0].look()).keys() == SAID.keys(), "not before all is read"
    assert wait_snapshot(pipeline, seconds=120).done
    assert watch[0].look() == {}
    for table in DAMAGE:
        assert eventually(lambda table=table: equal(source, pipeline, table)), (  # type: ignore[misc]
            table,
            source.latest(pipeline.topic(f"public.{table}")),
        )
    assert all('"v"' in key for key in source.latest(pipeline.topic("public.keyed"))), (
        "no record of the old key is left"
    )
    assert plan_pipeline(pipeline) == []
    source.execute(*(f"INSERT INTO {table} (id, v) VALUES (77, 'live')" for table in DAMAGE))
    for table in DAMAGE:
        assert eventually(lambda table=table: equal(source, pipeline, table)), table  # type: ignore[misc]


def test_a_gap_stays_until_it_is_mended(source: SourceDatabase, watch: list[TableWatch]) -> None:
    pipeline = made(source, "t", "u")
    watch.append(TableWatch(pipeline))
    source.execute("ALTER TABLE t RENAME TO gone", "UPDATE gone SET v = 'lost' WHERE id = 1")
    for verb in (plan_pipeline, apply, lambda pipeline: resnapshot(pipeline, Wish(["public.u"]))):
        with pytest.raises(TableChanged, match=r"table public\.t was renamed to public\.gone") as error:
            verb(pipeline)
        assert "give public.t its name back, or, if it is gone for good, take it out" in error.value.fix
    assert said(watch[0].look()) == {"public.t": "table public.t was renamed to public.gone"}
    source.execute("ALTER TABLE gone RENAME TO t")
    assert said(watch[0].look()).keys() == {"public.t"}
    apply(pipeline)
    source.execute("ALTER TABLE t RENAME TO gone", "DELETE FROM gone WHERE id = 2", "ALTER TABLE gone RENAME TO t")
    with pytest.raises(TableChanged, match=r"was renamed, and renamed back"):
        wait_snapshot(pipeline, seconds=90)
    assert said(watch[0].look()).keys() == {"public.t"}, "what happened meanwhile may not have been read"
    assert resnapshot(pipeline, Wish(["public.t"])) == ["public.t"], "does what apply does for it"
    assert wait_snapshot(pipeline, seconds=90).done
    assert watch[0].look() == {} and plan_pipeline(pipeline) == []
    assert eventually(lambda: equal(source, pipeline, "t"))
    # What a Headwater left behind that knew nothing of this: noticed at once, remembered after the next apply.
    captured, replicator = f'headwater."{Names.of(pipeline).captured}"', f'"{source.replicator}"'
    source.execute(f"ALTER TABLE {captured} DROP COLUMN identity, DROP COLUMN gap")
    source.execute(f"REVOKE SELECT, UPDATE ON {captured} FROM {replicator}")
    watch.append(TableWatch(pipeline))
    assert watch[1].look() == {} and watch[1].forgetful
    source.execute("ALTER TABLE u RENAME TO v", "ALTER TABLE v RENAME TO u")
    assert said(watch[1].look()).keys() == {"public.u"} == said(watch[1].look()).keys()
    assert {action.kind for action in plan_pipeline(pipeline)} == {"table", "grant"}
    apply(pipeline)
    watch.append(TableWatch(pipeline))
    assert watch[2].look() == {} and not watch[2].forgetful
    source.execute("ALTER TABLE u RENAME TO v", "ALTER TABLE v RENAME TO u")
    assert said(watch[2].look()).keys() == {"public.u"}


@pytest.mark.parametrize("seen", [True, False], ids=["by run", "by apply alone"])
def test_no_cut_is_made_where_changes_are_missing(
    source: SourceDatabase, watch: list[TableWatch], *, seen: bool
) -> None:
    pipeline = made(source, "t")
    publication = f'"{pipeline.source.publication}"'
    watch.append(TableWatch(pipeline))
    assert watch[0].look() == {}
    with open_servers(pipeline) as servers:
        before = read_moment(servers.source).wal_lsn
        assert read_lost(servers.source, servers.names) == []
        source.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert')", "DELETE FROM t WHERE id = 2")
        inside = read_moment(servers.source).wal_lsn
        if seen:
            assert list(watch[0].look()) == ["public.t"]
            watch[0].look()
            [open_one] = read_lost(servers.source, servers.names)
            assert open_one.until is None and open_one.hides(inside), "known before anybody has mended it"
        apply(pipeline)
        assert wait_snapshot(pipeline, seconds=90).done and watch[0].look() == {}
        [lost] = read_lost(servers.source, servers.names)
        assert lost.hides(inside) and not lost.hides(lost.since) and 0 < lost.since <= before
        assert lost.until is not None and not lost.hides(read_moment(servers.source).wal_lsn + 1)
        assert 0 < lost.since_us < (lost.until_us or 0)
