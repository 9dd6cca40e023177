"""Records whose aggregate Spark has computed something for, as a joined view's reader takes them."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from cdc.catalogue import Column, Table
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from spark.join.records import COMPUTED, RecordReader, Taken
from spark.reading.spec import FlowSpec


def read_with(item: Aggregate, column: pa.Array, **row: Any) -> Taken:
    """What is read of one new row for each value that Spark has computed for an aggregate.

    Args:
        item: the aggregate, over a table ``t`` with a key ``id``.
        column: the values.
        row: what each row holds besides its key.
    """
    root = Table("public", "p", (Column("id", "integer", "int4"),), ("id",))
    node = Node("v", "root", root, (), (("id", "id"),), aggregates=(item,))
    view = JoinedView("v", root, ("id",), node.columns, root=node)
    spec = FlowSpec("s", {"v": view}, {"t": ("v",)}, {"t": item.table}, {}, {})
    source = {"schema": "public", "table": "t", "lsn": 9, "sequence": '["9","9"]', "ts_ms": 1}
    count = len(column)
    columns = {
        "key": pa.array([b'{"id":%d}' % at for at in range(count)]),
        "value": pa.array(
            [orjson.dumps({"op": "c", "source": source, "after": {"id": at, **row}}) for at in range(count)]
        ),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        COMPUTED.format(view.layout.tables["public.t"].number, 0): pa.StructArray.from_arrays([column], ["v"]),
    }
    return RecordReader(spec, view).read(pa.RecordBatch.from_pydict(columns))
