"""The rule of a cut, and the rows of history, without a server."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException

from cdc.catalogue import Column, Table
from cdc.errors import ShapeUnknown
from cdc.records.debezium_json import Fit
from cdc.records.encoding import JSON
from cdc.records.history import (
    AFTER,
    OP,
    POSITION,
    after_of,
    as_of_sql,
    begins_at,
    cut_at_lsn,
    cut_at_time,
    cut_behind,
    set_aside,
    versions_sql,
)
from cdc.records.position import parse_lsn
from cdc.view import View
from connectors.snapshots.cut_snapshot import delete_event
from connectors.snapshots.missed_deletes import ghost_event, standing
from console.cli.as_of import command as as_of_command
from operations.as_of.cut import moment_of
from operations.as_of.frontier import newest_beat
from operations.as_of.statements import shown
from spark.reading.spec import FlowSpec
from spark.warehouse.history.rows import HistoryDecoder, Place, PlaceUnknown
from spark.warehouse.history.tables import HistoryPlace, columns_of, follow, former_column, retyped_key
from tests.support.entry_cases import records
from tests.support.histories import Event, state_at

SNAPSHOT, EACH, ACCOUNTS = 1000, 100, 6
TABLE = Table(
    "public",
    "t",
    (Column("id", "integer", "int4", nullable=False, ordinal=1), Column("v", "text", "text", ordinal=2)),
    ("id",),
)


class Source:
    """A bank whose transactions overlap: rows' LSNs of one lie between those of others; streamed in commit order."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.events = [Event(n, "read", SNAPSHOT, SNAPSHOT - 1, n, 0, EACH) for n in range(ACCOUNTS)]
        self.commits: list[tuple[int, dict[int, int]]] = []
        balances, lsn, open_ones = dict.fromkeys(range(ACCOUNTS), EACH), SNAPSHOT - 60, list[list[tuple[int, int]]]()
        before: int | None = None  # the first transaction knows of no commit before it
        offset = ACCOUNTS
        while len(self.commits) < 25:
            lsn += rng.randint(5, 30)
            if len(open_ones) < 3 and rng.random() < 0.4:
                open_ones.append([])
            elif open_ones and rng.random() < 0.7:
                rng.choice(open_ones).append((lsn, rng.randrange(ACCOUNTS)))
            elif open_ones and lsn > SNAPSHOT:
                rows = open_ones.pop(rng.randrange(len(open_ones)))
                if len(rows) < 2:
                    continue
                amounts = [rng.randint(1, 9) for _ in rows[1:]]
                for (at, account), amount in zip(rows, [-sum(amounts), *amounts], strict=True):
                    balances[account] += amount
                    after = SNAPSHOT if before is None else before
                    position = max(at, SNAPSHOT if before is None else before)
                    self.events.append(Event(account, "update", position, after, offset, lsn, balances[account]))
                    offset += 1
                lsn += 8
                before = lsn
                self.commits.append((lsn, dict(balances)))

    def held(self, cut: int) -> dict[int, int]:
        """What the bank held after the last transaction that is in a cut."""
        return next((was for at, was in reversed(self.commits) if at <= cut), dict.fromkeys(range(ACCOUNTS), EACH))


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_at_a_commit_is_what_the_source_held_then(seed: int) -> None:
    source = Source(seed)
    assert state_at(source.events, SNAPSHOT) == dict.fromkeys(range(ACCOUNTS), EACH)
    for commit, held in source.commits:
        assert state_at(source.events, commit) == held


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_anywhere_tears_no_transaction(seed: int) -> None:
    source = Source(seed)
    whole = [dict.fromkeys(range(ACCOUNTS), EACH), *(held for _, held in source.commits)]
    for at in range(SNAPSHOT, source.commits[-1][0] + 50, 5):
        rows = [one for one in source.events if one.op != "read" and one.position >= at > one.after]
        cut = cut_at_lsn(at, [one.after for one in rows])
        found = state_at(source.events, cut)
        assert sum(found.values()) == ACCOUNTS * EACH
        committed = sum(commit <= at for commit, _ in source.commits)
        # Everything that was committed by then is in it, and at most the transaction that was being committed.
        assert found in whole[committed : committed + 2]
        assert not [one for one in rows if one.after < cut], "nothing that was written behind it is in it"


