"""The figures of the pages: none that is not known, and none that says something else than what is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from console.http.pages.model import overview
from console.http.pages.render import ENVIRONMENT, span
from operations.overview.watching import Seen
from tests.support.page_cases import TABLES
from tests.support.watched import nowhere, status, world

DAY = 86_400.0
FLIGHTS, PLANES = TABLES


def shown(told: dict[str, Any], tables: list[dict[str, Any]] | None) -> dict[str, Any]:
    return overview(Seen(1, 2.0, 0.1, told, tables=tables), {}, 3.0)


@pytest.mark.parametrize("state", ["finished", "running"])
def test_the_topic_of_a_table_that_was_let_go_may_be_gone(state: str) -> None:
    """Kafka was said to be silent, for good, on a red page."""
    told, why = status(search={}), "topic flights.public.planes does not exist"
    [flow] = told["sinks"][0]["flows"]
    told["sinks"][0]["flows"].append({**flow, "state": state, "lag_events": None, "lag_error": why})
    view = shown(told, [PLANES])
    if state == "finished":
        assert (view["level"], view["words"]) == ("good", "All is well.")
    else:
        assert (view["level"], view["words"]) == ("bad", f"log: not readable, {why}")


def test_the_topic_of_a_table_that_cannot_be_read_is_named() -> None:
    refused = {**PLANES, "records": None, "records_error": "topic a may not be read"}
    other = {**FLIGHTS, "records": None, "records_error": "topic b may not be read"}
    log = shown(status(search={}), [refused, other])["log"]
    assert (log["level"], log["cause"]) == ("bad", "topic a may not be read (and 1 more)")
    assert log["records"] is None


def test_what_is_not_known_of_the_log_is_what_its_error_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sinks that read nothing of that table it was said not to be known how far they are behind."""
    told, why = status(search={}), "topic a does not exist"
    refused = {**PLANES, "records": None, "records_error": why}
    page = overview_page(tmp_path, monkeypatch, {"status": told, "generations": {}, "tables": [refused]})
    assert f"{why}: how many records are in it is not known." in page and "are behind is not known" not in page
    told["sinks"][0]["flows"][0] |= {"lag_events": None, "lag_error": "topic b may not be read"}
    log = shown(told, [refused])["log"]
    assert (log["cause"], log["unknown"]) == ("topic b may not be read (and 1 more)", "how far the sinks are behind")


def test_a_table_that_has_more_rows_than_were_reckoned_has_no_share() -> None:
    """It stood at 100 % until it was done."""
    reading = {**FLIGHTS, "again": False, "state": "initial", "rows": 100}
    tables = [{**reading, "records": records} for records in (40, 100, 250)]
    assert [one["share"] for one in shown(status(search={}), tables)["incomplete"]] == [0.4, 1.0, None]


def test_tables_that_are_not_known_are_not_counted_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert log_box(tmp_path, monkeypatch, None) == ("? topics", "? of ? tables")


def test_topics_are_counted_and_only_tables_whose_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap is listed below them, but nobody reads because of it; an outbox has a topic for each type."""
    outbox = {**PLANES, "table": "public.outbox", "topics": 3}
    gap = {**PLANES, "table": "public.gap", "gap": "lost"}
    tables = [FLIGHTS, PLANES, outbox, gap]
    assert log_box(tmp_path, monkeypatch, tables) == ("6 topics", "1 of 4 tables")
    incomplete = shown(status(search={}), tables)["incomplete"]
    assert [one["table"] for one in incomplete] == ["public.flights", "public.gap"]


def log_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: Any) -> tuple[str, str]:
    """What the page says of topics and of tables that are being read."""
    told = {"status": status(search={}), "generations": {}, "tables": tables}
    page = overview_page(tmp_path, monkeypatch, told)
    topics, read = re.search(r"<p>([^<]* topics)</p>.*?<dt>being read</dt><dd>(.*?)</dd>", page, re.DOTALL).groups()  # type: ignore[union-attr]
    return topics, read


def overview_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]) -> str:
    nowhere(monkeypatch, tmp_path)
    with world(tmp_path, told=told) as made:
        made.look()
        return made.browser.get("/").text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.44, "0.4 s"), (89 * 60, "89 min"), (36.5 * 3600, "36.5 h"), (99.5 * DAY, "99.5 d"), (1234.4 * DAY, "1,234 d")],
)
def test_a_span_of_years_is_told_in_days(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_what_is_ahead_of_this_clock_is_told_as_now() -> None:
    """As a letter of a machine whose clock is ahead."""
    page = ENVIRONMENT.from_string('{% import "macros.html" as m with context %}{{ m.verified(sink, link) }}')
    found = {"at": 135.0, "error": None, "equal": True, "sample": None, "generation": 1, "views": []}
    said = page.render(now=100.0, link=str, sink={"sink": "search", "verified": found, "generation": 1})
    assert "0.0 s ago: equal" in said


WAL = {"retained_bytes": 2**30, "level": "none"}


@pytest.mark.parametrize(
    ("wal", "words"),
    [
        ({"level": "over", "growth_bytes_per_second": None, "seconds_to_full": 0.0}, "<strong>it is full</strong>"),
        ({"level": "over", "growth_bytes_per_second": 9.0, "seconds_to_full": 0.0}, "<strong>it is full</strong>"),
        ({"growth_bytes_per_second": None, "seconds_to_full": None}, "?"),
        ({"growth_bytes_per_second": 0.0, "seconds_to_full": None}, '<span class="small">it does not grow</span>'),
        ({"growth_bytes_per_second": 0.1, "seconds_to_full": None}, '<span class="small">more than a week</span>'),
    ],
)
def test_a_slot_does_not_grow_only_where_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wal: dict[str, Any], words: str
) -> None:
    told = status(search={})
    told["source"]["wal"] |= WAL | wal
    page = overview_page(tmp_path, monkeypatch, {"status": told, "generations": {}, "tables": TABLES})
    assert f"<dt>full in</dt><dd>{words}</dd>" in page
