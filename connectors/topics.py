"""The topics of a pipeline: which there must be, and how they differ from those that are there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc.catalogue import Catalogue
from cdc.errors import KafkaError
from cdc.log.client import Topic
from cdc.log.letters import MORE_BYTES
from cdc.outbox import is_outbox, topics_of_table
from cdc.pipeline import Pipeline
from cdc.resolve.versions import kept_versions
from connectors.actions import Action
from connectors.debezium import beat_topic, marker_topic, signal_topic_of_table
from connectors.outbox import event_topics

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
LAG = "min.compaction.lag.ms"
FOR_EVER = str((1 << 63) - 1)


def data_topics(pipeline: Pipeline, catalogue: Catalogue) -> list[Topic]:
    """One compacted topic per captured table, which holds every row's newest value for ever; and the marker's.

    The outbox has none, but topics of events, of which every one stays."""
    kafka = pipeline.kafka
    config = {
        "cleanup.policy": "compact",
        # How long a deleted row's tombstone stays after it was compacted: a consumer that is away for longer may miss
        # the delete and keep the row for ever. Kafka's default of 24 h does not outlast a weekend.
        "delete.retention.ms": str(int(kafka.tombstone_retention_hours * HOUR_MS)),
        # The active segment is never compacted; rolling it bounds how long superseded values stay.
        "segment.ms": str(int(kafka.segment_hours * HOUR_MS)),
        # Compact when a tenth is superseded (default: a half): a rebuild reads less, the cleaner works more.
        "min.cleanable.dirty.ratio": "0.1",
        # A batch that a crash has cut is read again from the log as it was: the cleaner must not have been there first.
        LAG: str(int(kafka.compaction_lag_hours * HOUR_MS)),
        "max.message.bytes": str(kafka.max_message_bytes),
    }
    # A view shows what these rows were: the cleaner leaves alone what is younger than for ever.
    versions, whole = kept_versions(pipeline, catalogue), {**config, LAG: FOR_EVER}
    topics = [
        Topic(
            pipeline.topic(table),
            kafka.partitions,
            kafka.replication_factor,
            whole if table in versions else config,
        )
        for table in sorted(catalogue.tables)
        if not is_outbox(pipeline, table)
    ]
    marker = Topic(marker_topic(pipeline), 1, kafka.replication_factor, config, holds="position")
    return [*topics, *event_topics(pipeline), marker]


def control_topics(pipeline: Pipeline) -> list[Topic]:
    """The topics beside the data: short-lived, one partition, safe to delete with the connector."""

    def short(name: str, days: int) -> Topic:
        config = {"cleanup.policy": "delete", "retention.ms": str(days * DAY_MS), "segment.ms": str(DAY_MS)}
        return Topic(name, 1, pipeline.kafka.replication_factor, config, holds="signs")

    return [
        short(pipeline.heartbeat_topic, 1),
        # Signals are keyed by pipeline: compaction would keep only the last. One partition, or Debezium reads none.
        short(pipeline.signal_topic, 7),
        short(signal_topic_of_table(pipeline), 1),
        short(beat_topic(pipeline), 1),
        short(pipeline.notification_topic, 7),
    ]


def dead_letter_topic(pipeline: Pipeline) -> Topic:
    """Rejected documents with their reasons, the newest per document, kept for ``policy.dead_letters.keep_days``."""
    keep_ms = pipeline.policy.dead_letters.keep_days * DAY_MS
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(keep_ms),
        "segment.ms": str(DAY_MS),
        # What was cleared is compacted away within two days, also when the topic is too quiet to be worth it otherwise:
        # it holds documents.
        "max.compaction.lag.ms": str(DAY_MS),
        # A tombstone may lie behind a letter that it does not mean (cdc/letters/book.py): time to write that once more.
        LAG: str(HOUR_MS),
        # A letter holds the document and the reason: a little more than the row it came from.
        "max.message.bytes": str(pipeline.kafka.max_message_bytes + MORE_BYTES),
    }
    return Topic(pipeline.dead_letter_topic, 1, pipeline.kafka.replication_factor, config, holds="letters")


def wanted_topics(pipeline: Pipeline, catalogue: Catalogue) -> list[Topic]:
    """Every topic of the pipeline."""
    return [*data_topics(pipeline, catalogue), *control_topics(pipeline), dead_letter_topic(pipeline)]


def colliding(names: Iterable[str], there: Iterable[str] = ()) -> dict[str, str]:
    """Names of topics that Kafka would refuse, for its metrics call ``a.b`` and ``a_b`` one, each with the other. Pure.

    Args:
        names: of topics that are to be made.
        there: of those that exist.
    """
    seen = {name.replace(".", "_"): name for name in there}
    firsts = ((name, seen.setdefault(name.replace(".", "_"), name)) for name in sorted(names))
    return {name: first for name, first in firsts if first != name}


def to_make(wanted: Iterable[Topic], actual: Mapping[str, Topic]) -> list[str]:
    """Names of topics that are not there: only for these do those of others matter. Pure."""
    return [topic.name for topic in wanted if topic.name not in actual]


def as_they_are(wanted: Iterable[Topic], actual: Mapping[str, Topic]) -> list[Topic]:
    """Topics with the settings that those have which are there. Pure."""
    return [replace(one, config=actual[one.name].config) if one.name in actual else one for one in wanted]


def plan_topics(wanted: list[Topic], actual: Mapping[str, Topic], others: Iterable[str] = ()) -> list[Action]:
    """What must change in Kafka.

    Args:
        wanted: every topic of the pipeline.
        actual: those of them that exist.
        others: names of topics that exist beside these; not looked at where there is nothing ``to_make``.

    Raises:
        KafkaError: a topic has another number of partitions: that cannot be changed without breaking the order of
            changes within a key; or Kafka would refuse to make one.
    """
    if found := colliding(to_make(wanted, actual), {*actual, *others}):
        pairs = "; ".join(f"{name} beside {other}" for name, other in found.items())
        raise KafkaError(
            f"Kafka makes no topic whose name differs from another's in dots and underscores only: {pairs}",
            means="that topic could not be made",
            fix="leave the table out of source.tables or rename it; or give the pipeline another kafka.topic_prefix, if"
            " the other topic is not its own",
        )
    actions = []
    for topic in wanted:
        there = actual.get(topic.name)
        if there is None:
            actions.append(_create(topic))
            continue
        if there.partitions != topic.partitions:
            raise _other_partitions(topic, there, wanted, actual)
        changed = {key: value for key, value in topic.config.items() if there.config.get(key) != value}
        if changed:
            actions.append(_alter(topic.name, {key: there.config.get(key) for key in changed}, changed))
    return actions


def resized_topics(pipeline: Pipeline, tables: Iterable[str], actual: Mapping[str, Topic]) -> dict[str, KafkaError]:
    """Tables of which a topic has another number of partitions than the file says, and what ``plan_topics`` raises.

    Args:
        pipeline: the loaded file.
        tables: ``schema.table``, that are captured.
        actual: those of their topics that exist.
    """
    kafka, events = pipeline.kafka, {topic.name: topic for topic in event_topics(pipeline)}
    of = {topic: table for table in tables for topic in topics_of_table(pipeline, table)}
    wanted = [events.get(name) or Topic(name, kafka.partitions, kafka.replication_factor, {}) for name in sorted(of)]
    return {
        of[topic.name]: _other_partitions(topic, there, wanted, actual)
        for topic in wanted
        if (there := actual.get(topic.name)) is not None and there.partitions != topic.partitions
    }


def _other_partitions(topic: Topic, there: Topic, wanted: Iterable[Topic], actual: Mapping[str, Topic]) -> KafkaError:
    """The error of a topic that has another number of partitions, and how it comes to the right one again. What its
    keys have in a partition that is theirs no more nobody removes: so it is made anew."""
    alone = f"delete that topic alone (kafka-topics.sh --delete --topic {topic.name}), then"
    anew = f"{alone} `headwater apply FILE --wait`, which reads the table into a new one, then `headwater rebuild FILE"
    anew += " SINK --auto` for each sink that reads it"
    if there.config.get(LAG) == FOR_EVER:
        anew += ". What its rows were before (`as_of`) goes with it for good: copy the topic first"
    count = there.partitions
    data = [one for one in wanted if one.holds in ("rows", "events") and one.name in actual]
    if topic.holds in ("rows", "events"):
        what = f"topic {topic.name} has {count} partitions, the pipeline file says {topic.partitions}"
        events = "`headwater drop FILE --topics`, then apply. Events go with it for good, but for those whose rows are"
        events += " still in the outbox: copy their topics first"
        lost = anew if topic.holds == "rows" else events
        if all(actual[one.name].partitions == count for one in data):
            fix = f"if it was the file that was changed, set kafka.partitions: {count} again; if somebody has added"
            fix += f" partitions to the topic: {lost}"
        else:
            fix = f"somebody has made or altered this topic: {lost}"
        means = "a key's changes would be spread over two partitions and could be applied in the wrong order"
        return KafkaError(what, means=means, fix=fix)
    again = (
        "`headwater apply FILE`, which makes it; with auto.create.topics.enable=false, or whoever writes there first"
    )
    again += " makes it as this one was made"
    ways = {
        "signs": f"{alone} {again}",
        "letters": f"{alone} {again}. The dead letters in it go with it",
        "position": "`headwater drop FILE --topics`, then apply: nobody writes the position in it again",
    }
    return KafkaError(
        f"topic {topic.name} has {count} partitions, and must have {topic.partitions}",
        means="who reads it reads one partition and misses what is in the others; kafka.partitions is not about it",
        fix=ways[topic.holds],
    )


def _create(topic: Topic) -> Action:
    detail = f"create with {topic.partitions} partitions, {topic.config['cleanup.policy']}"
    after = {"partitions": topic.partitions, "replication_factor": topic.replication, **topic.config}
    return Action("topic", topic.name, detail, None, after, lambda servers: servers.kafka.create(topic))


def settings_said(settings: Mapping[str, str]) -> str:
    """A topic's settings in words: ``delete.retention.ms=86400000, segment.ms=3600000``. Pure."""
    return ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))


def _alter(name: str, before: Mapping[str, str | None], changed: Mapping[str, str]) -> Action:
    detail = f"set {settings_said(changed)}"
    if LAG in changed and before[LAG] == FOR_EVER:
        detail += ": former versions of its rows go, and nothing brings them back"
    return Action(
        "topic", name, detail, dict(before), dict(changed), lambda servers: servers.kafka.alter(name, changed)
    )
