"""What `status` says of servers that do not answer: each is named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log.ends import LogEnds
from operations.status.sinks import status_report
from operations.status.source import line
from tests.support.brokers import Brokers
from tests.support.json_examples import flights


def test_kafka_is_named_beside_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Kafka does not answer: no broker"
    log = SimpleNamespace(silence="", close=lambda: None, keep=lambda _topics: None)
    monkeypatch.setattr("operations.status.sinks.LogEnds", lambda *given: log)
    pipeline = flights(tmp_path)
    alone = status_report(pipeline)["source"]["error"]
    assert "Connect" in alone and "Kafka does" not in alone
    log.silence = said
    source = status_report(pipeline)["source"]
    assert source["error"] == f"{alone}; {said}" and said in line(source)


def test_why_the_brokers_were_silent_is_known_until_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.log.ends.TIMEOUT_SECONDS", 0.0)
    log = LogEnds("127.0.0.1:1", {})
    assert log.silence == ""

    log._admin = brokers = Brokers({})  # type: ignore[assignment]
    brokers.away = True
    with pytest.raises(KafkaUnavailable):
        log.ends(["t"])
    assert log.silence.startswith("Kafka does not answer")
    brokers.away = False
    with pytest.raises(KafkaError, match="does not exist"):
        log.ends(["t"])
    assert log.silence == ""
