"""History end to end: every event once, whatever is killed; versions; schema changes; cuts that tear nothing."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import duckdb
import orjson
import psycopg
import pytest
from confluent_kafka import Producer
from headwater_client import take_token

from cdc.errors import BadToken, BeforeHistory, BeyondFrontier, HistoryGap, QueryRefused, SinkRefused, UnknownName
from cdc.polling import poll
from cdc.records.position import parse_lsn, unpack
from operations.as_of import seen
from operations.query.query import Queries
from operations.state.history import STREAM, history_folder
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.history import gaps, load_history
from spark.disk.checkpoint import committed_offsets, rewind
from tests.support import cuts
from tests.support.servers import Servers
from tests.support.vaults import CATALOG, NAMESPACE, ROWS, SINK, TOTAL, Moving, Vaults

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

SEED, CUTS, WRITERS = 11, 25, 3


@pytest.fixture(scope="module")
def vaults(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vaults]:
    """Two tables, captured and followed."""
    made = Vaults(local_stack, tmp_path_factory.mktemp("vaults"))
    with made.running():
        yield made


def history(vaults: Vaults, table: str) -> list[dict[str, Any]]:
    """All rows, in the order of commits."""
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        rows = load_history(catalog, NAMESPACE, table).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["_hw_after"], row["_hw_position"], row["_hw_offset"]))


def held(vaults: Vaults, table: str) -> dict[int, int]:
    with psycopg.connect(vaults.conninfo) as connection:
        return dict(connection.execute(f"SELECT id, balance FROM {table}".encode()).fetchall())


def rows_by_duckdb(text: str) -> list[Any]:
    with duckdb.connect() as connection:
        for extension in ("avro", "iceberg"):
            cuts.duckdb_extensions.import_extension(extension)
            connection.execute(f"LOAD {extension}")
        return connection.execute(text).fetchall()


def test_every_event_is_a_row(vaults: Vaults) -> None:
    with psycopg.connect(vaults.conninfo, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("UPDATE savings SET balance = balance - 7 WHERE id = 2")
            connection.execute("UPDATE checking SET balance = balance + 7 WHERE id = 2")
        with connection.transaction():
            gone = connection.execute("DELETE FROM savings WHERE id = 1 RETURNING balance").fetchone()
            connection.execute("INSERT INTO savings VALUES (1, %s)", gone)
    assert vaults.settled(lambda: len(history(vaults, "savings")), ROWS + 3) == ROWS + 3, vaults.log()
    rows = history(vaults, "savings")
    assert Counter(row["_hw_op"] for row in rows) == {"read": ROWS, "update": 1, "delete": 1, "insert": 1}
    update, delete, insert = rows[-3:]
    assert (update["id"], update["balance"], update["_hw_op"]) == (2, 993, "update")
    assert (delete["id"], delete["balance"], insert["balance"]) == (1, None, 1000)
    [other] = vaults.settled(lambda: history(vaults, "checking")[ROWS:], None, 3.0)[:1]
    assert (other["_hw_tx"], other["_hw_after"]) == (update["_hw_tx"], update["_hw_after"]), "one transaction"
    assert delete["_hw_tx"] == insert["_hw_tx"] != update["_hw_tx"]
    assert delete["_hw_after"] == insert["_hw_after"] > update["_hw_after"] > rows[0]["_hw_after"]
    assert all(row["_hw_commit_time"] and row["_hw_source"] and row["_hw_missing"] is None for row in rows)


def test_no_cut_is_torn_and_no_event_is_twice_when_the_runner_is_killed(vaults: Vaults) -> None:
    first = cuts.cut(vaults)
    reports = [first]
    with ExitStack() as writers:
        for number in range(WRITERS):
            writers.enter_context(Moving(vaults.conninfo, SEED + number))
        time.sleep(2.5)
        assert poll(lambda: newest_batch(vaults), lambda newest: newest > 0, 60.0) > 0, vaults.log()
        vaults.kill()
        # As if it had been killed behind Iceberg's commit and before Spark's own.
        assert put_back_a_batch(vaults)
        vaults.launch()
        with pytest.raises(BeyondFrontier, match=r"records behind|has not reached"):
            cuts.cut(vaults, wait=0.0)
        reports.append(cuts.cut(vaults, wait=180.0))
        time.sleep(2.0)
    vaults.open_again()
    last = cuts.cut(vaults, wait=180.0)
    begins, ends = first["cut"], last["cut"]
    assert ends > begins
    reports += [last, *cuts.random_cuts(vaults, CUTS, begins, ends, SEED)]
    with psycopg.connect(vaults.conninfo) as connection:
        now = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
    assert now is not None
    reports += [cuts.cut(vaults, at=float(now[0]) - back) for back in (0.0, 3.3, 5.1)]
    assert torn_anywhere(vaults, reports) == {"duckdb": 0, "pyiceberg": 0, "spark": 0}
    assert len({one["cut"] for one in reports}) > CUTS // 2
    for table in ("checking", "savings"):
        rows = history(vaults, table)
        twice = [at for at, n in Counter((row["_hw_partition"], row["_hw_offset"]) for row in rows).items() if n > 1]
        assert not twice
        [text] = [one["sql"]["duckdb"] for one in last["tables"] if one["table"] == f"public.{table}"]
        assert {row[0]: row[1] for row in rows_by_duckdb(text)} == held(vaults, table)


def checkpoint_of(vaults: Vaults) -> Path:
    return history_folder(cuts.pipeline_of(vaults), SINK) / STREAM / "checkpoint"


def newest_batch(vaults: Vaults) -> int:
    return committed_offsets(checkpoint_of(vaults))[0]


def put_back_a_batch(vaults: Vaults) -> bool:
    """The checkpoint knows nothing of the newest batch that the tables have."""
    return rewind(checkpoint_of(vaults), newest_batch(vaults) - 1)


def torn_anywhere(vaults: Vaults, reports: list[dict[str, Any]]) -> dict[str, int]:
    """Engine -> how many of the cuts do not have all the money."""
    return {
        "duckdb": cuts.torn(cuts.by_duckdb(reports)),
        "pyiceberg": cuts.torn(cuts.by_pyiceberg(reports)),
        "spark": cuts.torn(cuts.by_spark(vaults, reports)),
    }


def test_a_smallint_is_no_other_type_after_a_start(vaults: Vaults) -> None:
    """Its column was put aside at each start, with all that it held."""
    rows = history(vaults, "savings")
    assert {name for name in rows[0] if not name.startswith("_hw_")} == {"id", "balance", "branch"}
    assert {row["branch"] for row in rows if row["_hw_op"] != "delete"} == {7}


def test_a_cut_by_the_order_of_rows_would_tear_transactions(vaults: Vaults) -> None:
    """What the rule is for: the same load, cut by the rows' own positions."""
    events = [(row, table) for table in ("checking", "savings") for row in history(vaults, table)]
    places = sorted({row["_hw_position"] for row, _ in events})
    rng, wrong = random.Random(SEED), 0
    for at in rng.sample(places[2 * ROWS :] or places, min(60, len(places) - 1)):
        newest: dict[tuple[str, int], dict[str, Any]] = {}
        for row, table in sorted(events, key=lambda one: (one[0]["_hw_position"], one[0]["_hw_offset"])):
            if row["_hw_position"] < at:
                newest[table, row["id"]] = row
        wrong += sum(row["balance"] or 0 for row in newest.values()) != TOTAL
    assert wrong > 0


