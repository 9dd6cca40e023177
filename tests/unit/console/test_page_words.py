"""What stands on the page is read and copied as it is: documents, keys, commands, moments."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import StateError
from cdc.view import View
from console.http.reports import LONGEST_KEY
from operations.held import with_moments
from tests.support.page_cases import TABLES
from tests.support.watched import World, documented, nowhere, status, world

ODD = "Jürgen <b>&'</script>"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    nowhere(monkeypatch, tmp_path)
    paused = {"judgement": "paused", "cause": "paused by ann", "remedy": "`headwater resume FILE search`"}
    told = {"status": status(search=paused, cache={}), "generations": {}, "tables": TABLES[1:]}
    with world(tmp_path, told=told) as made:
        made.look()
        yield made


def traced(**more: Any) -> dict[str, Any]:
    """A trace of a row that is in Postgres and its topic, with what it holds."""
    place = {"there": True, "error": None, "row": {"name": ODD}}
    source = {**place, "why": None, "slot_active": True, "slot_confirmed_lsn": "0/1"}
    log = {**place, "topic": "t", "whole": True, "partition": 0, "offset": 7, "operation": "insert", "lsn": "0/1"}
    log |= {"committed_at": None, "written_at": 1.0, "undecoded": None, "same_as_source": True}
    sink = {**place, "sink": "search", "view": "flight", "generation": 1, "lsn": None, "applied": False}
    sink |= {"applied_offset": 502, "state": "running", "last_error": None, "where": None, "document": {"name": ODD}}
    report = {"table": "public.flights", "key": "1", "key_columns": ["id"], "at": 1.0, "near": [], "values": True}
    verdict = {"stuck": None, "words": "nowhere: `headwater verify FILE`"}
    report |= {"source": source, "log": log, "sinks": [sink], "not_a_key": None, "verdict": verdict}
    return report | more


def trace_page(made: World, monkeypatch: pytest.MonkeyPatch, **more: Any) -> str:
    monkeypatch.setattr("console.http.pages.show.trace_report", lambda *_, **__: traced(**more))
    return str(made.browser.get("/trace?table=flights&key=1&values=1&part=found").text)


def test_what_a_row_holds_is_read_as_it_is_and_stays_text(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each umlaut was six signs of an escape."""
    page = trace_page(made, monkeypatch)
    assert page.count("Jürgen") == 3 and "\\u00" not in page
    assert "</script>" not in page and "<b>" not in page
    letter = documented("letters show")
    letter["letters"][0] |= {"document": {"name": ODD}}
    letter["letters"][0]["record"] |= {"value": {"name": ODD}}
    monkeypatch.setattr("console.http.pages.letters.letter_report", lambda *_, **__: letter)
    page = made.browser.get("/letters?sink=search&key=4711&values=1&part=found").text
    assert page.count("Jürgen") == 2 and "\\u00" not in page and "<b>" not in page and "</script>" not in page


def test_the_offset_that_is_told_is_of_a_record_that_was_applied(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    page = trace_page(made, monkeypatch)
    assert "has not applied the record (up to offset 501)" in page


def test_a_mistyped_key_is_refused_and_has_no_verdict(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a green "Not stuck"."""
    page = trace_page(made, monkeypatch, not_a_key="abc is not a bigint, the type of public.flights.id")
    assert 'class="state bad"' in page and "abc is not a bigint" in page and "type a key of public.flights: id" in page
    assert "tuck" not in page and "<table" not in page
    stuck = {"stuck": "search", "words": "sink search has a document"}
    assert "Stuck:" in trace_page(made, monkeypatch, not_a_key="abc is not a bigint", verdict=stuck)


def test_a_key_as_long_as_a_refused_one_leads_to_its_row(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters of keys that a sink calls too long had links to pages that refused them."""
    key = "ü" * LONGEST_KEY
    found = documented("letters list")
    found["letters"][0] |= {"key": key, "table": "public.flights", "row": True}
    found["causes"][0]["keys"] = [key]
    monkeypatch.setattr("console.http.pages.letters.letters_report", lambda *_, **__: found)
    monkeypatch.setattr("console.http.pages.letters.letter_report", lambda *_, **__: documented("letters show"))
    monkeypatch.setattr("console.http.pages.show.trace_report", lambda *_, **__: traced())
    page = made.browser.get("/letters?part=found").text
    links = {html.unescape(one) for one in re.findall(r'href="([^"]+)"', page) if quote(key[:600]) in one}
    assert len(links) == 2
    for link in links:
        assert made.browser.get(f"{link}&part=found").status_code == 200
    shown = re.sub(r'href="[^"]*"', "", page)
    assert key not in shown and "ü" * 60 + "…" in shown  # and what it was refused for stands beside it


def test_commands_are_copied_as_they_are(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pipeline.yaml"
    for path in ("/", "/sinks/search"):
        page = made.browser.get(path).text
        assert f"<code>headwater resume {file} search</code>" in page and "FILE" not in page, path
    assert f"<code>headwater verify {file}</code>" in trace_page(made, monkeypatch)
    assert "<code>" not in made.browser.get("/letters?cause=[`&part=found").text  # a sign of somebody's words


def test_a_warehouses_moments_are_read_as_postgress_are() -> None:
    kinds = {"id": "int8", "day": "date", "at": "timestamp", "placed": "timestamptz", "n": "int8"}
    table = Table("public", "orders", tuple(Column(name, kind, kind) for name, kind in kinds.items()), ("id",))
    row = {"id": 1, "day": 20786, "at": 1795915877198436, "placed": 1795915877198436, "n": 1795915877198436}
    assert with_moments(View.identity(table), row) == {
        "id": 1,
        "day": "2026-11-29",
        "at": "2026-11-29T01:31:17.198436",
        "placed": "2026-11-29T01:31:17.198436Z",
        "n": 1795915877198436,
    }
    assert with_moments(View.identity(table), {**row, "placed": None})["placed"] is None


def test_a_second_click_is_refused_as_such_and_leads_back_to_the_sink(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered as an error of the server, with a way to the overview alone."""

    def under_way(*_: Any, **__: Any) -> None:
        raise StateError("sink search: rebuild is under way", fix="wait until it has ended")

    monkeypatch.setattr(made.served.jobs, "begin", under_way)
    answer = made.send("/sinks/search/rebuild", csrf=made.csrf())
    assert answer.status_code == 409 and 'href="/sinks/search"' in answer.text and "is under way" in answer.text
    assert made.browser.post("/v1/jobs", json={"verb": "rebuild", "sink": "search"}).status_code == 409
    answer = made.send("/sinks/nono/rebuild", csrf=made.csrf())
    assert answer.status_code == 404 and "/sinks/nono" not in answer.text


def test_a_slot_that_is_not_there_is_not_said_to_be_unknown(made: World) -> None:
    assert "<dd>not known" not in made.browser.get("/").text
    told = status(search={})
    told["source"] |= {"slot_there": False, "slot_active": None, "slot_lag_bytes": None, "error": "there is no slot x"}
    made.served.watching._questions = {**made.served.watching._questions, "status": lambda _: told}
    made.look()
    page = made.browser.get("/").text
    assert "<dd><strong>there is none</strong></dd>" in page and "<dd>not known" not in page
