"""What `tail` and `queries tail` say beside the events: fields that no document has, and why nothing comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner

from console.cli.queries import command as queries
from console.cli.tail import _Unknown
from console.cli.tail import command as tail
from operations.push.events import Told
from operations.push.walk import BEGUN


def test_a_misspelt_field_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = _Unknown(["status", "totel"], "order")
    unknown.look(Told("reset", b'{"why":"it is new"}'))
    unknown.look(Told("change", b'{"before":null,"after":null}'))
    assert capsys.readouterr().err == ""
    unknown.look(Told("change", b'{"before":{"status":"new"},"after":null}'))
    assert capsys.readouterr().err == "no field 'totel' in documents of 'order': is it misspelt?\n"
    unknown.look(Told("change", b'{"before":null,"after":{"status":"new"}}'))
    assert capsys.readouterr().err == ""


def test_known_fields_are_no_matter(capsys: pytest.CaptureFixture[str]) -> None:
    _Unknown(["total"], "order").look(Told("snapshot", b'{"documents":[{"key":"1","document":{"total":1}}]}'))
    assert capsys.readouterr().err == ""


def test_why_nothing_comes_is_said_once_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`queries tail` said it about once a second as long as Redis was away."""

    def follow(*_: Any, on_wait: Callable[[str], None], **__: Any) -> Iterator[list[Told]]:
        for found in ([], [Told("reset", b'{"why":"it is new"}')]):
            for _ in range(3):
                on_wait("redis does not answer")
            yield found
        on_wait("redis does not answer")

    monkeypatch.setattr("operations.push.following.follow", follow)
    monkeypatch.setattr("operations.push.source.Source", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("operations.standing.place.standing_place", lambda *_: None)
    monkeypatch.setattr("cdc.pipeline.load", lambda _: None)
    shown = CliRunner().invoke(queries, ["tail", "shop.yaml", "order"], catch_exceptions=False)
    waiting = "waiting: redis does not answer"
    assert shown.stderr.splitlines() == [waiting, "reset: it is new", waiting]


@pytest.mark.parametrize(
    ("why", "snapshot", "said"),
    [
        (BEGUN, [], ["from now on; `--snapshot` shows {there}"]),
        (BEGUN, ["--snapshot"], []),
        ("the stream was made anew", [], ["reset: the stream was made anew"]),
    ],
)
@pytest.mark.parametrize(
    ("command", "there"), [(queries, "who matches already"), (tail, "what is there already")], ids=["queries", "tail"]
)
def test_where_it_begins_is_said_as_a_person_means_it(
    monkeypatch: pytest.MonkeyPatch, command: click.Command, there: str, why: str, snapshot: list[str], said: list[str]
) -> None:
    """It said "reset: this is the beginning", and then nothing, though documents matched."""
    reset = Told("reset", orjson.dumps({"why": why}))
    monkeypatch.setattr("operations.push.following.follow", lambda *_, **__: iter([[reset]]))
    monkeypatch.setattr("operations.push.source.Source", lambda _: SimpleNamespace(close=lambda: None))
    for place in ("operations.standing.place.standing_place", "operations.push.source.place_of"):
        monkeypatch.setattr(place, lambda *_: None)
    monkeypatch.setattr("cdc.pipeline.load", lambda _: None)
    sub = ["tail"] if command is queries else []
    asked = [*sub, "shop.yaml", "order", *snapshot]
    shown = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert shown.stderr.splitlines() == [line.format(there=there) for line in said]
    shown = CliRunner().invoke(command, [*asked, "--json"], catch_exceptions=False)
    assert orjson.loads(shown.stdout)["data"] == {"why": why}  # a program needs it as documented
