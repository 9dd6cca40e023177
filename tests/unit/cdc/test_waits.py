"""A command that is kept waiting says for whom; one that asks for many things asks silent brokers once."""

from __future__ import annotations

import threading
import time

import pytest
from elastic_transport import ConnectionError as NoConnection

from cdc.errors import KafkaUnavailable, SinkUnavailable
from cdc.log import ends
from cdc.log.ends import LogEnds
from cdc.polling import poll
from cdc.waits import waited_for, waiting_for
from console.cli.shared.patience import saying_why
from sinks.elasticsearch.client import translated
from sinks.retry import Patience


@pytest.fixture(autouse=True)
def nobody_else_waits() -> None:
    """Threads that tests before have left in this process may still ask servers that have gone."""
    assert poll(waited_for, lambda found: found is None, 100, 0.2) is None


def told_now() -> str | None:
    wait = waited_for()
    return None if wait is None else wait.what


def test_the_innermost_wait_is_told_and_none_outlives_its_block() -> None:
    with pytest.raises(ValueError, match="x"), waiting_for("a"):
        with waiting_for("b"):
            assert told_now() == "b"
        assert told_now() == "a"
        raise ValueError("x")
    assert told_now() is None


def test_what_lasts_is_told_and_not_the_questions_of_a_moment_beside_it() -> None:
    asking, lines = threading.Event(), list[str]()

    def watch() -> None:
        while not asking.is_set():
            with waiting_for("Postgres: reading the list of captured tables"):
                time.sleep(0.01)

    with waiting_for("Spark to start"):
        watcher = threading.Thread(target=watch)
        watcher.start()
        with saying_why(lines.append, first=0.1):
            time.sleep(0.3)
    assert lines == ["waiting for Spark to start (0 s)"]
    with saying_why(lines.append, first=0.1):
        time.sleep(0.3)
    asking.set()
    watcher.join()
    assert lines[1:] == ["still at work (0 s)"]


def test_a_word_comes_late_and_not_behind_the_end() -> None:
    lines: list[str] = []
    with saying_why(lines.append, first=0.05), waiting_for("Kafka: where its topics end"):
        assert not lines
        time.sleep(0.4)
    with saying_why(lines.append, first=0.05):
        pass
    time.sleep(0.2)
    assert lines == ["waiting for Kafka: where its topics end (0 s)"]


def test_silent_brokers_are_asked_once_by_one_who_asks_for_many_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "TIMEOUT_SECONDS", 0.5)
    log = LogEnds("127.0.0.1:1", {})
    try:
        begun = time.monotonic()
        for _ in range(5):
            with pytest.raises(KafkaUnavailable, match="does not answer"):
                log.ends(["t"])
        assert 0.4 < time.monotonic() - begun < 1.0
        time.sleep(0.5)
        begun = time.monotonic()  # after a while they are asked again
        with pytest.raises(KafkaUnavailable):
            log.ends(["t"])
        assert time.monotonic() - begun > 0.4
    finally:
        log.close()


def test_a_sink_that_does_not_answer_is_named() -> None:
    told: list[str | None] = []
    patience = Patience("sink 'search'")

    def look() -> None:
        while waited_for() is None:
            time.sleep(0.001)
        told.append(told_now())

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(5):
        patience.hold("refused")
    looking.join(5)
    assert told == ["sink 'search'"]
    with pytest.raises(SinkUnavailable), translated("sink 'search'", "get"):
        assert told_now() == "sink 'search': get"
        raise NoConnection("refused")
    assert waited_for() is None
