"""Rows as they were: what a file may say, what is stored, and which version stands where."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.errors import PipelineFileError
from cdc.join.incoming import RowMaker
from cdc.join.versions import by_time, shown
from cdc.records.change import Change, Op
from cdc.records.debezium_json import Decoder
from connectors.snapshots.missed_deletes import ghost_event
from connectors.topics import FOR_EVER, data_topics
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from spark.join.records import RecordReader
from spark.join.stage import _Refused
from spark.join.task import Task
from spark.reading.spec import FlowSpec
from tests.support.join_cases import CATALOGUE, pipeline, resolve, said
from truth.joins import used_columns
from truth.versions import MISSED, Logged, history

AIRLINE = "airline: {table: airlines, on: {carrier: carrier}, as_of: time_hour}"


def test_it_is_resolved_and_laid_out() -> None:
    view = resolve("flights", f"refs: {{{AIRLINE}}}")
    (airline,) = view.tree.refs
    assert airline.as_of == "time_hour" and view.tree.versioned() == {"public.airlines"}
    layout = view.layout
    found = layout.as_of(("airline",))
    assert found is not None and layout.as_of(()) is None
    dated, versions = found
    assert (dated.index.table, dated.index.columns, dated.order.column) == (
        "public.flights",
        ("carrier",),
        "time_hour",
    )
    assert (versions.index.table, versions.index.columns) == ("public.airlines", ("carrier",))
    assert layout.tables["public.airlines"].versions and not layout.tables["public.flights"].versions
    assert {"dated", "versions"} <= layout.description().keys()
    plain = resolve("flights", "refs: {airline: {table: airlines, on: {carrier: carrier}}}").layout
    # A store of before has no such parts, and must be taken for the same.
    assert not {"dated", "versions"} & plain.description().keys()


@pytest.mark.parametrize(
    ("root", "joins", "message"),
    [
        ("flights", "refs: {a: {table: airlines, on: {carrier: carrier}, as_of: dest}}", "column dest of public.flights is of type string, which is no moment"),
        ("flights", "refs: {a: {table: airlines, on: {carrier: carrier}, as_of: nope}}", "nope"),
        ("loans", "refs: {b: {table: books, on: {book: isbn}, as_of: titled}}", "which is no moment"),
        ("flights", f"refs: {{{AIRLINE}, now: {{table: airlines, on: {{dest: carrier}}}}}}", "public.airlines is shown as it was in `airline`, and the view has it a second time"),
        ("flights", f"refs: {{{AIRLINE[:-1]}, refs: {{p: {{table: airlines, on: {{parent: carrier}}}}}}}}}}", "nothing hangs below a row that is shown as it was, and here are refs"),
        ("airlines", "children: {f: {table: flights, on: {carrier: carrier}, as_of: time_hour}}", "unknown key 'as_of'"),
    ],
)  # fmt: skip
def test_what_it_can_not_be(root: str, joins: str, message: str) -> None:
    assert message in said(root, joins)


def test_it_is_found_by_the_primary_key() -> None:
    with pytest.raises(PipelineFileError) as caught:
        resolve("flights", "refs: {b: {table: books, on: {tailnum: isbn}, as_of: time_hour}}")
    assert "found by its primary key, (id)" in str(caught.value)


def test_a_table_that_is_there_twice_is_refused_where_it_is_said() -> None:
    told = said("flights", f"refs: {{{AIRLINE},\n      now: {{table: airlines, on: {{dest: carrier}}}}}}")
    assert told.startswith(f"p.yaml:10:{len('    refs: {') + AIRLINE.index('time_hour') + 1}: ")


def test_its_topic_is_kept_whole() -> None:
    made = {topic.name: topic.config for topic in data_topics(pipeline("flights", f"refs: {{{AIRLINE}}}"), CATALOGUE)}
    kept = {name for name, config in made.items() if config["min.compaction.lag.ms"] == FOR_EVER}
    assert {name.rpartition(".")[2] for name in kept} == {"airlines"}


def _change(op: Op, name: str | None, position: int, ts_ms: int) -> Change:
    after: dict[str, Any] | None = None if name is None else {"carrier": "AA", "name": name, "parent": None}
    change = Change("public.airlines", op, {"carrier": "AA"}, after, position, "t", 0, position, ts_ms)
    return change._replace(snapshot=op is Op.READ)


def test_each_change_is_a_version_and_the_right_one_is_shown() -> None:
    layout = resolve("flights", f"refs: {{{AIRLINE}}}").layout.tables["public.airlines"]
    maker = RowMaker(layout)
    changes = [
        _change(Op.CREATE, "one", 1, 10),
        _change(Op.UPDATE, "two", 2, 20),
        _change(Op.UPDATE, "three", 3, 20),
        _change(Op.DELETE, None, 4, 30),
    ]
    made = [maker.make(change) for change in changes]
    assert len({one.key for one in made}) == 4
    assert sorted((one.key for one in made), key=by_time) == [one.key for one in made]
    rows = [one.row for one in made if one.row is not None]
    assert len(rows) == 4  # the deletion too
    name = layout.columns.index("name")

    def at(*held: list[Any], moment: float) -> Any:
        found = shown(layout, held, moment)
        return found and found[name]

    assert at(rows[0], moment=9_999) is None  # before it was created
    assert at(rows[0], moment=10_000) == "one"
    assert at(rows[1], rows[2], moment=25_000) == "three"
    assert at(rows[3], moment=30_000) is None
    assert at(moment=0) is None
    read = maker.make(_change(Op.READ, "read", 1, 10)).row
    assert read is not None and at(read, moment=0) == "read"


# -- the engine and the second opinion on the same log -----------------------------------------------------------------


def _both(changes: list[Change], moments: list[str | None]) -> list[Any]:
    """What flights of these moments show as the airline's name, by the engine and by the truth, which must agree."""
    view = resolve(
        "flights",
        "columns: [id]\n    refs: {airline: {table: airlines, on: {carrier: carrier}, as_of: time_hour, value: name}}",
    )
    store = MemoryStore()
    joiner = Joiner(view, store)
    makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
    flights = [
        Change("public.flights", Op.CREATE, {"id": n}, {"id": n, "carrier": "AA", "time_hour": at}, 1, "f", 0, n, 1)
        for n, at in enumerate(moments)
    ]
    for change in (*flights, *changes):
        task = Task(1, 1)
        made = [
            one for piece in joiner.process([makers[change.table].make(change)], task, pytest.fail) for one in piece
        ]
        assert made or change.table == "public.airlines"
    found = joiner.assembler.read([str(n) for n in range(len(moments))])
    shape = joiner.assembler.shape
    by_engine = [shape.plain(part)["airline"] for part in found.values() if part is not None]
    missed = {change.offset for change in changes if change.op is Op.DELETE and change.snapshot}
    ops = [MISSED if change.offset in missed else change.op.value for change in changes]
    logged = [Logged(c.table, c.offset, c.ts_ms, op, c.key, c.after) for c, op in zip(changes, ops, strict=True)]
    with history(view.tree, used_columns(view.tree), lambda: iter(logged)) as was:
        rows = [was.shown("public.airlines", ["AA"], at, ["name"]) for at in moments]
    assert [row and row[0] for row in rows] == by_engine
    return by_engine


