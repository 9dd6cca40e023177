"""`letters drop` and `letters webhooks drop` forget what the question was about, and nothing that came since."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from click.testing import CliRunner

from cdc.letters.book import Logged
from console.cli.main import cli
from operations.letters import dropping
from operations.letters.found import FoundLetters
from operations.push.source import Source
from sinks.redis.stream.hooks import Refused
from tests.unit.operations.test_letters import letter
from tests.unit.operations.test_push_webhook import file_of


class Body:
    """In the place of bytes, whose end nobody sees."""


class Standing:
    """Letters of both kinds; one more comes while the question is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.cleared, self.asked = 3, list[Any](), list[str]()
        self.bodies, self.kept = list[ref[Body]](), 0
        monkeypatch.setattr(dropping, "find_letters", lambda *_: self.found())
        monkeypatch.setattr(Source, "letters", lambda _: self.refused())
        monkeypatch.setattr(Source, "drop_letters", lambda _, places: self.forget(places))
        monkeypatch.setattr("console.cli.shared.options.click.confirm", self.answer)

    def found(self) -> FoundLetters:
        log: Any = SimpleNamespace(clear=lambda cleared: self.forget(cleared.items()))
        made = FoundLetters(log)
        for at in range(self.count):
            which = made.healed if at == 0 else made.standing
            which[str(at).encode()] = Logged(letter(str(at)), at)
        return made

    def refused(self) -> list[Refused]:
        bodies: list[Any] = [Body() for _ in range(self.count)]
        self.bodies += map(ref, bodies)
        return [Refused(str(at).encode(), "hook", f"msg_{at}", 1.0, "no", 1, one) for at, one in enumerate(bodies)]

    def forget(self, those: Any) -> int:
        self.cleared += those
        return len(self.cleared)

    def answer(self, question: str, **_: Any) -> bool:
        self.asked.append(question)
        self.kept = sum(body() is not None for body in self.bodies)
        self.count += 5_000
        return True


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Standing:
    return Standing(monkeypatch)


CLEARED = {"letters": {(b"0", 0), (b"1", 1), (b"2", 2)}, "webhooks": {b"0", b"1", b"2"}}


def drop(tmp_path: Path, kind: str, *words: str) -> Any:
    verb = ["webhooks", "drop"] if kind == "webhooks" else ["drop"]
    return CliRunner().invoke(cli, ["letters", str(file_of(tmp_path)), *verb, *words])


@pytest.mark.parametrize("kind", ["letters", "webhooks"])
def test_what_has_come_while_it_was_asked_stays(tmp_path: Path, standing: Standing, kind: str) -> None:
    """`Forget 3 letters?`, and `5,003 letters forgotten`: it looked anew behind the answer."""
    told = drop(tmp_path, kind)
    assert told.exit_code == 0 and standing.asked == ["Forget 3 letters?"], told.output
    assert {*standing.cleared} == CLEARED[kind] and told.output.endswith("3 letters forgotten\n")


def test_no_body_is_kept_while_it_is_asked(tmp_path: Path, standing: Standing) -> None:
    """Of each of 100,000 letters it may be a MiB."""
    assert drop(tmp_path, "webhooks").exit_code == 0
    assert standing.asked and standing.bodies and standing.kept == 0


@pytest.mark.parametrize("kind", ["letters", "webhooks"])
def test_who_says_no_who_only_looks_and_who_is_not_asked(
    tmp_path: Path, standing: Standing, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("console.cli.shared.options.click.confirm", lambda *_, **__: False)
    assert drop(tmp_path, kind).exit_code == 1 and standing.cleared == []
    told = drop(tmp_path, kind, "--dry-run")
    assert told.exit_code == 0 and told.output.endswith("3 letters would be forgotten\n") and standing.cleared == []
    monkeypatch.setattr("console.cli.shared.options.click.confirm", standing.answer)
    assert drop(tmp_path, kind, "--yes").exit_code == 0
    assert standing.asked == [] and {*standing.cleared} == CLEARED[kind]


@pytest.mark.parametrize("kind", ["letters", "webhooks"])
def test_where_there_is_none_nobody_is_asked(tmp_path: Path, standing: Standing, kind: str) -> None:
    standing.count = 0
    told = drop(tmp_path, kind)
    assert told.exit_code == 0 and told.output.endswith("0 letters forgotten\n") and standing.asked == []
