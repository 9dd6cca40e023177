"""Rows of the log for the second opinion: what a view looks at, under the names of today; a dead letter is no end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdc.catalogue import Table
from cdc.fold import FoldView
from cdc.join.tree import Node
from cdc.timed import Measure, WindowView
from cdc.view import View
from tests.support.trees import node, table
from truth.events import folded, happened
from truth.events.logged import Event, Reader, reader, scratch
from truth.joins import used_columns
from truth.versions import Logged, history

EVENTS = table("events", "id", id="int4", about="text", at="timestamptz", n="int4", words="text[]", stock="numeric")
MINUTE = 60_000_000


def fold(of: Table) -> FoldView:
    return FoldView("f", of, ("about",), (("about", "about"),), step="named_struct('n', state.n + event.n)")


def window(of: Table) -> WindowView:
    measures = {"n": Measure("sum", "n")}
    return WindowView("w", of, ("id",), (), time="at", size=MINUTE, slide=MINUTE, groupings=((),), measures=measures)


def row(**more: Any) -> dict[str, Any]:
    return {"id": 1, "about": "a", "at": "2026-01-01T00:00:00.000000Z", "n": 5, "words": ["x"], "stock": "1.5"} | more


def by_fold(of: Table, rows: list[dict[str, Any]]) -> int:
    events = [Event(0, at, one, False) for at, one in enumerate(rows)]
    return len(list(folded._rows(fold(of), lambda: events, None)))


def by_window(of: Table, rows: list[dict[str, Any]]) -> int:
    events = [Event(0, at, one, False, "t", 1) for at, one in enumerate(rows)]
    with scratch(":memory:", happened.TABLE) as store:
        happened.take(store, window(of), lambda: events)
        return int(store.execute("SELECT count(*) FROM event").fetchone()[0])


def shown(of: Table, rows: list[dict[str, Any]], *names: str) -> list[list[Any] | None]:
    """What documents show of these columns in each of the rows, which were of one key, a second apart."""
    orders = table("orders", "id", id="int4", event="int4", at="timestamptz")
    columns = tuple((name, name) for name in names)
    below: Node = node(of, "event", "ref", [("event", "id")], as_of="at", columns=columns)
    root = node(orders, refs=(below,))
    logged = [Logged(of.qualified, at, at * 1000, "u", {"id": 1}, one) for at, one in enumerate(rows, 1)]
    with history(root, used_columns(root, ("id",)), lambda: logged) as was:
        moments = [f"1970-01-01T00:00:{at:02d}Z" for at in range(1, len(rows) + 1)]
        return [was.shown(of.qualified, [1], moment, names) for moment in moments]


@pytest.mark.parametrize("count", [by_fold, by_window])
def test_a_column_that_the_view_does_not_use_costs_no_event_its_place(count: Callable[..., int]) -> None:
    """`stock` was an integer when the first one was written: the engine, which looks at it nowhere, counts both."""
    assert count(EVENTS, [row(stock=5), row(id=2)]) == 2


def test_a_column_that_no_document_shows_costs_no_version_its_place() -> None:
    assert shown(EVENTS, [row(stock=5), row(n=6)], "n") == [[5], [6]]
    assert shown(EVENTS, [row(stock=5), row(n=6)], "n", "stock")[0] == [6, "1.5"], "one that is shown still does"


def used(view: Callable[[Table], View]) -> set[str]:
    return set(reader(view(EVENTS))._columns)


def test_what_is_shown_by_an_expression_only_is_looked_at() -> None:
    assert used(fold) == {"about", "n"}
    assert used(window) == {"id", "at", "n"}


def test_a_row_is_read_under_the_names_of_today() -> None:
    renamed = replace(EVENTS, renamed=(("first", "n"), ("second", "n")))
    read = Reader(renamed, {"n"})
    without = {name: value for name, value in row().items() if name != "n"}
    for former in ("first", "second", "n"):
        assert read({**without, former: 7})["n"] == 7
    assert read(without)["n"] is None
    assert read({**without, "first": 1, "n": 2})["n"] == 2


def test_a_name_that_was_another_column_s_is_told_by_the_shape() -> None:
    """`about` and `n` have changed places by way of a third name."""
    pairs = (("about", "n"), ("n", "about"), ("id", "id"))
    now = table("t", "id", id="int4", about="text", n="text", more="text")
    read = Reader(replace(now, moved=((("id", "about", "n"), pairs),)), {"about", "n"})
    assert read({"id": 1, "about": "was n", "n": "was about"}) == {
        "id": None,
        "about": "was about",
        "n": "was n",
        "more": None,
    }
    assert read({"id": 1, "about": "a", "n": "n", "more": ""})["about"] == "a"


@pytest.mark.parametrize("count", [by_fold, by_window])
def test_an_event_of_before_a_rename_counts(count: Callable[..., int]) -> None:
    """Its aggregate, or its time, had another name: it was a dead letter here, and counted there."""
    renamed = replace(EVENTS, renamed=(("subject", "about"), ("happened", "at")))
    before = {"id": 1, "subject": "a", "happened": row()["at"], "n": 5, "words": None, "stock": None}
    assert count(renamed, [before, row(id=2)]) == 2
    assert folded_key(renamed, before) == "a"


def folded_key(of: Table, one: dict[str, Any]) -> str:
    ((about, *_),) = folded._rows(fold(of), lambda: [Event(0, 0, one, False)], None)
    return str(about)


@pytest.mark.parametrize("words", [[5], 5, [None, {}]], ids=["AttributeError", "TypeError", "among others"])
def test_a_dead_letter_of_any_kind_is_left_out(words: Any) -> None:
    """It ended the whole of `verify` as an internal error."""
    rows = [row(words=words), row(n=6)]
    assert shown(EVENTS, rows, "words", "n") == [[["x"], 6], [["x"], 6]]
    view = replace(fold(EVENTS), step="named_struct('n', state.n + size(event.words))")
    assert len(list(folded._rows(view, lambda: [Event(0, at, one, False) for at, one in enumerate(rows)], None))) == 1


@pytest.mark.parametrize("at", ["", [], {}], ids=["IndexError", "TypeError", "KeyError"])
def test_a_moment_that_is_none_is_left_out_too(at: Any) -> None:
    assert by_window(EVENTS, [row(at=at), row(id=2)]) == 1


def test_names_of_a_state_are_quoted_in_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backtick in one was the end of `verify`."""
    from pyspark.sql.types import DataType

    def parse(kind: str) -> Any:
        raise ValueError(kind)

    monkeypatch.setattr(DataType, "fromDDL", parse)
    view = replace(fold(EVENTS), state={"odd `name`": "int", "n": "bigint"})
    with pytest.raises(ValueError, match="struct<`odd ``name```: int, `n`: bigint>"):
        list(folded._asked(view, None, [("a", [row()])]))  # type: ignore[arg-type]