def test_moments_at_the_ends_of_time() -> None:
    changes = [_change(Op.READ, "one", 1, 10), _change(Op.UPDATE, "two", 2, 20)]
    ends = ["infinity", "-infinity", None]
    assert _both(
        changes,
        [
            *ends,
            "1969-12-31T23:59:59.9Z",
            "-0043-03-15T00:00:00Z",
            "+12000-01-01T00:00:00Z",
            "+294276-12-31T23:59:59.999999Z",
            "1970-01-01T00:00:00.019999Z",
            "1970-01-01T00:00:00.02Z",
        ],
    ) == [None, None, None, "one", "one", "two", "two", "one", "two"]


def test_a_column_that_was_renamed_is_read_under_the_name_that_it_had() -> None:
    view = resolve("flights", f"refs: {{{AIRLINE}}}")
    (ref,) = view.tree.refs
    root = replace(view.tree, refs=(replace(ref, table=replace(ref.table, renamed=(("title", "name"),))),))
    before, now = {"carrier": "AA", "title": "one", "parent": None}, {"carrier": "AA", "name": "two", "parent": None}
    logged = [Logged("public.airlines", at, at * 10, "u", row, row) for at, row in ((1, before), (2, now))]
    with history(root, used_columns(root), lambda: iter(logged)) as was:
        found = [was.shown("public.airlines", ["AA"], f"1970-01-01T00:00:00.0{at}Z", ["name"]) for at in (1, 2)]
    assert found == [["one"], ["two"]]