def test_cuts_that_can_not_be_are_refused(vaults: Vaults) -> None:
    with pytest.raises(BeforeHistory, match="begins at"):
        cuts.cut(vaults, 1024)
    with pytest.raises(BeforeHistory, match="behind the moment 2000-01-01T00:00:00"):
        cuts.cut(vaults, at=946_684_800.0)  # the first commit that is later stands behind the snapshot
    with pytest.raises(BeyondFrontier, match="in the future"):
        cuts.cut(vaults, parse_lsn("FF/0"))
    with pytest.raises(BeyondFrontier, match="in the future"):
        cuts.cut(vaults, at=time.time() + 3600)
    with pytest.raises(UnknownName, match=r"no history of a table public\.other"):
        cuts.cut(vaults, tables=("public.other",))
    [one] = cuts.cut(vaults, tables=("public.savings",))["tables"]
    assert one["table"] == "public.savings"


def test_a_cut_through_a_write_has_it_and_none_after_it(vaults: Vaults) -> None:
    """It went as far as the log went when it was asked for: with all that had been committed since."""
    with psycopg.connect(vaults.conninfo) as connection:
        connection.execute("UPDATE checking SET note = 'own' WHERE id = 8")
        token = take_token(connection.cursor(), vaults.name)
    vaults.execute("UPDATE savings SET balance = balance + 900 WHERE id = 8")
    vaults.execute("UPDATE checking SET note = 'later' WHERE id = 8")
    early = cuts.cut(vaults, token=token)
    vaults.execute("UPDATE savings SET balance = balance - 900 WHERE id = 8")
    for found in (early, cuts.cut(vaults), cuts.cut(vaults, token=token, tables=("public.checking",))):
        texts = {one["table"]: one["sql"]["duckdb"] for one in found["tables"]}
        [(note,)] = rows_by_duckdb(f"SELECT note FROM ({texts['public.checking']}) WHERE id = 8")
        assert note == ("own" if found["cut"] == early["cut"] else "later")
    assert cuts.by_duckdb([early]) == [sum(held(vaults, "checking").values()) + sum(held(vaults, "savings").values())]
    with pytest.raises(BadToken, match="is no write token"):
        cuts.cut(vaults, token="none")


