"""Records read by our jar, in one pass over their bytes (deploy/spark/EventRows.java)."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cdc.records.placeholders import marks_of
from cdc.records.position import MAX_LSN
from spark.reading.native_raw import AFTER, ALONE, KEY, LSN, ROWKEY, STATE, TS, RawTable

_SEEN = "_hw_seen"
# What EventRows tells of a record, before its row and its key.
_TOLD = f"{STATE} tinyint, {LSN} bigint, {ALONE} boolean, {TS} bigint"


def seen(raw: RawTable, records: DataFrame) -> DataFrame | None:
    """What records say; arguments and result as ``native_json.seen``. None if the session has not our jar."""
    reader = _reader(raw, records)
    if reader is None:
        return None
    key, value = F.col("key"), F.col("value")
    told = Column(reader.column(key._jc, value._jc, _TOLD, AFTER, ROWKEY))
    read = records.select("topic", "partition", "offset", F.coalesce("key", F.lit(b"")).alias(KEY), told.alias(_SEEN))
    return read.select("topic", "partition", "offset", KEY, f"{_SEEN}.*")


def there(raw: RawTable, records: DataFrame) -> bool:
    """Whether the session has our jar; arguments as ``seen``."""
    return _reader(raw, records) is not None


def _reader(raw: RawTable, records: DataFrame) -> Any:
    table = raw.table
    names = [_written(column.name) for column in table.columns]
    keys = [_written(name) for name, _ in raw.of_key()]
    marks = [mark.decode() for mark in marks_of(table)]
    jvm: Any = records.sparkSession._jvm
    columns = raw.row_ddl(), names, raw.key_ddl(), keys
    try:
        return jvm.headwater.spark.EventRows(*columns, table.schema, table.name, marks, raw.events, MAX_LSN)
    except TypeError:  # no jar of ours, or one of before in a folder of the operator's
        return None


def _written(name: str) -> str:
    """As Connect's JSON has it."""
    return json.dumps(name, ensure_ascii=False)
