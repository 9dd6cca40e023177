"""Records read by Spark's functions: where our jar, which needs one pass, is missing (spark/reading/native_rows.py).

``from_json`` tells too little apart. A record is known only if what was read of its key and of its row, written again,
is the very text that came. docs/decisions/warehouse-decoding.md.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cdc.join.expressions import literal
from cdc.records.placeholders import marks_of
from cdc.records.position import MAX_LSN
from spark.reading.native_raw import (
    AFTER,
    ALONE,
    IS_ENDED,
    IS_GONE,
    IS_ODD,
    IS_UPSERT,
    KEY,
    LSN,
    ROWKEY,
    STATE,
    TS,
    RawTable,
    all_of,
)

_EVENT, _CORRUPT = "_hw_event", "_hw_corrupt"
_SOURCE = "`schema` string, `table` string, lsn bigint, sequence string, snapshot string, ts_ms bigint"
_SEQUENCE = r"""^\[("[0-9]{1,16}"|null),("[0-9]{1,16}"|null)\]$"""


def seen(raw: RawTable, records: DataFrame) -> DataFrame:
    """What records say.

    Args:
        raw: how they are read.
        records: with the columns of ``spark.reading.record``.

    Returns:
        a frame as ``spark.reading.native_raw`` has it.
    """
    text, key = F.col("value").cast("string"), F.col("key").cast("string")
    event = f"op string, after struct<{raw.row_ddl()}>, source struct<{_SOURCE}>, {_CORRUPT} string"
    parsed = records.select(
        "topic",
        "partition",
        "offset",
        F.coalesce("key", F.lit(b"")).alias(KEY),
        text.alias("text"),
        F.from_json(text, event, {"columnNameOfCorruptRecord": _CORRUPT}).alias(_EVENT),
        F.lit(None).alias(ROWKEY) if raw.events else F.from_json(key, f"struct<{raw.key_ddl()}>").alias(ROWKEY),
    )
    source = f"{_EVENT}.source"
    placed = parsed.withColumn(LSN, F.expr(_lsn()))
    return placed.select(
        "topic",
        "partition",
        "offset",
        KEY,
        F.expr(_state(raw)).alias(STATE),
        LSN,
        F.expr(
            f"COALESCE({source}.snapshot, 'false') = 'false' "
            f"AND STARTSWITH(COALESCE({source}.sequence, '[null'), '[null')"
        ).alias(ALONE),
        F.expr(f"COALESCE({source}.ts_ms, 0L)").alias(TS),
        F.col(f"{_EVENT}.after").alias(AFTER),
        ROWKEY,
    )


def _state(raw: RawTable) -> str:
    keyed = "TRUE" if raw.events else f"COALESCE(TO_JSON({ROWKEY}) = CAST({KEY} AS STRING), FALSE)"
    table, source = raw.table, f"{_EVENT}.source"
    known = all_of(
        [
            f"{_EVENT}.{_CORRUPT} IS NULL",
            f"{source}.`table` = {literal(table.name)} AND {source}.`schema` = {literal(table.schema)}",
            f"{LSN} BETWEEN 1L AND {MAX_LSN}L",
            f"({source}.sequence IS NULL OR {source}.sequence RLIKE {literal(_SEQUENCE)})",
        ]
    )
    ended = "FALSE" if raw.events else f"{_EVENT}.op = 'd' AND {_EVENT}.after IS NULL"
    gone = "FALSE" if raw.events else "text IS NULL"
    return (
        f"CASE WHEN NOT {keyed} THEN {IS_ODD} WHEN {gone} THEN {IS_GONE} "
        f"WHEN NOT COALESCE({known}, FALSE) THEN {IS_ODD} WHEN {ended} THEN {IS_ENDED} "
        f"WHEN {_upsert(raw)} THEN {IS_UPSERT} ELSE {IS_ODD} END"
    )


def _upsert(raw: RawTable) -> str:
    """Whether it is a row, and that, written again, is what came."""
    row = f"TO_JSON({_EVENT}.after, MAP('ignoreNullFields', 'false'))"
    kinds = "'r', 'c'" if raw.events else "'r', 'c', 'u'"
    conditions = [
        f"{_EVENT}.op IN ({kinds}) AND {_EVENT}.after IS NOT NULL",
        f"CONTAINS(text, '\"after\":' || {row})",
    ]
    marks = [f"CONTAINS(text, {literal(mark.decode())})" for mark in marks_of(raw.table)]
    if marks:
        conditions.append(f"({_EVENT}.op = 'r' OR NOT ({' OR '.join(marks)}))")
    return all_of(conditions)


def _lsn() -> str:
    # ["…","…"] or [null,"…"]: what stands before the first quote but one from either end.
    sequence = f"{_EVENT}.source.sequence"
    first = f"SUBSTRING_INDEX(SUBSTRING_INDEX({sequence}, '\"', 2), '\"', -1)"
    second = f"SUBSTRING_INDEX(SUBSTRING_INDEX({sequence}, '\"', -2), '\"', 1)"
    parts = [f"COALESCE(TRY_CAST({part} AS BIGINT), 0L)" for part in (first, second)]
    return f"GREATEST(COALESCE({_EVENT}.source.lsn, 0L), {', '.join(parts)})"
