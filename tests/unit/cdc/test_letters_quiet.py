"""The producer of dead letters while the brokers are away: it says nothing on the terminal, and whoever waits for it
tries again. And a letter that the topic takes, however large what it is about."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError as CoreError

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.letters.deadletter import DeadLetter
from cdc.log import letters
from cdc.pipeline import loads
from spark import failures
from tests.support.plain_file import plain_file

ONE = DeadLetter("cache", "t", "1", 8, "no", b'{"n":1}', generation=1)


def config(address: str, options: str = "") -> dict[str, Any]:
    """What ``send`` takes."""
    return letters.letters_config(loads(plain_file(address, options=options, kafka="max_message_bytes: 100000,")))


def mock(options: str = "") -> dict[str, Any]:
    """The brokers are librdkafka's own stand-in, inside the client, which make topics as Kafka's do by default."""
    made = config("127.0.0.1:1", f"test.mock.num.brokers: 1, {options}")
    return made | {"client": made["client"] | {"allow.auto.create.topics": "true"}}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "FLUSH_SECONDS", 0.5)


@pytest.fixture(params=["away", "frozen"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where nobody listens, or nobody answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if request.param == "frozen":
            silent.listen()
        yield f"127.0.0.1:{silent.getsockname()[1]}"


def test_it_is_quiet_while_the_brokers_are_away(capfd: pytest.CaptureFixture[str]) -> None:
    producer = letters._producer.__wrapped__(orjson.dumps({"bootstrap.servers": "127.0.0.1:1"}))
    until = time.monotonic() + 3
    while time.monotonic() < until:
        producer.poll(0.1)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("brief")
def test_brokers_that_are_away_end_no_flow(address: str) -> None:
    """Spark hands on words: of an error that says to wait, the runner starts the flow again."""
    with pytest.raises(KafkaUnavailable, match=r"1 dead letters were not acknowledged by p\.dead-letters") as error:
        letters.send(config(address), [ONE])
    assert not failures.refused(f"{failures.name_of(type(error.value))}: {error.value}")


def test_a_delivery_that_timed_out_ends_no_flow(address: str) -> None:
    """As for brokers that give up a letter before we do."""
    with pytest.raises(KafkaUnavailable, match=f"Kafka does not answer at {address}"):
        letters.send(config(address, "message.timeout.ms: 100"), [ONE])


@pytest.mark.usefixtures("brief")
def test_letters_do_not_pile_up_while_the_brokers_are_away(address: str) -> None:
    few = config(address, "queue.buffering.max.messages: 2")
    for _ in range(3):
        with pytest.raises(KafkaUnavailable, match="2 dead letters"):
            letters.send(few, [ONE, replace(ONE, key="2")])
    with pytest.raises(KafkaUnavailable, match="2 dead letters"):  # and so of more than it holds
        letters.send(few, [replace(ONE, key=str(number)) for number in range(9)])


def test_more_letters_than_a_producer_holds_are_sent() -> None:
    letters.send(mock("queue.buffering.max.messages: 2"), [replace(ONE, key=str(number)) for number in range(9)])


def test_what_lasts_is_said_rather_than_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def produce(self, topic: str, *, key: bytes, value: bytes, on_delivery: Any, headers: Any) -> None:
            assert (topic, key, DeadLetter.from_json(value)) == (
                "p.dead-letters",
                ONE.record_key(),
                ONE,
            ) and not headers
            self.told.append(on_delivery)

        def poll(self, _seconds: float) -> None:
            pass

        def flush(self, _seconds: float) -> int:
            codes = (CoreError._MSG_TIMED_OUT, CoreError.TOPIC_AUTHORIZATION_FAILED, CoreError._MSG_TIMED_OUT)
            for told, code in zip(self.told, codes, strict=True):
                told(CoreError(code), None)
            return 1

    producer = Refusing()
    made = type("Cache", (), {"__call__": lambda _self, _settings: producer, "cache_clear": lambda _self: None})
    monkeypatch.setattr(letters, "_producer", made())
    with pytest.raises(KafkaError, match="uthorization failed") as error:
        letters.send(config("127.0.0.1:1"), [ONE, ONE, ONE])
    assert not error.value.transient and "write" in error.value.fix


# -- as large as it may be ---------------------------------------------------------------------------------------------

PARTS = {
    "a joined document": orjson.dumps({"rows": ["x" * 100] * 3000}),
    "quotes": orjson.dumps([""] * 60_000),
    "signs that are escaped": b"\x01" * 80_000,
    "escapes behind plain text": b"x" * 150_000 + b"\x01" * 20_000,
    "escapes before plain text": b"\x01" * 20_000 + b"x" * 150_000,
    "characters of three bytes": ("x" + "€" * 100_000).encode(),
    "no text": b"\xff\x00" * 70_000,
}


@pytest.mark.parametrize("document", PARTS.values(), ids=PARTS)
def test_a_letter_is_cut_to_what_the_topic_takes(document: bytes) -> None:
    settings = mock()
    letter = replace(ONE, reason="no\n" * 2000, document=document)
    letters.send(settings, [letter])
    key, value, _ = letters._record(settings, letter)
    most = settings["client"]["message.max.bytes"]
    assert most / 2 < len(key) + len(value) < most, "by little more than it must be"
    kept = DeadLetter.from_json(value)
    assert kept.document and document.startswith(kept.document) and kept.document_bytes == len(document)
    told = orjson.loads(value)
    assert len(told["document_sha256"]) == 64
    assert ("document_base64" in told) == (document == PARTS["no text"])


def test_what_fits_is_whole() -> None:
    settings = config("127.0.0.1:1")
    told = orjson.loads(letters._record(settings, replace(ONE, document=b"x" * 160_000))[1])
    assert len(told["document"]) == 160_000 and not {"document_bytes", "document_sha256"} & told.keys()
    told = orjson.loads(letters._record(settings, replace(ONE, document=b"\xff" * 120_000))[1])
    assert len(base64.b64decode(told["document_base64"])) == 120_000 and "document_bytes" not in told


@pytest.mark.parametrize("document", ["x" * 100, "€", "€€"])
@pytest.mark.parametrize("most", [200, 600, 640])
def test_where_there_is_no_room_the_document_is_left_out(document: str, most: int) -> None:
    value = replace(ONE, key="k" * 300, document=document.encode()).to_json(most)
    assert document.startswith(orjson.loads(value)["document"]) and len(value) < 700
