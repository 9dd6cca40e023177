"""The trace of a key that is nowhere, without servers: what somebody may have meant, and what no row can have."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.keys import alike
from cdc.pipeline import RedisSink
from cdc.records.change import Change, Op
from cdc.view import View
from console.http import overview
from console.http.pages import show
from operations.held import Found
from operations.records.backwards import Newest
from operations.records.newest import Asked, Record
from operations.trace import report as traced
from tests.support.trees import table
from tests.support.watched import World, nowhere, world
from truth.one_document import Wanted

ID, PART = Column("id", "int8", "int8"), Column("part", "int4", "int4")
ONE = Table("public", "flights", (ID,), ("id",))
TWO = Table("public", "flights", (ID, PART), ("id", "part"))
ROW = View.identity(ONE)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Traces a key of flights, of which Postgres has the rows of `rows`, and the sinks what `held` gives."""
    nowhere(monkeypatch, tmp_path)

    def row(_view: View, _source: Any, key: str, _spark: None) -> Wanted:
        return Wanted(b"{}" if key in rows else None)

    rows: list[str] = []
    monkeypatch.setattr(traced, "expected_document", row)
    monkeypatch.setattr(traced, "connect", lambda _: nullcontext())
    monkeypatch.setattr(traced, "snapshot", lambda _: nullcontext())
    monkeypatch.setattr(traced, "read_slot", lambda *_: None)
    monkeypatch.setattr(traced, "newest_record", lambda *_: Newest(None, None, None, whole=True))
    monkeypatch.setattr(traced, "near_keys", lambda _, view, key: [*filter(rows.count, alike(key, len(view.key)))])

    def ask(key: str, held: Callable[[str], Found], view: View = ROW, there: tuple[str, ...] = ()) -> dict[str, Any]:
        rows[:], table = there, view.table
        monkeypatch.setattr(traced, "resolve_views", lambda _p, _c, sink: [view] if sink == "search" else [])
        monkeypatch.setattr(traced, "held_under", lambda _opened, _view, asked: held(asked))
        monkeypatch.setattr(traced, "_catalogue", lambda _: Catalogue({"public.flights": table}, "1", 1))
        with world(tmp_path) as made:
            return traced.trace_report(made.served.pipeline, "flights", key)

    return ask


def test_a_key_in_another_spelling_is_named_wherever_it_is(trace: Any) -> None:
    told = trace("04711", lambda _: Found(), there=("4711",))  # no sink has it yet
    assert (told["near"], told["not_a_key"]) == (["4711"], None)
    assert told["verdict"]["words"].endswith("did you mean 4711?") and told["verdict"]["stuck"] is None
    told = trace("04711", lambda _: Found(near=("4711",)))
    assert told["near"] == ["4711"]
    told = trace("4711", lambda _: Found(near=("7",)), there=("4711",))
    assert (told["near"], told["verdict"]["stuck"]) == ([], "source")


def test_what_can_be_no_key_is_said_so(trace: Any) -> None:
    told = trace("abc", lambda _: Found())
    assert told["not_a_key"] == "abc is not an int8, the type of public.flights.id"
    assert told["verdict"] == {"stuck": None, "words": told["not_a_key"]}
    told = trace("abc", lambda _: Found(1, {}))  # somebody else has written it
    assert told["not_a_key"] is None and told["verdict"]["stuck"] == "search"


def test_a_document_without_a_row_is_looked_for_under_its_own_id(trace: Any) -> None:
    """A view may name the key's columns in another order: 1|2 is the document of the row 2|1."""
    view = View("flight", TWO, ("part", "id"), (("id", "id"), ("part", "part")))

    def held(asked: str) -> Found:
        return Found(1, {}) if asked == "1|2" else Found()

    assert trace("1|2", held, view)["verdict"]["words"].startswith("there is no such row, and the log")
    assert trace("2|1", held, view)["verdict"]["stuck"] == "search"