def test_the_cut_of_one_table_is_that_of_all(vaults: Vaults) -> None:
    """Inside of a transaction that has written the one, and not yet the other, no cut has a part of it."""
    for _ in range(15):
        with psycopg.connect(vaults.conninfo) as connection:
            connection.execute("UPDATE checking SET balance = balance - 1 WHERE id = 6")
            [at] = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone() or [0]
            connection.execute("UPDATE savings SET balance = balance + 1 WHERE id = 6")
        whole, one = cuts.cut(vaults, int(at)), cuts.cut(vaults, int(at), tables=("public.checking",))
        assert one["cut"] == whole["cut"] <= int(at)
        if whole["cut"] < int(at):
            return
        # A heartbeat was committed in between: the transaction follows that, and its place alone keeps it out.
    pytest.fail("no transaction of fifteen came right behind a commit before the cut")


def test_a_cut_can_be_named_listed_read_and_dropped(vaults: Vaults) -> None:
    made = vaults.as_of("--tag", "november")
    assert "there is a cut november already" in vaults.run_error("as-of", "--tag", "november")
    vaults.execute("UPDATE savings SET balance = balance - 5 WHERE id = 3")
    vaults.execute("UPDATE checking SET balance = balance + 5 WHERE id = 3")
    assert [one["name"] for one in vaults.as_of("--list")["cuts"]] == ["november"]
    again = vaults.as_of("--cut", "november")
    assert again["cut"] == made["cut"]
    assert cuts.by_duckdb([again]) == cuts.by_duckdb([made])
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        assert all("november" in load_history(catalog, NAMESPACE, one).refs() for one in ("checking", "savings"))
    vaults.run("as-of", "--drop", "november")
    assert vaults.as_of("--list")["cuts"] == []
    assert "there is no cut november" in vaults.run_error("as-of", "--drop", "november")
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        assert not any("november" in load_history(catalog, NAMESPACE, one).refs() for one in ("checking", "savings"))


def test_versions_follow_one_another(vaults: Vaults) -> None:
    report = cuts.cut(vaults)
    [text] = [one["sql"]["duckdb_versions"] for one in report["tables"] if one["table"] == "public.savings"]
    found = rows_by_duckdb(f"SELECT id, balance, valid_from, valid_to, is_current FROM ({text})")
    assert {row[0]: row[1] for row in found if row[4]} == held(vaults, "savings")
    assert all(row[3] is None or row[2] <= row[3] for row in found)
    assert all((row[3] is None) == row[4] for row in found)


