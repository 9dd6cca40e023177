"""The initial snapshot's position: the one answer, for the sweep of an interrupted snapshot and for every decoder.

The marker is a table of ours with one row that never changes. Each attempt of the initial snapshot reads it, and writes
a record with the attempt's position; until compaction both attempts' records are in its topic. The *last* attempt's
counts: it is the one that streaming goes on from (docs/decisions/positions.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from cdc.errors import KafkaError
from cdc.log.client import Kafka
from cdc.log.records import records
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import snapshot_lsn
from cdc.records.encoding import JSON, Encoding
from connectors.debezium import marker_topic
from connectors.servers import Servers


def last_attempt(values: Iterable[bytes | None], encoding: Encoding = JSON) -> int | None:
    """The position of the last attempt, of the values of the marker's records in their order. Pure.

    Returns:
        Bytes of WAL; None if no attempt is told of.

    Raises:
        DecodeError: a value is not an event of Debezium (terminal).
        RegistryError: the schema registry can't be asked (RegistryUnavailable: transient).
    """
    position = None
    for value in values:
        found = None if value is None else snapshot_lsn(value, encoding)
        position = position if found is None else found
    return position


def read_position(kafka: Kafka, pipeline: Pipeline) -> int | None:
    """The position of the last attempt that has begun by now; None before the first has read the marker.

    Raises:
        DecodeError: somebody else writes into the marker's topic (terminal).
        KafkaUnavailable, RegistryUnavailable: no answer, or no such topic yet (transient).
    """
    encoding = encoding_of(pipeline.source.reader())
    return last_attempt((message.value() for message in records(kafka, marker_topic(pipeline), 0)), encoding)


def snapshot_position(servers: Servers) -> int:
    """LSN of the last attempt.

    Raises:
        KafkaError: there is none.
    """
    position = read_position(servers.kafka, servers.pipeline)
    if position is None:
        raise KafkaError(
            f"topic {marker_topic(servers.pipeline)} is empty: the snapshot's position is not known",
            fix="`headwater drop FILE --topics`, then `headwater apply FILE`",
        )
    return position