def test_cuts_by_the_rows_own_positions_tear_transactions() -> None:
    source = Source(1)
    totals = set()
    for at in range(SNAPSHOT + 1, source.commits[-1][0], 9):
        torn = [one._replace(after=one.position) for one in source.events]
        totals.add(sum(state_at(torn, at).values()))
    assert len(totals) > 1


def test_a_cut_by_time_ends_before_the_first_that_was_later() -> None:
    assert cut_at_time(900, []) == 900
    assert cut_at_time(900, [950, 700, 800]) == 700
    assert cut_at_time(900, [950]) == 900


def test_where_history_begins() -> None:
    assert begins_at(SNAPSHOT, []) == SNAPSHOT
    assert begins_at(SNAPSHOT, [SNAPSHOT - 1, SNAPSHOT + 50]) == SNAPSHOT, "rows that were read again later"
    assert begins_at(SNAPSHOT, [400, SNAPSHOT - 1]) == SNAPSHOT, "of a snapshot that was interrupted"
    assert begins_at(SNAPSHOT, [SNAPSHOT + 10, SNAPSHOT + 90]) == SNAPSHOT + 91, "captured later"


def source_of(lsn: int | None, sequence: str | None, snapshot: str = "false", tx: int | None = 7) -> dict[str, Any]:
    return {
        "schema": "public",
        "table": "t",
        "lsn": lsn,
        "ts_ms": 5,
        "sequence": sequence,
        "snapshot": snapshot,
        "txId": tx,
    }


def test_the_commit_before_a_row() -> None:
    assert after_of(source_of(60, '["40","60"]'), 0, SNAPSHOT) == 40
    assert after_of(source_of(60, '[null,"60"]'), 0, SNAPSHOT) == SNAPSHOT
    assert after_of(source_of(SNAPSHOT, f'[null,"{SNAPSHOT}"]', "true"), 0, SNAPSHOT) == SNAPSHOT - 1
    assert after_of(source_of(None, '["90","90"]', "incremental"), 0, SNAPSHOT) == 89
    assert after_of(source_of(60, '["40","60"]'), 1 << 52, SNAPSHOT) == 1 << 52 | 40


def event(key: int, value: str | None, lsn: int, op: str = "u", **more: Any) -> tuple[bytes, bytes]:
    after = None if op == "d" else {"id": key, "v": value, **more.pop("columns", {})}
    source = source_of(lsn, f'["{lsn - 5}","{lsn}"]', more.get("snapshot", "false"))
    return orjson.dumps({"id": key}), orjson.dumps({"op": op, "source": source, "after": after})


def rows(
    *pairs: tuple[bytes | None, bytes | None],
    starts: dict[int, int] | None = None,
    begins: int = 0,
    held: dict[int, Place] | None = None,
    first: int = 0,
    **more: Any,
) -> list[Any]:
    view = View.identity(TABLE, TABLE.qualified)
    spec = FlowSpec("s", {view.name: view}, {"p.public.t": (view.name,)}, {"p.public.t": TABLE}, {}, {}, **more)
    decoder = HistoryDecoder(spec, "system", starts or {}, begins, held)
    found: list[Any] = pa.Table.from_batches([decoder.decode(records(*pairs, first=first)), decoder.rest()]).to_pylist()
    return found


def test_every_event_of_a_row_is_kept_and_a_deletes_own_tombstone_is_not() -> None:
    key, value = event(1, None, 60, "d")
    found = rows(event(1, "a", 40, "c"), event(1, "b", 50), (key, value), (key, None), event(1, "c", 70, "c"))
    assert [(one[OP], one["v"]) for one in found] == [
        ("insert", "a"),
        ("update", "b"),
        ("delete", None),
        ("insert", "c"),
    ]
    assert [one[AFTER] for one in found] == [35, 45, 55, 65]
    assert {one["_hw_tx"] for one in found} == {7}
    assert [one["_hw_offset"] for one in found] == [0, 1, 2, 4]


