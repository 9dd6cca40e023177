"""A table, and an event of it as Debezium writes them."""

from __future__ import annotations

from typing import Any

import orjson

from cdc.catalogue import Column, Table

TABLE = Table(
    "public",
    "t",
    (
        Column("a", "integer", "int4", nullable=False),
        Column("b", "text", "text"),
        Column("n", "numeric(10,2)", "numeric", 10, 2),
        Column("at", "timestamp with time zone", "timestamptz"),
        Column("shape", "box", "box"),
    ),
    ("a", "b"),
)
SOURCE = {
    "schema": "public",
    "table": "t",
    "lsn": 100,
    "sequence": '["90","100"]',
    "snapshot": "false",
    "ts_ms": 5,
}
ROW = {"a": 1, "b": "x|y", "n": "1.50", "at": "2013-01-01T10:00:00.000000Z", "shape": {"wkb": "AA=="}}


def event(op: str = "u", after: Any = ROW, **source: Any) -> bytes:
    return orjson.dumps({"op": op, "before": None, "after": after, "source": SOURCE | source})