def test_columns_are_added_and_those_that_are_gone_stay(vaults: Vaults) -> None:
    vaults.execute("ALTER TABLE checking ADD COLUMN colour text")
    vaults.execute("UPDATE checking SET colour = 'red' WHERE id = 4")
    red = vaults.settled(lambda: [row.get("colour") for row in history(vaults, "checking")][-1], "red")
    assert red == "red", vaults.log()
    vaults.execute("ALTER TABLE checking DROP COLUMN note")
    vaults.execute("UPDATE checking SET colour = 'blue' WHERE id = 4")
    blue = vaults.settled(lambda: [row.get("colour") for row in history(vaults, "checking")][-1], "blue")
    assert blue == "blue", vaults.log()
    assert "note" in history(vaults, "checking")[-1]
    assert not vaults.dead_letters()


def test_a_query_reads_events_and_versions(vaults: Vaults) -> None:
    queries, events = Queries(cuts.pipeline_of(vaults), [SINK]), history(vaults, "savings")
    try:
        found = queries.run("SELECT count(*), count(DISTINCT id) FROM savings_history")
        assert found.found.rows == [(len(events), len({row["id"] for row in events}))]
        assert [(one.held.generation, one.held.name.view) for one in found.tables] == [(None, "savings_history")]
        assert found.as_of.lsn is not None, found.as_of
        current = queries.run("SELECT id, balance FROM savings_versions WHERE is_current").found.rows
        assert {(row[0], row[1]) for row in current} == set(held(vaults, "savings").items())
        listed = [row[0] for row in queries.run("SHOW TABLES").found.rows]
        assert {"savings_history", "savings_versions", "checking_history"} <= set(listed)
        with pytest.raises(QueryRefused, match="as they were committed"):
            queries.run("FROM savings_history", fresh=True)
        with pytest.raises(QueryRefused) as refused:
            queries.run("FROM savins")
        assert "<table>_history" in str(refused.value)
    finally:
        queries.close()


def test_where_history_begins_is_written_down(vaults: Vaults) -> None:
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        [gap] = gaps(catalog, NAMESPACE, SINK)
    assert "history began" in gap["why"]