def test_a_tombstone_whose_delete_was_compacted_away_is_a_delete() -> None:
    key, _ = event(1, "a", 1)
    found = rows(event(2, "b", 50), event(2, "c", 60), (key, None))
    assert [(one["id"], one[OP], one[AFTER]) for one in found][-1] == (1, "delete", 55)


@pytest.mark.parametrize("before", [True, False])
def test_a_bare_tombstone_under_a_key_of_another_type_ends_nothing(before: bool) -> None:
    """Compaction had left it alone of a row that was deleted before the key's type was changed: nothing was written of
    any table of the sink, at each start again."""
    old = (orjson.dumps({"id": "abc"}), None)
    row = event(1, "a", 150, "c")
    found = rows(*((old, row) if before else (row, old)), begins=100)
    assert [one["id"] for one in found] == [1]


def test_a_tombstone_that_a_slice_begins_with_is_behind_what_its_row_was() -> None:
    key, _ = event(1, "a", 1)
    known = [Event(1, "insert", 40, 35, 0, 0, "a")]
    found = rows(*[(key, None)] * 9, event(2, "c", 60), starts={0: 1})
    assert [one["_hw_offset"] for one in found] == [9, *range(9)], "the first, too: its delete may be compacted away"
    assert state_at([*known, *map(as_event, found)], 56) == {2: "c"}
    again = [as_event(row) for row in rows(*[(key, None)] * 4, event(1, "b", 60, "c"), starts={0: 1})]
    assert state_at([*known, *again], 56) == {1: "b"}


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("back", [True, False])
def test_a_tombstone_that_a_slice_begins_with_is_a_delete_whatever_the_slice_before_had(
    compacted: bool, back: bool
) -> None:
    """It was taken for that of a delete which had been read: where compaction had taken that, its row stayed for good.
    A second delete of a row that is gone changes no cut and no version."""
    key, gone = event(1, None, 50, "d")
    before = rows(event(1, "a", 40, "c"), *[(key, gone)][compacted:])
    slice_ = [(key, None), *[event(1, "c", 70, "c")][: int(back)], event(2, "b", 80)]
    found = rows(*slice_, starts={0: 2}, first=2)
    assert [one["_hw_offset"] for one in found if one["id"] == 1 and one[OP] == "delete"] == [2]
    with_it, without = [*before, *found], [*before, *(one for one in found if one[OP] != "delete")]
    newest = {1: "c", 2: "b"} if back else {2: "b"}
    assert state_at(map(as_event, with_it), 1000) == newest
    assert [one["is_current"] for one in versions_of(with_it)] == [False, *[True] * len(newest)]
    if not compacted:
        for cut in range(30, 100):
            assert state_at(map(as_event, with_it), cut) == state_at(map(as_event, without), cut)
        assert versions_of(with_it) == versions_of(without)


def test_rows_whose_tombstones_alone_are_left_of_a_purge_are_gone() -> None:
    """They stood at position 0, before the rows that they end: every later cut had those again, for good."""
    before = rows(event(1, "a", 40, "c"), event(2, "b", 50, "c"), event(3, "c", 60, "c"))
    purge = [(event(key, None, 1)[0], None) for key in (1, 3)]
    with pytest.raises(PlaceUnknown):
        rows(*purge, starts={0: 3}, first=4)
    held = {0: Place(60, 55, 5000)}
    found = rows(*purge, starts={0: 3}, first=4, held=held)
    assert [(one[OP], one["_hw_position"], one[AFTER], one["_hw_offset"]) for one in found] == [
        ("delete", 60, 56, 4),
        ("delete", 60, 56, 5),
    ]
    events = [as_event(row) for row in (*before, *found)]
    assert state_at(events, 57) == {2: "b"}
    assert state_at(events, 56) == {1: "a", 2: "b", 3: "c"}, "a cut that has all of before the slice, and no more"
    assert [row["id"] for row in versions_of([*before, *found]) if row["is_current"]] == [2]
    later = rows(event(1, "again", 70, "c"), starts={0: 6}, first=6)
    assert state_at([*events, *map(as_event, later)], 1000) == {1: "again", 2: "b"}


