"""The changelog as a streaming DataFrame: Debezium's topics through Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from cdc.java_kafka import java_client
from spark.reading.avro_text import values_as_text
from spark.reading.record import RECORD
from spark.traces import traceparent

# A setting of the session: the class that reads Kafka. Ours knows the option by which queries of one name plan their
# batches in turn, and who that is.
SOURCE, OURS = "headwater.source", "headwater.spark.RestingKafka"
TURNS = "headwater.turns"
# How long a broker may hold an empty fetch (ms): with Kafka's own 500 every other batch waited 600.
FETCH_WAIT_MS = 1


def read_changelog(
    spark: SparkSession,
    *,
    bootstrap: str,
    topics: Sequence[str],
    client: Mapping[str, str],
    max_offsets: int | None,
    starts: Mapping[str, Mapping[int, int]] | None,
    traces: bool,
    turns: str,
    registry: Mapping[str, str] | None,
) -> DataFrame:
    """Stream (key, value, topic, partition, offset) of ``topics`` from offset 0.

    Args:
        bootstrap: Kafka brokers, ``host:port,…``.
        topics: the topics to read.
        client: librdkafka-style options.
        max_offsets: records a micro-batch may hold at the most; bounds memory and replay. None for no bound.
        starts: where a query without a checkpoint begins instead: topic -> partition -> offset.
        traces: also the span that wrote a record, if it bears one, as a last column.
        turns: a batch is planned when none of another query with this name is at work; ``turn_done`` says that it has
            ended. Nothing, or a session without our source: none waits.
        registry: settings of the schema registry; None when no record can be Avro.
    """
    options = _options(bootstrap, topics, client, FETCH_WAIT_MS)
    if starts is not None:
        options["startingOffsets"] = json.dumps(starts)
    if max_offsets is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets)
    if traces:
        options["includeHeaders"] = "true"
    more = [traceparent()] if traces else []
    source = _reader(spark)
    if turns and source == OURS:
        options[TURNS] = turns
    return _as_text(spark.readStream.format(source).options(**options).load().select(*RECORD.names, *more), registry)


def _as_text(records: DataFrame, registry: Mapping[str, str] | None) -> DataFrame:
    """Records of JSON; those that are Avro for Python where our jar is missing."""
    if registry is None or _reader(records.sparkSession) != OURS:
        return records
    return values_as_text(records, registry)


def _reader(spark: SparkSession) -> str:
    """The class that reads Kafka in a session; Spark's own where our jar is missing."""
    return str(spark.conf.get(SOURCE, "kafka"))


def turn_done(spark: SparkSession, turns: str, group: str) -> None:
    """Let the next query plan its batch.

    Args:
        spark: the session.
        turns: as in ``read_changelog``.
        group: of the jobs of the query whose batch has ended.
    """
    with suppress(Py4JError, OSError):  # of a virtual machine that is going away
        if _reader(spark) == OURS:
            jvm: Any = spark._jvm
            jvm.headwater.spark.Turns.done(turns, group)


def turn_ahead(spark: SparkSession, turns: str, group: str) -> str:
    """The group of the query whose batch another one waits for, or that one's own group."""
    if _reader(spark) != OURS:
        return group
    jvm: Any = spark._jvm
    return str(jvm.headwater.spark.Turns.ahead(turns, group))


def read_slice(
    spark: SparkSession,
    *,
    bootstrap: str,
    client: Mapping[str, str],
    starts: Mapping[str, Mapping[int, int]],
    ends: Mapping[str, Mapping[int, int]],
    registry: Mapping[str, str] | None = None,
) -> DataFrame:
    """A part of the log as a batch; one partition of it is one of the frame's, in the order of its offsets.

    Args:
        spark: the session.
        bootstrap: Kafka brokers.
        client: librdkafka-style options.
        starts: topic -> partition -> the offset to start at.
        ends: the same partitions -> the offset to stop before.
        registry: as in ``read_changelog``.
    """
    options = _options(bootstrap, sorted(ends), client, 10)
    del options["subscribe"]
    options["assign"] = json.dumps({topic: sorted(parts) for topic, parts in ends.items()})
    options["startingOffsets"], options["endingOffsets"] = json.dumps(starts), json.dumps(ends)
    return _as_text(spark.read.format("kafka").options(**options).load().select(*RECORD.names), registry)


def _options(bootstrap: str, topics: Sequence[str], client: Mapping[str, str], fetch_wait_ms: int) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        # Connect writes in transactions: what was aborted must not be seen.
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": str(fetch_wait_ms),
        # A topic that was deleted while it is read stays away: the Java client would let the brokers make it.
        "kafka.allow.auto.create.topics": "false",
        # After each poll Spark asks for the topic's ends, in two round trips; with the default of 500 records that was
        # a fifth of the time of reading.
        "kafka.max.poll.records": "5000",
        # Offsets that the log no longer has, or a topic that was re-created, stop the query: never a silent gap.
        "failOnDataLoss": "true",
        **{f"kafka.{name}": value for name, value in java_client(client).items()},
    }
