"""The brokers: their topics as they are, changes to them, where they end, and a consumer of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as CoreError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tenacity import retry, retry_if_exception_type, wait_exponential

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log.asking import offsets_asked
from cdc.log.opening import Heard, opened, watched
from cdc.log.refusals import translate
from cdc.log.topic_ids import ids_of
from cdc.pipeline import Pipeline
from cdc.polling import poll
from cdc.waits import waiting_for

# Brokers that do not answer within this time are down for an operator who waits at a terminal.
SECONDS = 15.0
ATTEMPTS = 3
T = TypeVar("T")
# The end of a partition is told by an event: offsets count transaction markers, which a reader never sees.
PARTITION_EOF = CoreError._PARTITION_EOF


@dataclass(frozen=True)
class Topic:
    """A topic as it is, or as it should be.

    Attributes:
        name: the topic.
        partitions: how many.
        replication: copies of each partition.
        config: the settings that differ from the broker's defaults, or that we want.
        holds: what is in it, of one that should be there: it decides how it may be made anew.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    holds: Literal["rows", "events", "position", "letters", "signs"] = "rows"


def _patient(function: Callable[..., T]) -> Callable[..., T]:
    """Ask again when a leader moves or a broker restarts: a client's first answer after that is often an error."""
    retrying = retry(
        retry=retry_if_exception_type(KafkaUnavailable),
        stop=lambda asked: asked.attempt_number >= asked.args[0].attempts,
        wait=wait_exponential(multiplier=0.5, max=3.0),
        reraise=True,
    )
    return retrying(function)