def test_tombstones_of_a_partition_of_which_nothing_is_held_say_nothing() -> None:
    key, _ = event(1, None, 1)
    assert rows((key, None)) == rows((key, None), starts={0: 0}) == [], "the log is read from its beginning"
    assert rows((key, None), starts={0: 5}, first=5, held={}) == []


def test_a_delete_that_was_found_late_gives_no_tombstone_its_place() -> None:
    """It stands where its own row was last, which is long past, and a delete there would come before the row."""
    before = [event(1, "a", 40, "c"), event(2, "b", 5000, "c")]
    source = orjson.loads(before[0][1])["source"]
    ghost = (before[0][0], orjson.dumps(ghost_event(source, standing(source).decode(), 500, 20_000)))
    gone = (event(2, None, 1)[0], None)
    for found in (
        rows(*before, ghost, gone),
        [*rows(*before), *rows(ghost, gone, starts={0: 2}, first=2, held={0: Place(5000, 4995, 5000)})],
        [*rows(*before), *rows(gone, ghost, event(3, "c", 30_000), starts={0: 2}, first=2)],
    ):
        assert state_at(map(as_event, found), 40_000).keys() <= {3}
        assert set(state_at(map(as_event, found), 20_000)) == {1, 2}, "none knows when"


def versions_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.register("history", pa.Table.from_pylist(found))
        told = versions_sql(["id", "v"], ["id"], "history")
        shown: list[dict[str, Any]] = (
            connection.execute(f"FROM ({told}) ORDER BY id, {POSITION}").to_arrow_table().to_pylist()
        )
    return shown


def as_event(row: dict[str, Any]) -> Event:
    at = 0 if row["_hw_commit_time"] is None else int(row["_hw_commit_time"].timestamp() * 1000)
    return Event(row["id"], row[OP], row["_hw_position"], row[AFTER], row["_hw_offset"], at, row["v"])


def test_a_delete_that_is_found_late_changes_no_cut_that_was_made_before() -> None:
    """Rows 1 and 2 were deleted while the slot was lost, behind 9,000; a sweep finds it when the log is at 20,000."""
    read = orjson.loads(event(1, "a", SNAPSHOT, "r", snapshot="true")[1])
    read["source"] |= {"sequence": f'[null,"{SNAPSHOT}"]', "ts_ms": 10}
    was = [(event(1, "a", SNAPSHOT)[0], orjson.dumps(read)), event(2, "b", 5000), event(3, "c", 9000, "c")]
    sources = [read["source"], orjson.loads(was[1][1])["source"]]
    found = [ghost_event(source, standing(source).decode(), 500, 20_000) for source in sources]
    deletes = [(event(key, None, 1)[0], orjson.dumps(one)) for key, one in enumerate(found, 1)]
    before, behind = ([as_event(row) for row in rows(*pairs, snapshot_lsn=SNAPSHOT)] for pairs in (was, was + deletes))
    assert [one["_hw_tx"] for one in rows(*was, *deletes, snapshot_lsn=SNAPSHOT)] == [None, 7, 7, None, None]
    for cut in (SNAPSHOT, 2000, 7000, 10_000, 20_000):
        assert state_at(behind, cut) == state_at(before, cut)
    assert state_at(behind, 20_001) == {3: "c"}
    later = [one.after for one in behind if one.op != "read" and one.commit_us > 100]
    assert cut_at_time(30_000, later) == 20_000, "a moment before the sweep is not the beginning of history"


def test_what_an_interrupted_snapshot_had_read_is_in_no_cut() -> None:
    read = orjson.loads(event(1, "a", SNAPSHOT - 50, "r", snapshot="true")[1])
    swept = delete_event(read["source"], SNAPSHOT, 500)
    pairs = [(event(1, "a", 1)[0], orjson.dumps(one)) for one in (read, swept)]
    found = [as_event(row) for row in rows(*pairs, snapshot_lsn=SNAPSHOT)]
    assert state_at(found, SNAPSHOT) == {}
    assert found[1].commit_us <= 5, "no moment is before it"


def test_a_column_that_nobody_knows_yet_stops_the_batch() -> None:
    fits = {"p.public.t": Fit(45, frozenset({"id", "v"}), all_columns=True)}
    with pytest.raises(ShapeUnknown, match="has colour besides"):
        rows(event(1, "a", 50, columns={"colour": "red"}), fits=fits)


