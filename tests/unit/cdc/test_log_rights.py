"""Brokers with ACLs: a right that is missing is named and lasts; that on a reader's group stops nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as CoreError
from confluent_kafka import KafkaException

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log import client, ends, records
from cdc.log.client import Kafka
from cdc.log.ends import LogEnds
from cdc.log.parts import TopicReader
from cdc.log.refusals import translate
from cdc.log.slices import Slice, SliceReader
from cdc.pipeline import loads
from tests.support.brokers import Brokers
from tests.support.plain_file import plain_file

TOPIC = "p.public.t"


class Message:
    """A record, or what librdkafka has to say instead; that of no topic where it is said of the group."""

    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset, self._error = offset, None if error is None else CoreError(error)

    def error(self) -> CoreError | None:
        return self._error

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str | None:
        return None if self._of_the_group() else TOPIC

    def partition(self) -> int:
        return -1 if self._of_the_group() else 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def _of_the_group(self) -> bool:
        return self._error is not None and self._error.code() == CoreError.GROUP_AUTHORIZATION_FAILED


class Reader:
    """In place of a ``Consumer``: a partition of two records, after what it says first; the last of that for ever."""

    said: list[int]

    def __init__(self, _settings: Any) -> None:
        self._left: list[Message] = [Message(0, error) for error in self.said] + [Message(0), Message(1)]

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, 2

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def assign(self, _places: Any) -> None:
        """Nothing."""

    unassign = close = lambda self: None

    def poll(self, _timeout: float) -> Message:
        return self._left.pop(0) if self._left else Message(2, CoreError._PARTITION_EOF)

    def consume(self, _count: int, timeout: float) -> list[Message]:
        return [self.poll(timeout)]


def by_records(kafka: Kafka) -> Iterator[Any]:
    yield from records.records(kafka, TOPIC, 0)


def by_parts(kafka: Kafka) -> Iterator[Any]:
    with TopicReader(kafka, TOPIC) as reader:
        for piece in reader.pieces(reader.bounds()):
            yield from piece


def by_slices(kafka: Kafka) -> Iterator[Any]:
    yield from SliceReader(kafka).read([Slice(TOPIC, 0, 0, 2)])


READERS = pytest.mark.parametrize("read", [by_records, by_parts, by_slices])
Read = Callable[[Kafka], Iterator[Any]]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    monkeypatch.setattr(client, "Consumer", Reader)
    return Kafka(loads(plain_file()))


@READERS
def test_without_the_right_to_its_group_a_reader_reads(
    monkeypatch: pytest.MonkeyPatch, kafka: Kafka, read: Read
) -> None:
    """Nothing is ever committed to it; librdkafka looks for its coordinator all the same, and says what it was told."""
    monkeypatch.setattr(Reader, "said", [CoreError.GROUP_AUTHORIZATION_FAILED], raising=False)
    assert [message.offset() for message in read(kafka)] == [0, 1]


@READERS
def test_a_topic_that_may_not_be_read_is_no_outage(monkeypatch: pytest.MonkeyPatch, kafka: Kafka, read: Read) -> None:
    """It was tried again for ever, or passed over."""
    monkeypatch.setattr(Reader, "said", [CoreError.TOPIC_AUTHORIZATION_FAILED], raising=False)
    with pytest.raises(KafkaError, match=r"topic p\.public\.t") as told:
        list(read(kafka))
    assert not told.value.transient and "the right to read" in told.value.fix


def test_a_group_that_is_all_one_hears_of_is_silence(monkeypatch: pytest.MonkeyPatch, kafka: Kafka) -> None:
    monkeypatch.setattr(Reader, "said", [CoreError.GROUP_AUTHORIZATION_FAILED] * 3, raising=False)
    monkeypatch.setattr(records, "SILENCE_SECONDS", -1.0)
    with pytest.raises(KafkaUnavailable, match="could not be read"):
        list(by_records(kafka))


def test_a_topic_whose_next_record_may_not_be_read_has_no_age_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that was far behind was told as 0 s old."""
    monkeypatch.setattr(ends, "Consumer", Reader)
    for said, refused in ((CoreError.GROUP_AUTHORIZATION_FAILED, False), (CoreError.TOPIC_AUTHORIZATION_FAILED, True)):
        monkeypatch.setattr(Reader, "said", [said], raising=False)
        log = LogEnds("127.0.0.1:1", {})
        if not refused:
            assert log.lag({TOPIC: {0: 2}}, {TOPIC: {0: 0}}).seconds > 0
            continue
        with pytest.raises(KafkaError) as told:
            log.lag({TOPIC: {0: 2}}, {TOPIC: {0: 0}})
        assert not told.value.transient


def test_a_topic_that_one_may_not_see_is_not_told_as_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice was `apply`, which can't make what is there."""
    brokers = Brokers({"t": {0: (0, 2)}, "u": {0: (0, 2)}})
    brokers.hidden = {"t"}
    monkeypatch.setattr(ends, "AdminClient", lambda _settings: brokers)
    log = LogEnds("h:1", {})
    with pytest.raises(KafkaError, match="topic t") as told:
        log.ends(["t", "u"])
    assert not told.value.transient and "does not exist" not in told.value.what and "the right to" in told.value.fix
    assert log.ends(["u"]) == {"u": {0: 2}} and log.silence == ""


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (CoreError.TOPIC_AUTHORIZATION_FAILED, "the pipeline's topics"),
        (CoreError.GROUP_AUTHORIZATION_FAILED, "consumer groups that begin with headwater-"),
        (CoreError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional ids that begin with headwater-erase."),
        (CoreError.CLUSTER_AUTHORIZATION_FAILED, "create topics"),
    ],
)
def test_the_right_that_is_missing_is_named(code: int, right: str) -> None:
    told = translate("doing", KafkaException(CoreError(code)), "h:1")
    assert not told.transient and right in told.fix and "rights-in-kafka" in told.fix


def test_a_name_that_is_not_resolved_may_be_in_a_moment() -> None:
    assert translate("doing", KafkaException(CoreError(CoreError._RESOLVE)), "h:1").transient


# All that https://kafka.apache.org/protocol (4.3) calls retriable, as far as librdkafka knows it; share groups apart.
RETRIABLE = (2, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89, 100, 103)


@pytest.mark.parametrize("code", [*RETRIABLE, CoreError._WAIT_COORD])
def test_what_passes_by_itself_is_not_final(code: int) -> None:
    """A broker whose new leader is not caught up, or whose disk has failed, ended flows and commands for good."""
    told = translate("doing", KafkaException(CoreError(code)), "h:1")
    assert told.transient and "correct what" not in told.fix
    assert ("does not answer" in told.what) == (code == CoreError._WAIT_COORD), "brokers have answered"


def test_a_topic_that_is_not_there_does_not_come_by_itself() -> None:
    """Kafka calls it retriable, for topics that are being made."""
    told = translate("doing", KafkaException(CoreError(CoreError.UNKNOWN_TOPIC_OR_PART)), "h:1")
    assert not told.transient and "apply" in told.fix


@pytest.mark.parametrize("code", [CoreError.MSG_SIZE_TOO_LARGE, CoreError.POLICY_VIOLATION, CoreError.UNKNOWN])
def test_what_lasts_is_final(code: int) -> None:
    assert not translate("doing", KafkaException(CoreError(code)), "h:1").transient
