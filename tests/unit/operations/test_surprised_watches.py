"""What looks in the background while `run` works goes on after an error that nobody has thought of, and says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from cdc.errors import SourceUnavailable
from cdc.pipeline import Pipeline, loads
from cdc.polling import poll
from operations.push import webhooks
from operations.push.webhooks import Webhooks
from operations.run import source_watch
from operations.run.source_watch import SourceWatch
from operations.schema import watch as shape_watch
from operations.schema.watch import ShapeWatch
from spark import log_gaps
from tests.support.watched_file import TEXT

SURPRISE = "a defect"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


class Looks:
    """Is surprised by the first look, and counts them."""

    count = 0

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.count += 1
        if self.count == 1:
            raise RuntimeError(SURPRISE)
        return {}

    def go_on(self) -> bool:
        """Whether there is another look after the first, and one after that."""
        return poll(lambda: self.count, lambda count: count > 2, 10.0, 0.02) > 2


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "cdc.repeating")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "cdc.repeating"]


@pytest.mark.parametrize(
    ("cause", "rests"),
    [(psycopg.errors.QueryCanceled("long"), True), (psycopg.OperationalError("gone"), False), (None, False)],
    ids=["cut by the server", "the network was away", "no connection"],
)
def test_only_a_look_that_was_too_much_for_the_server_is_followed_by_a_long_rest(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, cause: Exception | None, rests: bool
) -> None:
    """After an outage no ALTER was looked for, for up to five minutes."""
    monkeypatch.setattr(shape_watch.Repeating, "start", lambda _: None)
    monkeypatch.setattr(shape_watch, "within", lambda *_: nullcontext())
    watch = ShapeWatch(pipeline)
    watch._took = 9.0  # of the look before

    def fail(*_: Any) -> None:
        watch_time[0] += 70.0
        raise SourceUnavailable("no answer") from cause

    watch_time = [0.0]
    monkeypatch.setattr(shape_watch, "time", SimpleNamespace(monotonic=lambda: watch_time[0]))
    here = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(shape_watch, "connect", fail if cause is None else lambda _: here)
    monkeypatch.setattr(shape_watch, "fingerprint", fail)
    watch._work()
    assert watch._pause() == (shape_watch.LONGEST_SECONDS if rests else shape_watch.LOOK_SECONDS)


def test_the_source_is_watched_on(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    """It ended, and nobody learned that gaps, a connector that fails and the WAL were looked at no more."""
    monkeypatch.setattr(source_watch, "check_source", lambda *_: None)
    monkeypatch.setattr(source_watch, "TABLE_SECONDS", 0.01)
    watch, looks = SourceWatch(pipeline), Looks()
    with watch:
        monkeypatch.setattr(watch._tables, "look", looks)
        assert looks.go_on() and watch.error is None
    assert said() == [f"source watch: RuntimeError: {SURPRISE}"]


def test_webhooks_are_followed_on(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    looks = Looks()
    monkeypatch.setattr(webhooks, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(webhooks, "outlets", looks)
    with Webhooks(lambda: (pipeline, ()), print):
        assert looks.go_on()
    assert said() == [f"webhooks: RuntimeError: {SURPRISE}"]


def test_shapes_are_looked_at_on_over_another_connection(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    looks, opened, closed = Looks(), list[int](), list[int]()

    def connect(_source: object) -> Any:
        opened.append(1)
        return SimpleNamespace(close=lambda: closed.append(1))

    monkeypatch.setattr(shape_watch, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(shape_watch, "connect", connect)
    monkeypatch.setattr(shape_watch, "fingerprint", looks)
    monkeypatch.setattr(shape_watch, "read_shapes", lambda *_, **__: ({}, {}))
    watch = ShapeWatch(pipeline)
    try:
        assert looks.go_on()
    finally:
        watch.close()
    assert said() == [f"shape watch: RuntimeError: {SURPRISE}"] and len(opened) == len(closed) == 2


@pytest.mark.parametrize(("took", "pause"), [(0.01, 1.0), (2.0, 40.0), (60.0, 300.0)])
def test_looks_at_shapes_leave_the_primary_most_of_its_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, took: float, pause: float
) -> None:
    """Of 365,000 columns of partitions each took a second, each second; and past a minute nobody learned of it."""
    watch, now = ShapeWatch(pipeline), [0.0]
    watch.close()
    watch._watching.join(5.0)

    def looks(*_: Any) -> str:
        now[0] += took
        if took >= 60.0:
            raise SourceUnavailable("took longer than 60 s") from psycopg.errors.QueryCanceled("long")
        return "print"

    monkeypatch.setattr(shape_watch, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(shape_watch, "fingerprint", looks)
    monkeypatch.setattr(shape_watch, "read_shapes", lambda *_, **__: ({}, {}))
    monkeypatch.setattr(shape_watch, "within", lambda *_: nullcontext())
    monkeypatch.setattr(shape_watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    caplog.clear()
    for _ in range(2):
        watch._work()
        assert watch._pause() == pause
    told = [record.getMessage() for record in caplog.records if record.name == shape_watch.__name__]
    assert len(told) == (took >= 60.0) and all("within 60 s whether captured tables" in one for one in told)


def test_the_log_is_looked_at_on(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    looks = Looks()
    monkeypatch.setattr(log_gaps, "LogEnds", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(log_gaps, "_ends", looks)
    watch = log_gaps.LogWatch()
    reading = SimpleNamespace(bootstrap="", client={}, tombstone_seconds=0.1)
    watch.look(SimpleNamespace(spec=SimpleNamespace(topics=["t"]), reading=reading))  # type: ignore[arg-type]
    try:
        assert looks.go_on()
    finally:
        watch.close()
    assert said() == [f"log watch: RuntimeError: {SURPRISE}"]
