"""A command that is kept waiting says for whom; one that asks for many things asks silent brokers once."""

from __future__ import annotations

import time

import pytest

from cdc.errors import KafkaUnavailable
from cdc.log import ends
from cdc.log.ends import LogEnds
from cdc.waits import waited_for, waiting_for
from console.cli.patience import saying_why


def test_the_youngest_wait_is_told_and_none_outlives_its_block() -> None:
    with pytest.raises(ValueError, match="x"), waiting_for("a"):
        with waiting_for("b"):
            assert waited_for() == "b"
        assert waited_for() == "a"
        raise ValueError("x")
    assert waited_for() is None


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
