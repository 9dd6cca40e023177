"""Transactions that are open while their table comes into the publication, or is looked at: nothing of them is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from cdc.errors import ShapeUnknown, SourceUnavailable
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import Decoder, Fit
from cdc.waits import waited_for
from connectors import writers
from connectors.apply import apply, plan_pipeline
from connectors.captured.tablewatch import look_once
from connectors.database.lost import WHOLE
from connectors.names import Names
from connectors.snapshots.snapshot import wait_snapshot
from connectors.tables.shapes import read_shapes
from tests.support.postgres import own_postgres
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


@pytest.fixture(scope="module")
def applied(shared_source: SourceDatabase) -> Iterator[Pipeline]:
    """Two captured tables, snapshots done."""
    shared_source.execute(
        "CREATE TABLE item (id int PRIMARY KEY, name text)",
        "INSERT INTO item SELECT n, 'name ' || n FROM generate_series(1, 9) n",
        "CREATE TABLE day (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
        "CREATE TABLE day_1 PARTITION OF day FOR VALUES FROM (0) TO (100)",
        "INSERT INTO day SELECT n, 'name ' || n FROM generate_series(1, 9) n",
        "CREATE TABLE elsewhere (id int PRIMARY KEY)",
    )
    pipeline = shared_source.pipeline("public.item", "public.day")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    yield pipeline


def equal(source: SourceDatabase, pipeline: Pipeline, table: str = "item") -> bool:
    rows = dict(source.rows(f"SELECT id, name FROM {table}"))
    latest = source.latest(pipeline.topic(f"public.{table}")).values()
    return {row["id"]: row["name"] for row in latest if row is not None} == rows


def waiting() -> bool:
    """Whether ``apply``, in another thread, waits for who has written."""
    wait = waited_for()
    return wait is not None and "which has written to" in wait.what


def mended(pipeline: Pipeline) -> bool:
    apply(pipeline)
    return wait_snapshot(pipeline, seconds=90).done


@pytest.mark.parametrize(
    "spoiled",
    [
        'ALTER PUBLICATION "{}" DROP TABLE item',
        'ALTER PUBLICATION "{}" SET TABLE item WHERE (id < 100)',
        "ALTER PUBLICATION \"{}\" SET (publish = 'insert')",
        'DROP PUBLICATION "{}"',
    ],
    ids=["out", "filtered", "inserts alone", "dropped"],
)
def test_what_was_written_before_a_table_comes_back_is_there(
    shared_source: SourceDatabase, applied: Pipeline, spoiled: str, request: pytest.FixtureRequest
) -> None:
    """It was neither sent, for it lay before, nor read, for it was not committed yet: lost without a word.

    Meanwhile nobody is held up. Who has begun before and writes afterwards is not waited for: that is sent.
    """
    source, name = shared_source, applied.source.publication
    with source.connect() as connection:
        if spoiled.startswith("DROP") and connection.info.server_version < 180000:
            pytest.skip("the connector fails at changes from when there was no publication")
    new, gone = source.rows("SELECT 1000 + max(id), max(id) FILTER (WHERE id < 100) FROM item")[0]
    with source.connect() as late, source.connect() as writer, ThreadPoolExecutor(1) as pool:
        late.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        late.execute("UPDATE item SET name = 'nobody' WHERE id = 0")  # it has the lock, and has written nothing
        source.execute(spoiled.format(name))
        writer.execute("BEGIN")
        writer.execute("INSERT INTO item VALUES (%s, 'written')", [new])
        writer.execute("UPDATE item SET name = 'changed' WHERE id = 1")
        writer.execute("UPDATE item SET name = name || ' again' WHERE id = 2")
        writer.execute("DELETE FROM item WHERE id = %s", [gone])
        working = pool.submit(mended, applied)
        assert eventually(lambda: working.done() or waiting())
        assert not working.done()
        source.execute("SET lock_timeout = '5s'", f"INSERT INTO item VALUES ({new + 1}, 'beside')")
        late.execute("INSERT INTO item VALUES (%s, 'late')", [new + 2])
        writer.execute("INSERT INTO item VALUES (%s, 'written afterwards')", [new + 3])
        writer.execute("COMMIT")
        assert working.result()
        late.execute("COMMIT")
    assert eventually(lambda: equal(source, applied), 15), request.node.name
    assert plan_pipeline(applied) == []


def test_who_writes_for_too_long_is_named_and_the_table_is_not_read_before_its_end(
    shared_source: SourceDatabase, applied: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "WRITERS_SECONDS", 3.0)
    source = shared_source
    source.execute(f'ALTER PUBLICATION "{applied.source.publication}" DROP TABLE item')
    with source.connect() as writer:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO item VALUES (-1, 'written')")
        for _ in range(2):  # the second time the publication has it already
            with pytest.raises(SourceUnavailable, match=r"public\.item: not read yet, after 3 s") as found:
                apply(applied)
            assert f"pid {writer.info.backend_pid}" in found.value.what and found.value.transient
            assert "wait for transactions that have written" in found.value.means
        published = source.rows("SELECT tablename FROM pg_publication_tables WHERE tablename = 'item'")
        assert published == [("item",)]
        writer.execute("COMMIT")
    assert mended(applied)
    assert eventually(lambda: equal(source, applied), 15)


def test_who_vacuums_a_partition_or_writes_elsewhere_is_not_waited_for(
    shared_source: SourceDatabase, applied: Pipeline
) -> None:
    """All partitions were locked, which no VACUUM, no CREATE INDEX CONCURRENTLY let happen."""
    source = shared_source
    source.execute(f'ALTER PUBLICATION "{applied.source.publication}" DROP TABLE day')
    source.execute("UPDATE day SET name = 'unsent' WHERE id = 1")
    with source.connect() as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE day_1 IN SHARE UPDATE EXCLUSIVE MODE")
        other.execute("INSERT INTO elsewhere VALUES (1)")
        assert mended(applied)
        other.execute("ROLLBACK")
    assert eventually(lambda: equal(source, applied, "day"), 15)


def test_who_has_written_to_a_partition_is_waited_for(shared_source: SourceDatabase, applied: Pipeline) -> None:
    source = shared_source
    source.execute(f'ALTER PUBLICATION "{applied.source.publication}" DROP TABLE day')
    with source.connect() as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO day_1 VALUES (50, 'written')")
        working = pool.submit(mended, applied)
        assert eventually(lambda: working.done() or waiting())
        assert not working.done()
        writer.execute("COMMIT")
        assert working.result()
    assert eventually(lambda: equal(source, applied, "day"), 15)


def seen_whole(source: SourceDatabase, pipeline: Pipeline) -> list[Any]:
    names = Names.of(pipeline)
    return source.rows(f"SELECT token FROM {names.schema}.{names.witness} WHERE runner = '{WHOLE}'")


@pytest.mark.parametrize(
    "altered", ['ALTER PUBLICATION "{}" DROP TABLE item', "ALTER TABLE item REPLICA IDENTITY FULL"]
)
def test_tables_are_not_seen_whole_while_one_of_them_is_altered(
    shared_source: SourceDatabase, applied: Pipeline, altered: str
) -> None:
    """It may be in the log, and what was written behind it not sent, while nobody can see it yet."""
    before = seen_whole(shared_source, applied)
    with shared_source.connect() as altering:
        altering.execute("BEGIN")
        altering.execute(altered.format(applied.source.publication).encode())
        assert look_once(applied, {}) == {} and seen_whole(shared_source, applied) == before
        altering.execute("ROLLBACK")
    assert look_once(applied, {}) == {} and seen_whole(shared_source, applied) > before


def test_a_column_that_is_renamed_while_its_table_is_looked_at_is_waited_for(
    shared_source: SourceDatabase, applied: Pipeline
) -> None:
    """Its record lay before the position of the look, which saw the former name: the column was null for good."""
    source, topic = shared_source, applied.topic("public.item")
    with source.connect() as writer, source.connect(source.replicator) as looking:
        writer.execute("BEGIN")
        writer.execute("ALTER TABLE item RENAME name TO label")
        writer.execute("INSERT INTO item VALUES (-2, 'renamed')")
        catalogue, _ = read_shapes(looking, ["public.item"])
        writer.execute("COMMIT")
    table = catalogue.tables["public.item"]
    assert "name" in table.by_name

    def written() -> list[dict[str, Any]]:
        return [value for _, value in source.records(topic) if value and (value["after"] or {}).get("id") == -2]

    assert eventually(lambda: bool(written()), 15)
    [event] = written()
    decoder = Decoder(table, fit=Fit(catalogue.lsn, frozenset(table.by_name), True, True, catalogue.unseen))
    with pytest.raises(ShapeUnknown, match="has no column name, has label besides"):
        decoder.decode(b'{"id":-2}', orjson.dumps(event), topic, 0, 0)
    with source.connect(source.replicator) as looking:
        assert catalogue.unseen and not catalogue.unseen & read_shapes(looking, ["public.item"])[0].unseen


@pytest.mark.parametrize("restarted", [False, True])
def test_a_prepared_transaction_that_has_written_is_found(restarted: bool) -> None:
    """It has its session's virtual number until a restart, and was known by the one that it has after it."""
    with own_postgres(max_prepared_transactions="3") as server:
        with server.connect() as writer, server.connect() as looking:
            writer.execute("CREATE TABLE item (id int); CREATE TABLE elsewhere (id int)")
            for table, end in (("elsewhere", "PREPARE TRANSACTION 'other'"), ("item", "PREPARE TRANSACTION 'kept'")):
                writer.execute("BEGIN")
                writer.execute(f"INSERT INTO {table} VALUES (1)".encode())
                if table == "item":
                    [open_one] = writers.read_writers(looking, ["public.item"])
                    assert open_one.pid == writer.info.backend_pid
                writer.execute(end.encode())
        if restarted:
            server.stop()
            server.start(max_prepared_transactions="3")
        with server.connect() as looking:
            assert [pin.name for pin in writers.read_writers(looking, ["public.item"])] == ["kept"]
            looking.execute("ROLLBACK PREPARED 'kept'")
            assert writers.read_writers(looking, ["public.item"]) == []
