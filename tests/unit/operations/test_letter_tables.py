"""Letters of a warehouse: its tables are asked seldom, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkUnavailable
from cdc.letters.book import Book, Logged
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline, loads
from cdc.view import View
from operations.letters.tables import Given, TableLetters, asks_tables
from operations.letters.watch import LetterWatch
from sinks.contract import Held
from sinks.iceberg.target import IcebergTarget
from tests.support.entry_cases import TABLE

FILE = """\
version: 1
name: p
source: {{database: d, user: u, tables: [public.t]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{t: {{root: t}}}}
sinks:
  cache: {{type: redis, url: "redis://127.0.0.1:1", view: t}}
  lake: {{type: iceberg, catalog_uri: {folder}/c.db, warehouse: {folder}/w, namespace: n, tables: all}}
engine: {{state_dir: {folder}}}
"""


class Lake(IcebergTarget):
    """A table of some versions, which counts how often it is read."""

    def __init__(self, **held: int) -> None:
        self.held, self.state, self.reads, self.away = held, 1, 0, False

    def snapshot(self, target: str) -> int | None:
        return self.state

    def versions(self, target: str, keys: Any) -> dict[str, int]:
        self.reads += 1
        if self.away:
            raise SinkUnavailable("the bucket is away")
        return {key: self.held[key] for key in keys if key in self.held}

    def get(self, target: str, keys: Any) -> dict[str, Held]:
        return {}


class Cache:
    """Holds a newer version of each key."""

    def versions(self, _view: str, keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 99)


def letter(sink: str, key: str, **more: Any) -> DeadLetter:
    return DeadLetter(sink, "t", key, 8, "no", topic="p.public.t", partition=0, offset=3, generation=1, **more)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake()

    def holding(build: Any, _view: Any) -> AbstractContextManager[Any]:
        return nullcontext(SimpleNamespace(target=made if build.warehouse else Cache()))

    monkeypatch.setattr("operations.letters.judge.holding", holding)
    monkeypatch.setattr("operations.letters.tables.holding", holding)
    return made


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(FILE.format(folder=tmp_path), "p.yaml")


def build(sink: str) -> Any:
    view = View.identity(TABLE)
    return SimpleNamespace(sink=sink, number=1, warehouse=sink == "lake", views=[view], views_of=lambda table: [view])


def given(pipeline: Pipeline, *letters: DeadLetter, at: int = 0) -> Given:
    logged = {one.key.encode(): Logged(one, at) for one in letters}
    return Given(pipeline, logged, {("lake", 1): build("lake")}, {"lake": 1})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr("operations.letters.tables.time", SimpleNamespace(monotonic=lambda: now[0]))
    yield now


def test_a_look_reads_no_table_and_clears_what_others_have_healed(
    lake: Lake, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter of a warehouse had its whole table read every five seconds, and those of other sinks stood as long."""
    book = Book()
    cleared: list[dict[bytes, int]] = []
    for at, one in enumerate((letter("lake", "a"), letter("cache", "b"))):
        book.take(one.key.encode(), one.to_json(), at)
    monkeypatch.setattr(LetterWatch, "_follow", lambda *_: SimpleNamespace(book=book, clear=cleared.append))
    engine = SimpleNamespace(pipeline=pipeline, paused={}, builds=[build("lake"), build("cache")])
    watch = LetterWatch(cast(Any, engine))
    assert watch.look() == 1
    assert cleared == [{b"b": 1}] and lake.reads == 0
    lake.held["a"] = 9
    watch._tables.look()
    assert watch.look() == 2, "what the table has told by then is cleared with the next look"
    assert cleared[1] == {b"a": 0, b"b": 1} and lake.reads == 1


def test_a_table_is_read_again_only_after_a_pause_and_when_it_is_another(
    lake: Lake, pipeline: Pipeline, clock: list[float]
) -> None:
    asked, one = TableLetters(300.0), letter("lake", "a")
    for at, state, reads in ((0, 1, 1), (100, 2, 1), (301, 2, 2), (700, 2, 2), (1100, 3, 3)):
        clock[0], lake.state = 1000.0 + at, state
        asked.give(given(pipeline, one))
        asked.look()
        assert lake.reads == reads, at
    clock[0] += 301
    asked.give(given(pipeline, one, letter("lake", "b")))
    asked.look()
    assert lake.reads == 4, "a letter that came since may have been healed before"
    clock[0] += 301
    asked.give(given(pipeline, one, letter("lake", "b"), at=5))
    asked.look()
    assert lake.reads == 5, "and one that came again"


def test_what_was_found_is_told_until_the_letter_is_gone(lake: Lake, pipeline: Pipeline, clock: list[float]) -> None:
    asked, one = TableLetters(), letter("lake", "a")
    lake.held["a"] = 9
    assert asked.give(given(pipeline, one)) == {}
    asked.look()
    assert [asked.give(given(pipeline, one)) for _ in range(2)] == [{b"a": 0}] * 2
    assert asked.give(given(pipeline, one, at=4)) == {}, "another letter of the key has come"
    assert asked.give(given(pipeline)) == {}


def test_a_table_that_did_not_answer_is_asked_again_after_the_pause(
    lake: Lake, pipeline: Pipeline, clock: list[float]
) -> None:
    asked, one = TableLetters(300.0), letter("lake", "a")
    lake.away, lake.held["a"] = True, 9
    for at, reads in ((0, 1), (10, 1), (301, 2)):
        clock[0] = 1000.0 + at
        asked.give(given(pipeline, one))
        asked.look()
        assert lake.reads == reads
        lake.away = False
    assert asked.give(given(pipeline, one)) == {b"a": 0}


def test_of_many_letters_each_has_its_turn(
    lake: Lake, pipeline: Pipeline, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.letters.tables.TURN", 2)
    asked, letters = TableLetters(300.0), [letter("lake", key) for key in "abc"]
    lake.held["c"] = 9
    for at in (0, 301):
        clock[0], lake.state = 1000.0 + at, at
        asked.give(given(pipeline, *letters))
        asked.look()
    assert asked.give(given(pipeline, *letters)) == {b"c": 0}


def test_a_record_that_could_not_be_read_is_asked_of_its_tables_and_a_childs_of_the_row_store() -> None:
    made = build("lake")
    record = DeadLetter("lake", "", '{"id":1}', 8, "no", table=TABLE.qualified)
    assert asks_tables(made, record) and asks_tables(made, letter("lake", "a"))
    assert not asks_tables(made, letter("lake", "a", table="public.parts"))
    assert not asks_tables(build("cache"), letter("cache", "a"))
