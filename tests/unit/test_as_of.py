"""Rows as they were: what a file may say, what is stored, and which version stands where."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

from typing import Any

import pytest

from cdc.change import Change, Op
from cdc.errors import PipelineFileError
from cdc.join.incoming import RowMaker
from cdc.join.versions import by_time, shown
from connectors.topics import FOR_EVER, data_topics
from tests.unit.test_resolve_joins import CATALOGUE, pipeline, resolve, said

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


def test_its_topic_is_kept_whole() -> None:
    made = {topic.name: topic.config for topic in data_topics(pipeline("flights", f"refs: {{{AIRLINE}}}"), CATALOGUE)}
    kept = {name for name, config in made.items() if config["min.compaction.lag.ms"] == FOR_EVER}
    assert {name.rpartition(".")[2] for name in kept} == {"airlines"}


def _change(op: Op, name: str | None, position: int, ts_ms: int) -> Change:
    after: dict[str, Any] | None = None if name is None else {"carrier": "AA", "name": name, "parent": None}
    return Change("public.airlines", op, {"carrier": "AA"}, after, position, "t", 0, position, ts_ms)


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