def test_the_page_leads_to_the_key_that_was_meant_and_calls_well_only_what_is_known(
    tmp_path: Path, trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = trace("04711", lambda _: Found(), there=("4711",))
    with world(tmp_path) as made:
        page = shown(made, told, monkeypatch)
        assert "Not stuck:" in page and "did you mean 4711?" in page
        assert re.search(r'<a href="/trace\?[^"]*key=4711[^"]*">4711</a>', page)
        assert "Not known:" in shown(made, {**told, "log": {**told["log"], "whole": False}}, monkeypatch)
        assert "Not known:" in shown(made, {**told, "source": {"error": "away", "there": None}}, monkeypatch)


def shown(made: World, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(show, "trace_report", lambda *_, **__: told)
    return str(made.browser.get("/trace?table=flights&key=04711&part=found").text)


@pytest.mark.parametrize(
    ("key", "found"),
    [("7", True), ("007", False), ("-0", False), ("0", False), ("+7", False), ("9" * 20, False), ("\u0667", False)],
)
def test_a_record_is_found_under_the_id_that_its_document_has_and_under_no_other(key: str, found: bool) -> None:
    """Of 007 the newest record was that of 7, and so the row was `gone, and its topic has no delete of it`."""
    of = table("t", "id", id="integer")
    of = replace(of, columns=tuple(replace(one, base_type="int4") for one in of.columns))
    asked = Asked(cast(Any, None), View.identity(of), "t", [key])
    assert asked(Record(b'{"id":7}', None, "t", 0, 0)) is found


@pytest.mark.parametrize("odd", [b"1e400", b'"\\ud800"', b"12345678901234567890123", b"[" * 1_100 + b"]" * 1_100])
def test_what_a_row_holds_is_shown_with_every_digit_and_hides_no_place(
    tmp_path: Path, trace: Any, monkeypatch: pytest.MonkeyPatch, odd: bytes
) -> None:
    """The row was stuck where `it can't be read`; and over HTTP nothing was told at all."""
    document = b'{"n":%s}' % odd
    monkeypatch.setattr(traced, "expected_document", lambda *_: Wanted(document))
    monkeypatch.setattr(traced, "trace_report", partial(traced.trace_report, values=True))
    told = trace("7", lambda _: Found())
    assert told["source"]["error"] is None and told["source"]["there"]
    with world(tmp_path) as made:
        monkeypatch.setattr(overview, "trace_report", lambda *_, **__: {"row": told["source"]["row"]})
        answer = made.browser.get("/v1/trace?table=flights&key=1")
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        assert answer.content == b'{"row":%s}' % document or not odd.isalnum()
        page = shown(made, told, monkeypatch)
        assert "&#34;n&#34;" in page or '"n"' in page


@pytest.mark.parametrize(
    ("topic", "there", "held", "stuck", "words"),
    [
        ("order", False, True, None, "its row has gone, and the event stays: it is in the log and in every sink"),
        ("order", True, True, None, "what Postgres has is in the log and in every sink that keeps it"),
        (
            "order",
            False,
            False,
            "search",
            "the record is in the log (partition 0, offset 3), and sink search has applied",
        ),
        ("customer", False, False, None, "its row has gone, and the event stays: it is in the log and in every sink"),
        ("customer", True, False, None, "what Postgres has is in the log and in every sink that keeps it"),
    ],
)
def test_an_event_outlives_its_row_and_views_of_other_types_do_not_read_it(
    trace: Any, monkeypatch: pytest.MonkeyPatch, topic: str, there: bool, held: bool, stuck: str | None, words: str
) -> None:
    """It was stuck at the source, whose delete is no event; and in each view of another type, for ever."""
    record = Record(b"{}", b"{}", f"shop-events.{topic}", 0, 3)
    change = Change("public.flights", Op.CREATE, {"id": 7}, {"id": 7, "kind": "as it was"}, 8, record.topic, 0, 3, 5)
    monkeypatch.setattr(traced, "newest_record", lambda *_: Newest(record, change, None, whole=True))
    monkeypatch.setattr(traced, "table_view", lambda _, one: replace(View.identity(one), topics=("shop-events",)))
    applied = {"shop-events.order": {0: 9 if held else 0}}
    monkeypatch.setattr(traced, "applied_offsets", lambda _: applied)
    view = replace(ROW, name="order", topics=("shop-events.order",), event_types=("order",), type_column="kind")
    told = trace("7", lambda _: Found(8, {}) if held else Found(), view, ("7",) if there else ())
    assert told["verdict"]["stuck"] == stuck and told["verdict"]["words"].startswith(words), told["verdict"]
    assert (told["log"]["event"], [one["view"] for one in told["sinks"] if one["sink"] == "search"]) == (
        True,
        ["order" if topic == "order" else None],
    )


@pytest.mark.parametrize(("ttl", "why"), [(None, ""), (3_600, ", or it has expired (ttl_seconds: 3,600)")])
def test_a_document_that_is_not_there_may_have_expired(
    trace: Any, monkeypatch: pytest.MonkeyPatch, ttl: int | None, why: str
) -> None:
    """`verify`, to which it leads, says no more than that."""
    record = Record(b"{}", b"{}", "shop", 0, 3)
    change = Change("public.flights", Op.CREATE, {"id": 7}, {"id": 7}, 8, "shop", 0, 3, 5)
    monkeypatch.setattr(traced, "newest_record", lambda *_: Newest(record, change, None, whole=True))
    monkeypatch.setattr(traced, "applied_offsets", lambda _: {"shop": {0: 9}})
    monkeypatch.setattr(traced, "expected_document", lambda *_: Wanted(b'{"id":7}'))
    defined = traced.as_defined

    def lives(pipeline: Any, generation: Any) -> Any:
        made = defined(pipeline, generation)
        part = RedisSink(type="redis", url="redis://127.0.0.1:1/0", view="flight", ttl_seconds=ttl)
        return made.model_copy(update={"sinks": {**made.sinks, "search": part}})

    monkeypatch.setattr(traced, "as_defined", lives)
    told = trace("7", lambda _: Found(), ROW, ("7",))
    assert told["verdict"]["words"].endswith(
        f"has no document{why}: look at the dead letters, then `headwater verify FILE --sink search`"
    )
    assert [one["ttl_seconds"] for one in told["sinks"] if one["sink"] == "search"] == [ttl]
