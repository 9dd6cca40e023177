"""Brokers that let nobody in, and options that no client takes: neither is an outage, for which everything waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as CoreError

from cdc.errors import ConfigError, KafkaRefused, KafkaUnavailable
from cdc.letters.deadletter import DeadLetter
from cdc.log import ends, letter_log, letters, opening
from cdc.log import topic_ids as topics
from cdc.log.client import Kafka
from cdc.log.ends import LogEnds
from cdc.log.forgotten import forget_sinks
from cdc.log.opening import Heard
from cdc.log.parts import TopicReader
from cdc.log.records import records
from cdc.pipeline import Pipeline, loads
from connectors.snapshots import signals
from connectors.snapshots.cut_snapshot import write_deletes
from connectors.snapshots.signals import send_snapshot_signal
from tests.support.plain_file import plain_file
from tests.support.tls import https, own_authority
from tests.support.wary_brokers import WRONG, wary_broker

LOGIN = "security.protocol: SASL_PLAINTEXT, sasl.mechanisms: PLAIN, sasl.username: u, sasl.password: s3cret"
LETTER = DeadLetter("cache", "t", "1", 8, "no", b'{"n":1}', generation=1)


def pipeline(address: str, options: str = LOGIN) -> Pipeline:
    return loads(plain_file(address, options=options))


def kafka(of: Pipeline) -> Kafka:
    return Kafka(of, seconds=1.0)


def log_ends(of: Pipeline) -> LogEnds:
    return LogEnds(of.kafka.bootstrap, of.kafka.options_plain())


def by_letters(of: Pipeline) -> None:
    letters.send(letters.letters_config(of), [LETTER])


ASKED: dict[str, Callable[[Pipeline], Any]] = {
    "topics": lambda of: kafka(of).describe(["p.public.t"]),
    "ends of topics": lambda of: kafka(of).ends({"p.public.t": 1}),
    "ends of flows": lambda of: log_ends(of).ends(["p.public.t"]),
    "ids": lambda of: topics.topic_ids(of, {"p.public.t"}),
    "letters": by_letters,
    "letters that are forgotten": lambda of: forget_sinks(of, ["cache"]),
    "records": lambda of: list(records(kafka(of), "p.public.t", 0)),
    "parts": lambda of: TopicReader(kafka(of), "p.public.t", 1.0).bounds(),
    "signals": lambda of: send_snapshot_signal(kafka(of), of, {"public.t": None}),
    "deletes": lambda of: write_deletes(kafka(of), "p.public.t", [(0, b"k", b"v")]),
}


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(letters, "FLUSH_SECONDS", 1.0)
    monkeypatch.setattr(topics, "SECONDS", 1.0)
    monkeypatch.setattr(signals, "SECONDS", 1.0)
    monkeypatch.setattr(letter_log, "Kafka", kafka)
    monkeypatch.setattr("cdc.log.records.SILENCE_SECONDS", 1.0)
    monkeypatch.setattr("connectors.snapshots.cut_snapshot.SILENCE_SECONDS", 1.0)


@pytest.fixture(scope="module")
def wary() -> Iterator[str]:
    with wary_broker() as address:
        yield address


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_login_that_is_refused_is_no_outage(ask: Callable[[Pipeline], Any], wary: str) -> None:
    with pytest.raises(KafkaRefused, match=f"refuses the login: .*{WRONG}\n") as told:
        ask(pipeline(wary))
    assert "kafka.options" in told.value.fix and "s3cret" not in str(told.value)


@pytest.mark.parametrize("ask", [ASKED["topics"], ASKED["ends of flows"], ASKED["ids"], by_letters])
def test_a_broker_that_goes_away_in_the_middle_of_a_login_is_waited_for(ask: Callable[[Pipeline], Any]) -> None:
    with wary_broker(hang_up=True) as address, pytest.raises(KafkaUnavailable):
        ask(pipeline(address))


@pytest.mark.parametrize("ask", [ASKED["topics"], ASKED["ends of flows"], by_letters])
def test_a_certificate_that_is_not_trusted_is_no_outage(ask: Callable[[Pipeline], Any], tmp_path: Path) -> None:
    untrusted = pytest.raises(KafkaRefused, match=r"can't be trusted, or has no TLS: .*certificate verify failed")
    with https(own_authority(tmp_path), BaseHTTPRequestHandler) as url, untrusted as told:
        ask(pipeline(url.removeprefix("https://"), "security.protocol: SSL"))
    assert "ssl.ca.location" in told.value.fix


def test_who_asks_for_many_flows_is_told_of_each_at_once(wary: str) -> None:
    log = log_ends(pipeline(wary))
    log.keep(["p.public.t", "p.public.u"])
    assert WRONG in log.silence
    begun = time.monotonic()
    for _ in range(2):
        with pytest.raises(KafkaRefused, match=WRONG):
            log.ends(["p.public.t"])
    assert time.monotonic() - begun < 0.5


REFUSED = CoreError(CoreError._AUTHENTICATION, f"sasl://h:1/1: SASL authentication error: {WRONG}")
ALL_DOWN = CoreError(CoreError._ALL_BROKERS_DOWN, "1/1 brokers are down")
AWAY = CoreError(CoreError._TRANSPORT, "ssl://h:1/1: Connect to ipv4#h:1 failed: Connection refused")
HALF_TLS = CoreError(CoreError._TRANSPORT, "ssl://h:1/1: error:0A000086:SSL routines::certificate verify failed")
NO_TOKEN = CoreError(CoreError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: Could not resolve host")
HALF = CoreError(CoreError._SSL, "ssl://h:1/1: SSL handshake failed: Disconnected: connecting to a PLAINTEXT listener?")


@pytest.mark.parametrize(
    ("said", "lasts"),
    [
        ([], False),
        ([REFUSED, REFUSED], False),
        ([REFUSED, ALL_DOWN, REFUSED, REFUSED, ALL_DOWN], True),
        ([REFUSED, REFUSED, REFUSED, AWAY], False),
        ([REFUSED, REFUSED, AWAY, REFUSED], False),
        ([HALF_TLS] * 3, True),
        ([NO_TOKEN] * 3, False),
        ([HALF] * 3, False),
    ],
)
def test_only_what_is_said_again_and_again_lasts(said: list[CoreError], lasts: bool) -> None:
    """A broker that starts may not know its users yet, and `run` must not end for that."""
    heard = Heard()
    for error in said:
        heard(error)
    assert (heard.refusal("asking", "h:1") is not None) == lasts


def test_a_refusal_of_long_ago_is_not_why_there_is_no_answer_now(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    for _ in range(3):
        heard(REFUSED)
    monkeypatch.setattr(opening, "RECENT_SECONDS", -1.0)
    assert heard.refusal("asking", "h:1") is None


def told_topics(of: Pipeline) -> Heard:
    asks = kafka(of)
    refused(asks.heard)
    asks.describe([])
    return asks.heard


def told_ends(of: Pipeline) -> Heard:
    asks = log_ends(of)
    refused(asks._heard)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asks, "_partitions", lambda _: ({}, {}))
        asks._asked(["p.public.t"])
    return asks._heard


def told_ids(_of: Pipeline) -> Heard:
    heard, answer = Heard(), Future[Any]()
    answer.set_result(SimpleNamespace(topic_id="x"))
    refused(heard)
    admin: Any = SimpleNamespace(describe_topics=lambda *_, **__: {"p.public.t": answer}, poll=lambda _: None)
    assert topics.ids_of(admin, {"p.public.t"}, "", heard=heard) == {"p.public.t": "x"}
    return heard


def refused(heard: Heard) -> None:
    for _ in range(3):
        heard(REFUSED)
    assert heard.refusal("asking", "h:1") is not None


@pytest.mark.parametrize("let_in", [told_topics, told_ends, told_ids])
def test_who_was_let_in_since_is_not_told_of_a_refusal_of_before(let_in: Callable[[Pipeline], Heard]) -> None:
    """An outage within a minute after it was told as a login that is refused."""
    assert let_in(pipeline("127.0.0.1:1", "test.mock.num.brokers: 1")).refusal("asking", "h:1") is None


OPTIONS = {
    "security.protocl: SSL": 'No such configuration property: "security.protocl"',
    "security.protocol: SSL, ssl.ca.location: /nope.pem": "ssl.ca.location failed",
}


@pytest.mark.parametrize(("options", "why"), OPTIONS.items(), ids=["a typo", "no file"])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_what_no_client_takes_is_told_as_an_option(ask: Callable[[Pipeline], Any], options: str, why: str) -> None:
    """It was a traceback."""
    with pytest.raises(ConfigError, match=r"^kafka\.options: ") as told:
        ask(pipeline("127.0.0.1:1", options))
    assert told.value.what.startswith(f"kafka.options: {why}")