class Kafka:
    """The brokers of a pipeline.

    Args:
        pipeline: for bootstrap and client options.
        seconds: how long a request may take.

    Attributes:
        settings: of each client of these brokers.
        heard: why the brokers let none of them in.

    Raises:
        ConfigError: librdkafka does not take ``kafka.options`` (terminal).
    """

    def __init__(self, pipeline: Pipeline, seconds: float = SECONDS) -> None:
        self.seconds, self.attempts = seconds, ATTEMPTS
        self.bootstrap = pipeline.kafka.bootstrap
        self.heard = Heard()
        self.settings = watched(pipeline.kafka.client(), self.heard)
        self.admin = opened(AdminClient, self.settings)

    def impatient(self, seconds: float) -> Kafka:
        """The same client for who would rather have no answer than wait: it asks once.

        Args:
            seconds: how long a request may take.
        """
        other = copy(self)
        other.seconds, other.attempts = seconds, 1
        return other

    @waiting_for("Kafka: which topics there are")
    @_patient
    def partitions(self, names: Collection[str]) -> dict[str, int]:
        """How many partitions the topics among ``names`` have that exist: one question, however many they are.

        Raises:
            KafkaUnavailable: the brokers do not answer (transient).
        """
        found = self._listed()
        return {name: len(found[name].partitions) for name in names if name in found}

    @waiting_for("Kafka: which topics there are")
    @_patient
    def describe(self, names: Collection[str]) -> dict[str, Topic]:
        """The topics among ``names`` that exist, with the settings that were set on each of them.

        Raises:
            KafkaUnavailable: the brokers do not answer (transient).
        """
        found = self._listed()
        there = [name for name in sorted(names) if name in found]
        if not there:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
        out = {}
        for resource, future in self.admin.describe_configs(resources, request_timeout=self.seconds).items():
            entries = self._result("reading topic settings", future)
            own = {name: entry.value for name, entry in entries.items() if not entry.is_default and entry.source == 1}
            partitions = found[resource.name].partitions
            copies = len(next(iter(partitions.values())).replicas) if partitions else 0
            out[resource.name] = Topic(resource.name, len(partitions), copies, own)
        return out

    @_patient
    def beginning(self, begins: Collection[str]) -> list[str]:
        """The names of topics that begin with one of these.

        Raises:
            KafkaUnavailable: the brokers do not answer (transient).
        """
        return sorted(name for name in self._listed() if name.startswith(tuple(begins)))

    @_patient
    def ids(self, names: Collection[str]) -> dict[str, str]:
        """The brokers' own ids of those of the topics that are there: one that was made anew has another.

        Raises:
            KafkaUnavailable: the brokers do not answer (transient).
        """
        return ids_of(self.admin, names, self.bootstrap, missing_ok=True, heard=self.heard)

    def create(self, topic: Topic) -> None:
        """Create a topic and wait until the brokers know it; no error if it exists.

        Raises:
            KafkaError: refused (terminal).
            KafkaUnavailable: no answer (transient).
        """
        wanted = NewTopic(topic.name, topic.partitions, topic.replication, config=dict(topic.config))
        futures = self.admin.create_topics([wanted], request_timeout=self.seconds)
        self._result(f"creating topic {topic.name}", futures[topic.name], allowed="TOPIC_ALREADY_EXISTS")
        self._wait(topic.name, there=True)

    def alter(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set some settings of a topic, leaving the others; None gives one back to the broker's default.

        Raises:
            KafkaError: refused (terminal).
        """
        kinds = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
        entries = [
            ConfigEntry(key, value or "", incremental_operation=kinds[value is None])
            for key, value in sorted(config.items())
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        future = self.admin.incremental_alter_configs([resource], request_timeout=self.seconds)[resource]
        self._result(f"changing topic {name}", future)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics and wait until they are gone; no error for those that are not there.

        Raises:
            KafkaError: refused (terminal).
        """
        if not names:
            return
        for name, future in self.admin.delete_topics(list(names), request_timeout=self.seconds).items():
            self._result(f"deleting topic {name}", future, allowed="UNKNOWN_TOPIC_OR_PART")
        for name in names:
            self._wait(name, there=False)

    def delete_group(self, group: str) -> None:
        """Delete a consumer group; no error if there is none.

        Raises:
            KafkaError: it has members (terminal).
        """
        future = self.admin.delete_consumer_groups([group], request_timeout=self.seconds)[group]
        self._result(f"deleting consumer group {group}", future, allowed="GROUP_ID_NOT_FOUND")

    @waiting_for("Kafka: where its topics end")
    @_patient
    def ends(
        self, topics: Mapping[str, int], *, first: bool = False, written: bool = False
    ) -> dict[str, dict[int, int]]:
        """End offsets (of what a ``read_committed`` consumer may read), or first offsets.

        A producer's commit returns, and a consumer of one partition sees its records, before the transaction's marker
        is in all partitions (KIP-98): of two in five transactions some record still lay above these ends just after
        their commit. Who concludes from them that a reader has everything wants those of what is ``written``.

        Args:
            topics: topic -> number of partitions.
            first: the first offset that is kept instead.
            written: of all records, also of transactions that are under way.

        Returns:
            topic -> partition -> offset of the next record. Offsets have gaps: they count transaction markers and
            records that compaction has removed.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        wanted = {topic: range(count) for topic, count in topics.items()}
        out: dict[str, dict[int, int]] = {}
        for (topic, part), future in offsets_asked(self.admin, wanted, self.seconds, first=first, written=written):
            out.setdefault(topic, {})[part] = int(self._result(f"reading the end of {topic}", future).offset)
        return out

    def since(self, topic: str, at_ms: int) -> int:
        """Where to begin in a topic of one partition to read all that was written at a moment or later.

        Args:
            topic: its name.
            at_ms: epoch milliseconds, of the records' own time.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        # First: where nothing is so new, what is written after this look is.
        end = self.ends({topic: 1})[topic][0]
        place = TopicPartition(topic, 0)
        spec = OffsetSpec.for_timestamp(at_ms)
        [future] = self.admin.list_offsets({place: spec}, request_timeout=self.seconds).values()
        found = int(self._result(f"looking for a moment in {topic}", future).offset)
        return end if found < 0 else found

    def consumer(self, **more: Any) -> Consumer:
        """A consumer that sees committed records only and remembers nothing; the caller assigns and closes it.

        Args:
            more: librdkafka's settings besides, with ``_`` for each dot.
        """
        return opened(
            Consumer,
            {
                **self.settings,
                "group.id": "headwater-reader",  # required by the library; never committed to
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                **{name.replace("_", "."): value for name, value in more.items()},
            },
        )

    def told(self, what: str, error: KafkaException, client: AdminClient | Consumer | None = None) -> KafkaError:
        """A client's error in our words, transient or not.

        Args:
            what: what was asked.
            error: librdkafka's.
            client: who has asked; the admin's if left out.
        """
        self.heard.catch_up(self.admin if client is None else client)
        return translate(what, error, self.bootstrap, self.heard)

    def _listed(self, name: str | None = None) -> dict[str, Any]:
        """What the brokers tell of every topic, or of one, by name."""
        try:
            found: dict[str, Any] = self.admin.list_topics(topic=name, timeout=self.seconds).topics
        except KafkaException as error:
            what = f"looking for topic {name}" if name else "listing topics"
            raise self.told(what, error) from error
        self.heard.let_in(self.admin)
        return found

    def _wait(self, name: str, *, there: bool) -> None:
        """Topics appear and vanish asynchronously: the next step must find what this one promised."""

        def is_there() -> bool:
            metadata = self._listed(name).get(name)
            return metadata is not None and metadata.error is None and bool(metadata.partitions)

        if poll(is_there, lambda found: found == there, self.seconds, 0.1) != there:
            raise KafkaUnavailable(f"topic {name} did not {'appear' if there else 'vanish'} in {self.seconds:.0f} s")

    def _result(self, what: str, future: Future[Any], allowed: str = "") -> Any:
        try:
            found = future.result(timeout=2 * self.seconds)
        except KafkaException as error:
            if allowed and error.args[0].name() == allowed:
                return None
            raise self.told(what, error) from error
        self.heard.let_in(self.admin)
        return found
