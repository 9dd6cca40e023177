"""What somebody has changed behind `apply`'s back, in Connect and in Kafka, on real servers."""

from __future__ import annotations

import pytest

from cdc.errors import KafkaError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.debezium import connector_name, marker_topic, pattern
from connectors.drop import drop, plan_drop_pipeline
from connectors.names import Names
from connectors.preflight import preflight
from connectors.rest import ConnectClient
from connectors.snapshots.snapshot import wait_snapshot
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


def made(source: SourceDatabase, *tables: str) -> Pipeline:
    """A captured database of two tables."""
    for table in ("t", "other"):
        source.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2), (3)")
    pipeline = source.pipeline(*tables)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    return pipeline


def told(pipeline: Pipeline, check: str) -> str:
    (answer,) = (one for one in preflight(pipeline) if one.check.name == check)
    return "\n".join([answer.state, answer.error, *(f"{f.about}: {f.message} ({f.fix})" for f in answer.findings)])


def ids(source: SourceDatabase, pipeline: Pipeline, table: str) -> list[int]:
    return sorted(row["id"] for row in source.latest(pipeline.topic(f"public.{table}")).values() if row)


def test_what_a_narrowed_list_of_tables_has_dropped_is_read_again(source: SourceDatabase) -> None:
    pipeline = made(source, "public.t", "public.other")
    client, name, names = ConnectClient(pipeline.connect), connector_name(pipeline), Names.of(pipeline)
    config = client.config(name)
    assert config is not None and told(pipeline, "captured").startswith("ok")
    ours = [names.qualified(names.marker), names.qualified(names.heartbeat)]
    client.stop(name)
    client.wait_stopped(name)  # or the task that is at work sends what comes now
    client.put_config(name, config | {"table.include.list": pattern([*ours, "public.other"])})
    client.resume(name)
    source.execute("INSERT INTO t VALUES (4)", "DELETE FROM t WHERE id = 2", "INSERT INTO other VALUES (4)")
    assert eventually(lambda: ids(source, pipeline, "other") == [1, 2, 3, 4])
    assert ids(source, pipeline, "t") == [1, 2, 3], "they are lost"
    assert "table public.t was left out of the connector's table.include.list" in told(pipeline, "captured")
    assert [a.name for a in plan_pipeline(pipeline) if a.kind == "snapshot" and "left out" in a.detail] == ["public.t"]
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert ids(source, pipeline, "t") == [1, 3, 4]
    assert told(pipeline, "captured").startswith("ok") and plan_pipeline(pipeline) == []


def test_a_dropped_pipeline_whose_connector_was_deleted_before_is_applied_again(source: SourceDatabase) -> None:
    """Connect keeps the offset of a deleted connector, and `drop` can't ask it to forget: no `apply` went through."""
    pipeline = made(source, "public.t")
    client = ConnectClient(pipeline.connect)
    client.delete(connector_name(pipeline))
    drop(pipeline, topics=True)
    assert plan_drop_pipeline(pipeline, topics=True) == []
    source.execute("DELETE FROM t WHERE id = 1")
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    source.execute("INSERT INTO t VALUES (9)")
    assert eventually(lambda: ids(source, pipeline, "t") == [2, 3, 9])


def test_topics_of_a_whole_schema_are_dropped_after_the_pipeline(source: SourceDatabase) -> None:
    """With the list of captured tables gone nobody found them, and `apply` was refused for ever for what they hold."""
    pipeline = made(source, "public.*")
    source.execute("DROP TABLE other")
    drop(pipeline)
    with pytest.raises(KafkaError, match="of an earlier capture"):
        apply(pipeline)
    [action] = plan_drop_pipeline(pipeline, topics=True)
    assert {pipeline.topic("public.t"), pipeline.topic("public.other")} <= {*action.name.split(", ")}
    drop(pipeline, topics=True)
    assert Kafka(pipeline).beginning([f"{pipeline.kafka.topic_prefix}."]) == []
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done


def test_a_marker_that_was_made_anew_by_hand_is_told_before_run_waits_for_it(source: SourceDatabase) -> None:
    pipeline = made(source, "public.t")
    kafka, topic = Kafka(pipeline), marker_topic(pipeline)
    there = kafka.describe([topic])[topic]
    assert told(pipeline, "kafka").startswith("ok")
    kafka.delete([topic])
    kafka.create(there)
    assert "has lost the position of the initial snapshot: it begins at 0" in told(pipeline, "kafka")
    with pytest.raises(KafkaError, match="has lost the position of the initial snapshot"):
        apply(pipeline)
    drop(pipeline, topics=True)  # as it says
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert told(pipeline, "kafka").startswith("ok")
