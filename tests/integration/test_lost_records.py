"""Records that a compacted topic has lost, by a retention or by hand: told, read again once, and told no more."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from cdc.errors import KafkaError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.debezium import marker_topic
from connectors.preflight import preflight
from connectors.resnapshot import Wish, resnapshot
from connectors.snapshots.snapshot import wait_snapshot
from operations.plan import plan
from tests.support.source import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


def told(pipeline: Pipeline) -> str:
    (answer,) = (one for one in preflight(pipeline) if one.check.name == "kafka")
    return "\n".join([answer.state, answer.error, *(f"{f.about}: {f.message} ({f.fix})" for f in answer.findings)])


def expire(kafka: Kafka, topic: str, partitions: int) -> None:
    """Take every record, as a retention does that somebody has set for a while."""
    kafka.alter(topic, {"cleanup.policy": "compact,delete"})
    places = [TopicPartition(topic, partition, -1) for partition in range(partitions)]
    for future in kafka.admin.delete_records(places).values():
        future.result()
    kafka.alter(topic, {"cleanup.policy": "compact"})


def changes(pipeline: Pipeline) -> list[str]:
    return [action.detail for action in plan_pipeline(pipeline) if action.kind == "snapshot"]


def test_lost_records_are_told_and_read_again_once(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 20)")
    source.execute("CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    pipeline = source.pipeline("public.t", "public.other")
    kafka, topic = Kafka(pipeline), pipeline.topic("public.t")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert told(pipeline).startswith("ok")
    expire(kafka, topic, pipeline.kafka.partitions)
    assert source.latest(topic) == {}
    assert f"table public.t has lost records of its topic {topic}" in told(pipeline)
    assert "public.other" not in told(pipeline)
    assert any("it has lost records of its topic" in line for line in changes(pipeline))
    source.execute("DELETE FROM t WHERE id = 3")
    apply(pipeline)
    begun = plan(pipeline)
    assert begun.actions == [] and "has lost records" in begun.mending["public.t"] and begun.closing("f") == ""
    assert wait_snapshot(pipeline, seconds=90).done
    assert plan(pipeline).mending == {}
    assert len([row for row in source.latest(topic).values() if row is not None]) == 19
    assert told(pipeline).startswith("ok"), "what the topic begins with is known"
    assert changes(pipeline) == []
    expire(kafka, topic, pipeline.kafka.partitions)
    assert "public.t has lost records" in told(pipeline), "and so it is when more is lost"
    resnapshot(pipeline, Wish(["public.t"], "id < 5"))
    assert wait_snapshot(pipeline, seconds=90).done
    assert "public.t has lost records" in told(pipeline), "some of the rows are not all of them"
    resnapshot(pipeline, Wish(["public.t"]))
    assert wait_snapshot(pipeline, seconds=90).done
    assert told(pipeline).startswith("ok")
    assert changes(pipeline) == []


def test_a_topic_that_was_made_anew_by_hand_is_told_and_filled_again(source: SourceDatabase) -> None:
    """It begins at 0 like one that has lost nothing, and lacks every row that does not change again."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 20)")
    pipeline = source.pipeline("public.t")
    kafka, topic = Kafka(pipeline), pipeline.topic("public.t")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert told(pipeline).startswith("ok")
    there = kafka.describe([topic])[topic]
    kafka.delete([topic])
    kafka.create(there)
    assert f"its topic {topic} was deleted and made again" in told(pipeline)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert len(source.latest(topic)) == 20
    assert told(pipeline).startswith("ok")
    assert changes(pipeline) == []


def test_a_lost_marker_is_told_before_run_waits_for_it(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipeline = source.pipeline("public.t")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    expire(Kafka(pipeline), marker_topic(pipeline), 1)
    text = told(pipeline)
    assert text.startswith("error")
    assert "has lost the position of the initial snapshot" in text
    assert "drop FILE --topics" in text
    with pytest.raises(KafkaError, match="has lost the position of the initial snapshot"):
        apply(pipeline)