def test_an_old_cut_does_not_wait_for_what_is_written_now(vaults: Vaults, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that is behind the log, as one under a steady load always is, has all of what was asked before."""
    monkeypatch.setattr(seen, "APART_US", 0)
    with psycopg.connect(vaults.conninfo) as connection:
        [at] = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone() or [0]
    before = cuts.cut(vaults, int(at))
    vaults.stop()
    try:
        vaults.execute("UPDATE savings SET balance = balance WHERE id = 4")
        with pytest.raises(BeyondFrontier, match="records behind") as beyond:
            cuts.cut(vaults, wait=20.0)
        assert "ask for what it has: `--lsn " in str(beyond.value)
        assert cuts.cut(vaults, int(at), wait=0.0)["cut"] == before["cut"]
    finally:
        vaults.start()


def test_rows_that_a_purge_left_only_tombstones_of_are_gone(vaults: Vaults) -> None:
    """Compaction had taken each delete while history was away: they stood before the rows, which came back for good."""
    keys = range(901, 911)
    vaults.execute(f"INSERT INTO savings SELECT n, 0 FROM generate_series({keys[0]}, {keys[-1]}) n")

    def written() -> dict[int, int]:
        return {row["id"]: row["_hw_partition"] for row in history(vaults, "savings") if row["id"] in keys}

    assert vaults.settled(lambda: set(written()), {*keys}) == {*keys}, vaults.log()
    parts, before = written(), cuts.cut(vaults, wait=60.0)
    vaults.stop()
    producer = Producer({"bootstrap.servers": vaults.stack.endpoints.kafka})
    for key, part in parts.items():
        producer.produce(f"{vaults.name}.public.savings", key=orjson.dumps({"id": key}), value=None, partition=part)
    assert producer.flush(30) == 0
    vaults.start()

    def deleted() -> set[int]:
        return {row["id"] for row in history(vaults, "savings") if row["_hw_op"] == "delete"} & {*keys}

    assert vaults.settled(deleted, {*keys}) == {*keys}, vaults.log()
    report = cuts.cut(vaults, wait=60.0)
    for found, wanted in ((report, set()), (before, {*keys})):
        [text] = [one["sql"]["duckdb"] for one in found["tables"] if one["table"] == "public.savings"]
        assert {row[0] for row in rows_by_duckdb(text)} & {*keys} == wanted
    [text] = [one["sql"]["duckdb_versions"] for one in report["tables"] if one["table"] == "public.savings"]
    assert not rows_by_duckdb(f"SELECT id FROM ({text}) WHERE is_current AND id > {keys[0] - 1}")
    vaults.execute(f"DELETE FROM savings WHERE id >= {keys[0]}")  # and in the source


def test_history_outlives_its_sink_and_notes_what_it_may_have_missed(vaults: Vaults) -> None:
    named = vaults.as_of("--tag", "before_the_gap")
    vaults.stop()
    before = history(vaults, "savings")
    assert "its history stays" in vaults.run("drop", "--sink", SINK, "--yes")
    assert history(vaults, "savings") == before
    for _ in range(2):  # of which compaction might take the first before anybody reads it
        vaults.execute("UPDATE savings SET balance = balance + 1 WHERE id = 3")
    vaults.write_pipeline(compaction_lag_hours=0.001)
    time.sleep(5.0)
    vaults.start()
    more = len(before) + 2
    assert vaults.settled(lambda: len(history(vaults, "savings")), more) == more, vaults.log()
    [sink] = vaults.status()["sinks"]
    assert sink["history"]["kept_seconds"] == pytest.approx(3.6)
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        found = [gap["why"] for gap in gaps(catalog, NAMESPACE, SINK)]
    assert "the log may have been compacted before history had read it" in found
    first, second = history(vaults, "savings")[-2:]
    with pytest.raises(HistoryGap):
        cuts.cut(vaults, second["_hw_after"])
    # All of it had been read when it got its name; of other rows' positions it lies inside of the gap.
    assert vaults.as_of("--cut", "before_the_gap")["lsn"] == named["lsn"]
    vaults.run("as-of", "--drop", "before_the_gap")
    assert first["_hw_after"] < second["_hw_after"] < cuts.cut(vaults)["cut"]
    vaults.stop()  # with a log that keeps 3.6 s, each later start on a busy machine would note a gap as well
    vaults.write_pipeline()
    vaults.start()


def test_a_history_that_somebody_has_dropped_is_not_made_again_and_goes_on_once_restored(vaults: Vaults) -> None:
    """An empty one was made in its place, and nobody was told."""
    assert vaults.settled(lambda: len(history(vaults, "savings")) >= ROWS, True), vaults.log()
    vaults.stop()
    before, name = history(vaults, "savings"), (NAMESPACE, "savings_history")
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        metadata = catalog.load_table(name).metadata_location
        catalog.drop_table(name)
    touch_a_row(vaults, "savings")
    vaults.start()

    def told() -> bool:
        return "the history of public.savings is gone" in str(vaults.status()["sinks"][0]["history"]["last_error"])

    assert vaults.settled(told, True), vaults.log()
    vaults.stop()
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        assert not catalog.table_exists(name)
        catalog.register_table(name, metadata)
    vaults.start()
    assert vaults.settled(lambda: len(history(vaults, "savings")), len(before) + 1) == len(before) + 1, vaults.log()


def touch_a_row(vaults: Vaults, table: str) -> None:
    """An event of a row that is there: accounts were closed by tests before."""
    vaults.execute(f"UPDATE {table} SET balance = balance WHERE id = (SELECT min(id) FROM {table})")


def kept_by_key(vaults: Vaults, table: str, former: str, other: str) -> None:
    """After ``apply``: the table's history holds what is there, what was is under its former key, the other goes on."""

    def shown() -> dict[int, int]:
        with suppress(SinkRefused):  # for a moment there is none
            return {row["id"]: row["balance"] for row in history(vaults, table) if row["_hw_op"] != "delete"}
        return {}

    wanted, others = held(vaults, table), len(history(vaults, other))
    assert vaults.settled(shown, wanted) == wanted, vaults.log()
    vaults.execute(f"UPDATE {other} SET balance = balance WHERE id = 4")
    assert vaults.settled(lambda: len(history(vaults, other)), others + 1) == others + 1, vaults.log()
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        assert catalog.table_exists((NAMESPACE, f"{table}_history_by_{former}"))
    [sink] = vaults.status()["sinks"]
    assert sink["history"]["last_error"] is None
    assert {one["table"] for one in cuts.cut(vaults)["tables"]} == {"public.checking", "public.savings"}


def test_another_key_begins_one_tables_history_anew_and_no_other(vaults: Vaults) -> None:
    named = vaults.as_of("--tag", "old_key")
    before, others = history(vaults, "savings"), len(history(vaults, "checking"))
    vaults.execute("ALTER TABLE savings DROP CONSTRAINT savings_pkey, ADD PRIMARY KEY (id, branch)")
    touch_a_row(vaults, "checking")
    vaults.run("apply", "--wait")
    assert vaults.settled(lambda: len(history(vaults, "checking")), others + 1) == others + 1, vaults.log()
    kept_by_key(vaults, "savings", "id", "checking")
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        former = catalog.load_table((NAMESPACE, "savings_history_by_id")).scan().to_arrow().to_pylist()
    assert sorted(row["_hw_offset"] for row in former) == sorted(row["_hw_offset"] for row in before)
    assert "there is a cut old_key already" in vaults.run_error("as-of", "--tag", "old_key")
    again = vaults.as_of("--cut", "old_key")  # a name is a promise: it is read where it was given
    assert cuts.by_duckdb([again]) == cuts.by_duckdb([named]) == cuts.by_pyiceberg([again])
    assert "savings_history_by_id" in {one["history"].split(".")[-1] for one in again["tables"]}
    vaults.run("as-of", "--drop", "old_key")
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        assert set(catalog.load_table((NAMESPACE, "savings_history_by_id")).refs()) == {"main"}


def test_a_key_of_another_type_begins_one_tables_history_anew(vaults: Vaults) -> None:
    """Of all rows of before the key was null: each earlier cut showed one row, and each later one a row too many."""
    named = vaults.as_of("--tag", "old_type")
    vaults.execute("ALTER TABLE checking ALTER COLUMN id TYPE text USING 'no' || id")
    touch_a_row(vaults, "checking")
    vaults.run("apply", "--wait")

    def shown() -> dict[Any, int]:
        with suppress(SinkRefused):
            return {row["id"]: row["balance"] for row in history(vaults, "checking") if row["_hw_op"] != "delete"}
        return {}

    wanted = held(vaults, "checking")
    assert vaults.settled(shown, wanted) == wanted, vaults.log()
    report = cuts.cut(vaults, wait=120.0)
    texts = {one["table"]: one["sql"]["duckdb"] for one in report["tables"]}
    assert dict(rows_by_duckdb(f"SELECT id, balance FROM ({texts['public.checking']})")) == wanted
    with pytest.raises(BeforeHistory, match=r"the history of public\.checking begins at"):
        cuts.cut(vaults, unpack(named["cut"])[1])
    again = vaults.as_of("--cut", "old_type")
    assert cuts.by_duckdb([again]) == cuts.by_duckdb([named])
    with iceberg.open_catalog(cuts.pipeline_of(vaults).sinks[SINK], CATALOG) as catalog:
        former = catalog.load_table((NAMESPACE, "checking_history_by_id")).scan().to_arrow().to_pylist()
    assert {type(row["id"]) for row in former} == {int}
    vaults.run("as-of", "--drop", "old_type")