def test_what_a_snapshot_has_read_hides_no_change_that_was_committed_before_it_was_told() -> None:
    """The connector was behind: it told at 40 what it had read before the row was changed at 20 and at 30."""
    changes = [
        _change(Op.UPDATE, "one", 1, 10),
        _change(Op.READ, "one", 2, 40),
        _change(Op.UPDATE, "two", 3, 20),
        _change(Op.UPDATE, "three", 4, 30),
        _change(Op.READ, "three", 5, 50),
        _change(Op.READ, "three", 6, 60),
        _change(Op.UPDATE, "four", 7, 70),
        _change(Op.READ, "healed", 8, 80),
    ]
    moments = [f"1970-01-01T00:00:00.0{at}Z" for at in (15, 25, 35, 45, 55, 65, 75, 85)]
    assert _both(changes, moments) == ["one", "two", *["three"] * 4, "four", "healed"]


def test_a_delete_that_was_found_out_hides_no_row_that_came_back_before_that() -> None:
    """The slot was lost, the row deleted meanwhile; then it was inserted at 20, and at 40 the gap was looked through."""
    missed = _change(Op.DELETE, None, 1, 40)._replace(offset=2, snapshot=True)
    back = [_change(Op.CREATE, "again", 3, 20), _change(Op.UPDATE, "more", 4, 30)]
    moments = [f"1970-01-01T00:00:00.0{at}Z" for at in (15, 25, 35, 45)]
    assert _both([_change(Op.CREATE, "one", 1, 10), missed, *back], moments) == ["one", "again", "more", "more"]
    assert _both([_change(Op.CREATE, "one", 1, 10), missed], moments) == ["one", "one", "one", None]


def test_a_delete_of_ours_is_known_as_found_out() -> None:
    table = CATALOGUE.tables["public.airlines"]
    source = {"schema": "public", "table": "airlines", "lsn": 9, "sequence": None, "snapshot": "false", "ts_ms": 5}
    found = Decoder(table).decode(b'{"carrier":"AA"}', orjson.dumps(ghost_event(source, "9", 40, 50)), "t", 0, 1)
    assert found.op is Op.DELETE and found.snapshot
    theirs = {"op": "d", "after": None, "source": source}
    assert not Decoder(table).decode(b'{"carrier":"AA"}', orjson.dumps(theirs), "t", 0, 1).snapshot


def test_a_letter_of_a_version_names_the_row() -> None:
    view = resolve("flights", f"refs: {{{AIRLINE}}}")
    reader = RecordReader(FlowSpec("s", {"v": view}, {"t": ("v",)}, {"t": view.tree.refs[0].table}, {}, {}), view)
    refused = _Refused(reader)
    change = _change(Op.UPDATE, "?", 7, 10)._replace(unavailable=("name",))
    lacking = RowMaker(view.layout.tables["public.airlines"]).make(change)
    Joiner(view, MemoryStore()).load([lacking], Task(1, 1), refused)
    (letter,) = refused.letters
    assert (letter.key, letter.table, letter.offset) == ("AA", "public.airlines", 7)
