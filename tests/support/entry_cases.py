"""Records of one table, and what the engine reads from them."""

import orjson
import pyarrow as pa

from cdc.catalogue import Column, Table
from cdc.view import View
from spark.reading.entries import Entry
from spark.reading.spec import FlowSpec

TABLE = Table(
    "public",
    "t",
    (Column("id", "integer", "int4", nullable=False, ordinal=1), Column("v", "text", "text", ordinal=2)),
    ("id",),
)
SPEC = FlowSpec("s", {"t": View.identity(TABLE)}, {"p.public.t": ("t",)}, {"p.public.t": TABLE}, {}, {})


def entry(version: int, offset: int, document: bytes | None = b"{}") -> Entry:
    return Entry("t", "1", version, document, "p.public.t", 0, offset, 0)


def event(key: int, value: str | None, lsn: int, op: str = "u") -> tuple[bytes, bytes]:
    source = {"schema": "public", "table": "t", "lsn": lsn, "ts_ms": 1, "sequence": f'[null,"{lsn}"]'}
    after = None if op == "d" else {"id": key, "v": value}
    return orjson.dumps({"id": key}), orjson.dumps({"op": op, "source": source, "before": None, "after": after})


def records(*pairs: tuple[bytes | None, bytes | None], first: int = 0) -> pa.RecordBatch:
    columns = {
        "key": pa.array([key for key, _ in pairs], pa.binary()),
        "value": pa.array([value for _, value in pairs], pa.binary()),
        "topic": pa.array(["p.public.t"] * len(pairs)),
        "partition": pa.array([0] * len(pairs), pa.int32()),
        "offset": pa.array(range(first, first + len(pairs)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)
