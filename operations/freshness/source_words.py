"""What Postgres and Kafka Connect say of the way into the log: `run` notes it, `status` asks, both judge it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from connectors.rest import Status, failure


@dataclass(frozen=True, kw_only=True)
class SourceWords:
    """What is said.

    Attributes:
        error: why Postgres does not answer now, or Kafka of tables that are being read; None if they do.
        kafka_error: why brokers did not tell how far the log goes when they were last asked; None if they did.
        kafka_fix: what to do about that; None if nobody knows.
        reading: captured tables whose rows are being read.
        connector: Kafka Connect's word for the connector; ``absent``, or ``unknown`` when Connect does not answer.
        tasks: the same for each task.
        connector_error: why it has failed, or why Connect does not answer.
        slot_there: whether there is a slot; None while that is not known, as is the next.
        slot_active: somebody reads from it.
        slot_lost: Postgres has given it up.
    """

    error: str | None = None
    kafka_error: str | None = None
    kafka_fix: str | None = None
    reading: Sequence[str] = ()
    connector: str = "unknown"
    tasks: Sequence[str] = ()
    connector_error: str | None = None
    slot_there: bool | None = None
    slot_active: bool | None = None
    slot_lost: bool = False

    def words(self) -> dict[str, Any]:
        """These attributes alone, of whatever has more: for another that has them, too."""
        return {one.name: getattr(self, one.name) for one in fields(SourceWords)}


def connector_words(name: str, status: Status | None, silent: str = "") -> dict[str, Any]:
    """``connector``, ``tasks`` and ``connector_error``, of Kafka Connect's answer.

    Args:
        name: the connector's.
        status: what it answers; None if it has no such connector, or has not answered.
        silent: why it has not answered; empty if it has.
    """
    if silent:
        return {"connector": "unknown", "tasks": (), "connector_error": silent}
    if status is None:
        return {"connector": "absent", "tasks": (), "connector_error": f"there is no connector {name}"}
    why = failure(name, status).what if status.failed else None
    return {"connector": status.connector, "tasks": tuple(status.tasks), "connector_error": why}
