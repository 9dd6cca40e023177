"""Questions to the brokers that several kinds of clients ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]


def offsets_asked(
    admin: AdminClient,
    topics: Mapping[str, Iterable[int]],
    seconds: float,
    *,
    first: bool = False,
    written: bool = False,
) -> list[tuple[tuple[str, int], Future[Any]]]:
    """Ask for the ends of many partitions at once (each broker once), or for their first offsets; see ``Kafka.ends``.

    Args:
        admin: the brokers.
        topics: topic -> partitions.
        seconds: how long the brokers may take.
        first: see ``Kafka.ends``.
        written: see ``Kafka.ends``.

    Returns:
        topic and partition, and what will have their ``offset``.
    """
    from confluent_kafka import IsolationLevel

    spec: OffsetSpec = OffsetSpec.earliest() if first else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, part): spec for topic, parts in topics.items() for part in parts}
    if not wanted:
        return []
    level = IsolationLevel.READ_UNCOMMITTED if written else IsolationLevel.READ_COMMITTED
    found = admin.list_offsets(wanted, isolation_level=level, request_timeout=seconds)
    return [((place.topic, place.partition), future) for place, future in found.items()]
