"""One row's change, as every codec gives it and every view takes it."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class Op(Enum):
    """What happened to the row; the values are Debezium's."""

    READ = "r"
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"
    # Not an operation of the source: the mark that lets compaction forget a deleted key. Follows its DELETE.
    TOMBSTONE = "tombstone"


class Change(NamedTuple):
    """One change, still in the codec's raw values; a ``cdc.view.View`` makes documents and typed rows of it.

    A NamedTuple, not a dataclass: one is made per record, and it is built three times as fast.

    Attributes:
        table: ``schema.table``.
        op: what happened.
        key: primary key column -> raw value; empty for TRUNCATE.
        after: column -> raw value; None for DELETE, TOMBSTONE and TRUNCATE.
        position: packed (epoch, LSN), see cdc/records/position.py; 0 for a TOMBSTONE, which carries none.
        topic: Kafka topic of the record.
        partition: its partition.
        offset: its offset; of two changes of one key with equal positions the later offset is newer.
        ts_ms: when the source committed it, ms since 1970 UTC; 0 if unknown.
        unavailable: columns of ``after`` that hold Debezium's placeholder for an unchanged large value: not values.
        snapshot: the row, or that it is gone, was read and not streamed: ``ts_ms`` is when that was told.
    """

    table: str
    op: Op
    key: dict[str, Any]
    after: dict[str, Any] | None
    position: int
    topic: str
    partition: int
    offset: int
    ts_ms: int
    unavailable: tuple[str, ...] = ()
    snapshot: bool = False