def test_the_printed_sql_gives_what_the_rule_says() -> None:
    source = Source(3)
    cut = source.commits[20][0]
    table = pa.table(
        {
            "id": [one.key for one in source.events],
            "balance": [one.row for one in source.events],
            OP: [one.op for one in source.events],
            "_hw_position": [one.position for one in source.events],
            AFTER: [one.after for one in source.events],
            "_hw_offset": [one.offset for one in source.events],
            "_hw_tx": [0 for _ in source.events],
            "_hw_commit_time": [one.commit_us for one in source.events],
        }
    )
    with duckdb.connect() as connection:
        connection.register("history", table)
        shown = connection.execute(as_of_sql(["id", "balance"], ["id"], "history", cut)).fetchall()
        versions = connection.execute(versions_sql(["id", "balance"], ["id"], "history")).fetchall()
    assert dict(shown) == state_at(source.events, cut) == source.commits[20][1]
    assert {row[0]: row[1] for row in versions if row[4]} == source.commits[-1][1]
    assert len(versions) == len(source.events)


def test_versions_of_a_table_that_has_such_columns_itself_are_told_by_other_names() -> None:
    """Iceberg refused the view, and the history of all tables with it; DuckDB gave the column of ours another name."""
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE history AS SELECT 1 AS id, 'mine' AS \"Valid_From\", true AS is_current, 'insert' AS {OP}, "
            f"7 AS _hw_position, 5 AS {AFTER}, 0 AS _hw_offset, 9 AS _hw_tx, 50 AS _hw_commit_time"
        )
        found = connection.execute(versions_sql(["id", "Valid_From", "is_current"], ["id"], "history"))
        [names] = [[column[0] for column in found.description]]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    assert names[:6] == ["id", "Valid_From", "is_current", "_hw_valid_from", "valid_to", "_hw_is_current"]
    assert [(row["Valid_From"], row["_hw_valid_from"], row["valid_to"]) for row in rows] == [("mine", 50, None)]


def test_names_are_quoted() -> None:
    assert '"a""b"' in as_of_sql(['a"b'], ['a"b'], "t", 1)
    assert "`a``b`" in as_of_sql(["a`b"], ["a`b"], "t", 1, "`")


def test_the_frontier_is_the_commit_before_the_newest_heartbeat() -> None:
    beats = [orjson.dumps({"op": "u", "source": source_of(at + 5, f'["{at}","{at + 5}"]')}) for at in (100, 200)]
    first = orjson.dumps({"op": "r", "source": source_of(50, '[null,"50"]', "true")})
    found = newest_beat([first, *beats, None], JSON, SNAPSHOT)
    assert found is not None and found.after == 200
    assert newest_beat([first], JSON, SNAPSHOT) is None


def test_a_column_of_a_former_type_is_put_aside_under_a_name_of_its_own() -> None:
    assert former_column("price", "decimal(10,2)", {}) == "price__decimal_10_2"
    assert former_column("v", "int", {"v__int": "int"}) == "v__int_2"
    assert set_aside(["id", "price", "price__decimal_10_2", "v"]) == {"price": ["price__decimal_10_2"]}


def test_what_opens_a_catalogue_is_printed_without_its_secrets() -> None:
    properties = {
        "uri": "postgresql+psycopg://me:hidden@host/db",
        "warehouse": "s3://lake/x",
        "token": "hidden",
        "credential": "id:hidden",
        "s3.access-key-id": "hidden",
        "s3.secret-access-key": "hidden",
        "s3.session-token": "hidden",
        "s3.region": "eu",
    }
    found = shown(properties)
    assert "hidden" not in str(found)
    assert set(found) == {"uri", "warehouse", "s3.region"}


@pytest.mark.parametrize(
    "more", [("--tag", ""), ("--tag", "a\nb"), ("--tag", "a", "--list"), ("--tag", "a", "--drop", "b")]
)
def test_a_name_that_can_not_be_typed_and_one_for_nothing_are_refused(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "p.yaml").write_text("no pipeline: nothing of it is looked at")
    told = CliRunner().invoke(as_of_command, [str(tmp_path / "p.yaml"), *more])
    assert (told.exit_code, "--tag" in told.output) == (2, True)


