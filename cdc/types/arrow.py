"""Arrow types for the Spark types that this project uses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_PLAIN: dict[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_of_spark(spark: str) -> Any:
    """The Arrow type of a Spark SQL type as ``cdc.types.spark_type`` spells it.

    Raises:
        ValueError: not one of ours.
    """
    if spark in _PLAIN:
        return _PLAIN[spark]
    if spark.startswith("decimal("):
        precision, scale = spark[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if spark.startswith("array<"):
        return pa.list_(arrow_of_spark(spark[6:-1]))
    raise ValueError(f"no Arrow type for Spark's {spark}")
