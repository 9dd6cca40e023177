"""The page of dead letters: what is shown and counted there is what its forms replay and forget."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from cdc.letters.deadletter import DeadLetter
from operations.jobs.work import _wanted
from tests.support.watched import World, documented, nowhere, status, world

READ, OPERATE = "read-token-of-this-test", "operate-token-of-this-test"
# Each with one cause that is told, and a value of its row, which is not.
LETTERS = [
    DeadLetter("search", "flight", key, 8, f"400 failed to parse field [n] in document with id '{key}': '{value}'")
    for key, value in (("1", "an Alice"), ("2", "malice"))
]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)


def counted(made: World, monkeypatch: pytest.MonkeyPatch, cause: str, more: str = "") -> tuple[list[str], str]:
    """Keys of the letters that the page counts, and the page."""
    found: list[list[str]] = []

    def report(_: Any, wanted: Any, **__: Any) -> dict[str, Any]:
        found.append([one.key for one in LETTERS if wanted(one, "public.flights")])
        return documented("letters list") | {"standing": len(found[-1]), "causes": [], "letters": []}

    monkeypatch.setattr("console.http.pages.letters.letters_report", report)
    page = made.browser.get(f"/letters?sink=search&cause={quote_plus(cause)}&part=found{more}").text
    return found[-1], page


@pytest.mark.parametrize("cause", ["alice", "failed to parse", " ", " alice"])
@pytest.mark.parametrize("values", ["", "&values=1"])
@pytest.mark.parametrize("verb", ["replay-letters", "drop-letters"])
def test_what_is_counted_is_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str, values: str, verb: str
) -> None:
    """It said "Yes, forget 2" and forgot more: those whose reasons hold the words in what they quote of rows."""
    begun: list[dict[str, Any]] = []
    with world(tmp_path, told={"status": status(search={})}) as made:
        keys, page = counted(made, monkeypatch, cause, values)
        [form] = re.findall(rf'<form method="post" action="/sinks/search/{verb}">.*?</form>', page, re.DOTALL)
        fields = {name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
        job = made.served.jobs.begin("pause", "search")
        monkeypatch.setattr(made.served.jobs, "begin", lambda *_, **more: begun.append(more) or job)
        assert made.send(f"/sinks/search/{verb}", **fields).status_code == 303
    wanted = _wanted("search", begun[0])
    assert [one.key for one in LETTERS if wanted(one, "public.flights")] == keys
    assert keys == (["1"] if cause == " alice" else ["1", "2"])


def test_who_may_only_read_finds_by_what_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, tokens={READ: "read"}, told={"status": status(search={})}) as made:
        made.send("/login", token=READ)
        for more in ("", "&values=1"):
            assert counted(made, monkeypatch, "alice", more)[0] == []
            assert counted(made, monkeypatch, "failed to parse", more)[0] == ["1", "2"]


def test_a_reason_that_many_letters_share_stands_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of 50,000 letters of one cause had its four lines fifty times."""
    [one, *_] = documented("letters list")["letters"]
    letters = [one | {"key": str(key), "cause": cause} for key, cause in enumerate(("late", "late", "late", "early"))]
    report = documented("letters list") | {"standing": 4, "causes": [], "letters": letters}
    monkeypatch.setattr("console.http.pages.letters.letters_report", lambda *_, **__: report)
    with world(tmp_path, told={"status": status(search={})}) as made:
        page = made.browser.get("/letters?sink=search&part=found").text
    assert (page.count("late"), page.count("early"), page.count("as above")) == (1, 1, 2)


def test_a_sink_whose_letters_could_not_all_be_counted_is_not_said_to_have_none(tmp_path: Path) -> None:
    kept = {"letters": {"search": {"standing": 0, "at": 1.0, "more": True}}, "verified": {}, "batches": {"search": []}}
    with world(tmp_path, told={"status": status(search={}), "kept": kept, "generations": {}, "tables": []}) as made:
        made.look()
        page = made.browser.get("/").text
    assert "more than 0 dead letters" in page and "No dead letters" not in page
