"""A table and its topic's tail as one: what a query shows is what the next merge would leave."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import orjson
import pyarrow as pa
import pytest

from cdc.catalogue import Column, Table
from cdc.errors import QueryRefused
from cdc.view import View
from operations.query.tables import Name
from operations.query.tail import refuse_unfit
from operations.query.uniting import GONE, WINS, key_columns, tail_table, united
from operations.records.standing import Standing
from sinks.contract import UNVERSIONED
from sinks.iceberg.numbers import NUMBERS, NUMBERS_OF
from spark.reading.entries import Entry, EntryDecoder
from tests.support.entry_cases import SPEC, TABLE, event, records
from tests.support.folds import view_of

VIEW = View.identity(TABLE)
COLUMNS = ("id", "v", "_hw_version")
Row = tuple[int, str | None, int | None]


def entry(
    key: int, version: int, value: str | None, offset: int = 0, *, gone: bool = False, partition: int = 0
) -> Entry:
    document = None if gone else b"{}"
    return Entry("t", str(key), version, document, "p.public.t", partition, offset, 0, (key, None if gone else value))


def stand(entries: Iterable[Entry]) -> list[Entry]:
    standing = Standing[Entry](lambda entry: entry)
    standing.add(entries)
    return [*standing.by_key().values()]


def both(
    committed: list[Row],
    *entries: Entry,
    view: View = VIEW,
    columns: tuple[str, ...] = COLUMNS,
    said: dict[str, str] | None = None,
) -> list[Any]:
    """What a query sees, sorted."""
    standing = stand(entries)
    kinds: dict[str, Any] = {"id": pa.int32(), "v": pa.string(), "_hw_version": pa.int64()}
    values = zip(*committed, strict=True) if committed else ([], [], [])
    table = pa.table([pa.array(one, kind) for one, kind in zip(values, kinds.values(), strict=True)], list(columns))
    with duckdb.connect() as connection:
        connection.register("held", table)
        connection.register("tail", rows := tail_table(view, standing, columns, said))
        listed = [name for name in rows.column_names if name not in (GONE, WINS)]
        keys = key_columns(view, columns, said)
        return sorted(connection.execute(united("held", "tail", keys, listed)).fetchall())


HELD: list[Row] = [(1, "one", 10), (2, "two", 20), (3, "three", 30)]


@pytest.mark.parametrize(
    ("entries", "seen"),
    [
        ([], HELD),
        ([entry(2, 21, "newer")], [HELD[0], (2, "newer", 21), HELD[2]]),
        ([entry(2, 20, "the same position again")], [HELD[0], (2, "the same position again", 20), HELD[2]]),
        ([entry(2, 19, "older")], HELD),
        ([entry(4, 5, "new")], [*HELD, (4, "new", 5)]),
        ([entry(2, 21, None, gone=True)], [HELD[0], HELD[2]]),
        ([entry(2, 19, None, gone=True)], HELD),
        ([entry(2, UNVERSIONED, None, gone=True)], [HELD[0], HELD[2]]),
        ([entry(9, 21, None, gone=True)], HELD),
        ([entry(2, 22, "last", 2), entry(2, 21, "first", 1)], [HELD[0], (2, "last", 22), HELD[2]]),
        ([entry(2, 22, "first", 1), entry(2, 22, "last", 2)], [HELD[0], (2, "last", 22), HELD[2]]),
        ([entry(2, 22, "again", 1), entry(2, UNVERSIONED, None, 2, gone=True)], [HELD[0], HELD[2]]),
        ([entry(2, UNVERSIONED, None, 1, gone=True), entry(2, 22, "again", 2)], [HELD[0], (2, "again", 22), HELD[2]]),
        (
            [entry(2, 22, "elsewhere", 1, partition=1), entry(2, UNVERSIONED, None, 2, gone=True)],
            [HELD[0], (2, "elsewhere", 22), HELD[2]],
        ),
        # A key that was changed: the old one's delete and the new one's row.
        ([entry(2, 25, None, gone=True), entry(7, 25, "two")], [HELD[0], HELD[2], (7, "two", 25)]),
    ],
)
def test_a_tail_does_what_the_next_merge_would(entries: list[Entry], seen: list[Row]) -> None:
    assert both(HELD, *entries) == seen


def test_a_row_without_a_version_is_somebody_elses() -> None:
    strange: list[Row] = [(1, "planted", None)]
    assert both(strange, entry(1, 50, "ours")) == strange
    assert both(strange, entry(1, UNVERSIONED, None, gone=True)) == []


def test_a_table_of_nothing_is_its_tail() -> None:
    assert both([], entry(1, 5, "a"), entry(2, 6, None, gone=True)) == [(1, "a", 5)]


def merged(committed: list[Row], standing: list[Entry]) -> list[Row]:
    """MERGE as ``spark.warehouse.merge.merge_statement`` says it, row by row."""
    table = {row[0]: row for row in committed}
    for one in standing:
        assert one.row is not None
        key, there = one.row[0], table.get(one.row[0])
        gone, newer = one.document is None, there is not None and one.version >= (there[2] or 0)
        if there is None and not gone:
            table[key] = (key, one.row[1], one.version)
        elif there is not None and gone and (newer or one.version == UNVERSIONED):
            del table[key]
        elif newer and not gone:
            table[key] = (key, one.row[1], one.version)
    return sorted(table.values())


@pytest.mark.parametrize("seed", range(20))
def test_chance_finds_no_difference_from_a_merge(seed: int) -> None:
    rng = random.Random(seed)
    held: list[Row] = [(key, "held", rng.randrange(20)) for key in range(12) if rng.random() < 0.7]
    entries = []
    for offset in range(rng.randrange(1, 30)):
        key, version, gone = rng.randrange(14), rng.randrange(20), rng.random() < 0.4
        version = UNVERSIONED if gone and rng.random() < 0.4 else version
        entries.append(entry(key, version, f"at {offset}", offset, gone=gone))
    standing = stand(entries)
    assert both(held, *entries) == merged(held, standing)


def test_records_become_rows_and_a_tombstone_without_its_event_a_delete() -> None:
    key = orjson.dumps({"id": 3})
    pairs = [event(1, "new", 50), event(2, None, 51, "d"), (orjson.dumps({"id": 2}), None), (key, None)]
    found = EntryDecoder(SPEC, typed=True).decode(records(*pairs))
    assert both(HELD, *found.entries) == [(1, "new", 50)]


def test_the_tail_is_given_in_the_tables_columns() -> None:
    """A table follows its columns with its next merge: until then it has what it has."""
    renamed = replace(
        TABLE, columns=(*TABLE.columns, Column("more", "text", "text", ordinal=3)), renamed=(("was", "v"),)
    )
    view = View.identity(renamed)
    wide = entry(1, 11, "x")._replace(row=(1, "x", "m"))
    assert both(HELD[:1], wide, view=view, columns=("id", "was", "_hw_version")) == [(1, "x", 11)]
    assert both(HELD[:1], entry(1, 11, "x"), columns=("id", "gone", "_hw_version")) == [(1, None, 11)]


def test_a_tail_is_given_by_numbers_where_a_name_is_another_columns_by_now() -> None:
    """A paused warehouse's rows had the former column's values under a name, and its tail's the new one's."""
    key, held = TABLE.columns
    anew = replace(held, ordinal=9)
    said = {NUMBERS: json.dumps({one.name: one.ordinal for one in TABLE.columns})}
    renamed = View.identity(replace(TABLE, columns=(key, replace(held, name="w"), anew)))
    wide = entry(1, 11, "x")._replace(row=(1, "of w", "of v"))
    assert both(HELD[:1], wide, view=renamed, said=said) == [(1, "of w", 11)]
    assert both(HELD[:1], wide, view=renamed) == [(1, "of v", 11)], "of an older version's nothing else is known"
    again = View.identity(replace(TABLE, columns=(key, anew)))
    assert both(HELD[:1], entry(1, 11, "x"), view=again, said=said) == [(1, None, 11)]
    other = View.identity(replace(TABLE, columns=(key, anew), oid=8))
    assert both(HELD[:1], entry(1, 11, "x"), view=other, said={**said, NUMBERS_OF: "7"}) == [(1, "x", 11)]


def test_views_that_need_spark_are_named() -> None:
    held = cast(Any, SimpleNamespace(name=Name("lake", "t")))
    refuse_unfit(held, VIEW)
    for view in (replace(VIEW, where="id > 1"), replace(VIEW, fields={"x": "id + 1"})):
        with pytest.raises(QueryRefused, match=r"t can't be asked .* has Spark SQL"):
            refuse_unfit(held, view)


def test_what_is_made_of_events_is_not_asked_with_what_is_newer() -> None:
    held = cast(Any, SimpleNamespace(name=Name("lake", "account")))
    with pytest.raises(QueryRefused, match=r"account can't be asked .* the view is folded from events"):
        refuse_unfit(held, view_of("events"))


def test_a_tables_type_stays_when_its_column_was_widened() -> None:
    wide = Table("public", "t", (Column("id", "bigint", "int8", nullable=False, ordinal=1), TABLE.columns[1]), ("id",))
    assert both(HELD[:1], entry(1 << 40, 11, "x"), view=View.identity(wide)) == [HELD[0], (1 << 40, "x", 11)]


def test_columns_may_have_any_name() -> None:
    with duckdb.connect() as connection:
        rows = "SELECT 1 AS id, {'id': 7} AS s, {'id': 8} AS t, 5::BIGINT AS _hw_version"
        connection.execute(f"CREATE TABLE held AS {rows}")
        connection.execute(f"CREATE TABLE tail AS SELECT *, 9 AS {WINS}, false AS {GONE} FROM ({rows})")
        sql = united("held", "tail", ["id"], ["id", "s", "t", "_hw_version"])
        assert connection.execute(sql).fetchall() == [(1, {"id": 7}, {"id": 8}, 5)]