@pytest.mark.parametrize("text", ["-1/0", "1/FFFFFFFFF", " 0/1", "0x1/0", "1_0/0", "0", "", "/1"])
def test_what_is_no_position_is_not_taken_for_another_one(text: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        parse_lsn(text)


def test_a_cut_behind_a_transaction_ends_where_the_next_one_begins() -> None:
    assert cut_behind(10, 90, [10, 30, 20, 95]) == 20
    assert cut_behind(10, 90, [5, 10, 95]) == 90


def test_a_moment_is_one_in_utc() -> None:
    assert moment_of("1970-01-01T01:00:00+01:00") == moment_of("1970-01-01") == 0
    for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        with pytest.raises(ValueError, match="no moment in UTC"):
            moment_of(text)


@pytest.mark.parametrize(
    "refused",
    [
        UnsupportedOperationException("Server does not support endpoint: POST views"),
        AnalysisException("Table with same name already exists"),
    ],
)
def test_history_goes_on_in_a_catalogue_that_refuses_its_view(
    refused: PySparkException, caplog: pytest.LogCaptureFixture
) -> None:
    def sql(text: str) -> None:
        assert text.startswith("CREATE OR REPLACE VIEW")
        raise refused

    spark = cast(Any, SimpleNamespace(sql=sql, table=lambda _name: SimpleNamespace(schema=[])))
    view = View.identity(Table("public", "t", (Column("id", "int4", "int4"),), ("id",)))
    HistoryPlace("c", "n", "s", 1)._show_versions(spark, view)
    assert "`t_versions` is not made" in caplog.text


@pytest.mark.parametrize(
    ("there", "wanted", "anew"),
    [
        ("int", "string", True), ("decimal(8,0)", "decimal(10,2)", True), ("timestamp_ntz", "timestamp", True),
        ("int", "bigint", False), ("decimal(8,2)", "decimal(10,2)", False), ("string", "string", False),
    ],
)  # fmt: skip
def test_a_key_that_can_not_become_of_its_new_type_is_another_one(there: str, wanted: str, anew: bool) -> None:
    """Of all rows of before it was null: the columns beside it do not matter."""
    found = retyped_key(["a", "id", "gone"], {"id": there, "a": "int", "b": "int"}, {"id": wanted, "a": "int"})
    assert found == (["id"] if anew else [])


def test_what_is_older_than_a_history_that_was_begun_anew_is_not_in_it() -> None:
    """Of a row under its former key no record tells that it is gone."""
    key, value = event(1, None, 60, "d")
    old = (event(1, "a", 40, "c"), event(3, "a", 50), (key, value), (key, None))
    found = rows(*old, event(7, "b", 90, snapshot="incremental"), event(7, "c", 100), begins=80)
    assert [(one["id"], one["v"]) for one in found] == [(7, "b"), (7, "c")]
    assert len(rows(*old)) == 3


def test_a_small_integer_is_not_put_aside_at_each_start() -> None:
    """Iceberg keeps a smallint as an int. Held against that, a part of a key was of another type at each start:
    cuts had NULL in its place, and the rows of before as if they were other ones."""
    columns = (
        Column("leg", "smallint", "int2", nullable=False, ordinal=1),
        Column("seats", "smallint[]", "int2", array=True, ordinal=2),
    )
    view = View("legs", Table("public", "legs", columns, ("leg",)), ("leg",), (("leg", "leg"), ("seats", "seats")))
    assert [columns_of(view)[name] for name in ("leg", "seats")] == ["int", "array<int>"]
    there = [SimpleNamespace(name=name, dataType=_Kind(kind)) for name, kind in columns_of(view).items()]
    said: list[str] = []
    spark: Any = SimpleNamespace(table=lambda _name: SimpleNamespace(schema=there), sql=said.append)
    assert (follow(spark, "ship.legs_history", view, {}), said) == (False, [])


class _Kind:
    """A column's type as Spark tells it of a table."""

    def __init__(self, kind: str) -> None:
        self.simpleString = lambda: kind
