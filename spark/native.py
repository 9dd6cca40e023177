"""Records to entries in the virtual machine, by Spark's own functions, for views whose types need no more than that.

The same entries as ``spark.entries`` makes of the same records, without Python. A record is *plain* if it is an event
of the table as it is known, to the letter: what was read of its key and of its row, written again, is the very text
that came. Whatever is not (garbage, a former shape, a large value that is left out) is for the Python codec to judge,
and with it every other record of its key, because what becomes of one may depend on the next.
docs/decisions/warehouse-decoding.md; tests hold both ways against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cdc.catalogue import Table
from cdc.former import Former
from cdc.join.expressions import literal, quoted
from cdc.placeholders import marks_of
from cdc.position import MAX_LSN, pack
from cdc.types.native import Native, native
from cdc.view import View
from sinks.contract import UNVERSIONED
from spark.expressions import META, PREFIX
from spark.spec import FlowSpec

# Of records: their key's bytes, and whether only the codec can read them.
KEY, ODD = "_hw_key", "_hw_odd"
_EVENT, _ROWKEY, _LSN, _UPSERT = "_hw_event", "_hw_rowkey", "_hw_lsn", "_hw_upsert"
_CORRUPT = "_hw_corrupt"
_SOURCE = "`schema` string, `table` string, lsn bigint, sequence string, snapshot string, ts_ms bigint"
_SEQUENCE = r"""^\[("[0-9]{1,16}"|null),("[0-9]{1,16}"|null)\]$"""


@dataclass(frozen=True)
class NativeReader:
    """Reads the records of one topic for one view.

    Attributes:
        view: the view; its table's columns are all of types that Spark reads.
        columns: how it reads them, in the table's order.
        epoch: see ``FlowSpec``.
        snapshot_lsn: likewise.
        events: the records are events, whose rows have their own key (cdc/events.py).
    """

    view: View
    columns: tuple[Native, ...]
    epoch: int = 0
    snapshot_lsn: int = 0
    events: bool = False

    @classmethod
    def of(cls, spec: FlowSpec) -> NativeReader | None:
        """The reader of a flow of one view; None if the view or the records need the Python codec.

        Args:
            spec: the flow's work.
        """
        (view,) = spec.views.values()
        table = view.table
        found = [native(column) for column in table.columns]
        columns = tuple(one for one in found if one is not None)
        keys = {column.name: one for column, one in zip(table.columns, found, strict=True) if one and one.key}
        if view.needs_spark or len(columns) < len(found):
            return None
        if Former(table) or not table.primary_key or not keys.keys() >= set(table.primary_key):
            return None
        return cls(view, columns, spec.epoch, spec.snapshot_lsn, bool(spec.events))

    def read(self, records: DataFrame) -> DataFrame:
        """Entries with their typed rows as ``spark.expressions.entry_schema`` has them, then ``KEY`` and ``ODD``.

        Documents are empty where there is one: nobody reads it. Of odd records only the place in the log is known.

        Args:
            records: with the columns of ``spark.record``.
        """
        text, key = F.col("value").cast("string"), F.col("key").cast("string")
        parsed = records.select(
            "topic",
            "partition",
            "offset",
            F.coalesce("key", F.lit(b"")).alias(KEY),
            text.alias("text"),
            F.from_json(text, self._event_schema(), {"columnNameOfCorruptRecord": _CORRUPT}).alias(_EVENT),
            (F.lit(None) if self.events else F.from_json(key, self._key_schema())).alias(_ROWKEY),
        )
        if self.events:
            parsed = parsed.withColumn(_ROWKEY, F.col(f"{_EVENT}.after"))
        placed = parsed.withColumn(_LSN, F.expr(self._lsn()))
        judged = placed.select(
            *(name for name in placed.columns if name != "text"),
            F.coalesce(F.expr(self._is_upsert()), F.lit(False)).alias(_UPSERT),
            (~F.coalesce(F.expr(f"({self._is_keyed()}) AND ({self._is_plain()})"), F.lit(False))).alias(ODD),
        )
        return judged.select(*self._own(), *self._typed(), KEY, ODD)

    # -- what Spark reads ---------------------------------------------------------------------------------------------

    def _event_schema(self) -> str:
        row = _fields(self.view.table, self.columns)
        return f"op string, after struct<{row}>, source struct<{_SOURCE}>, {_CORRUPT} string"

    def _key_schema(self) -> str:
        key = set(self.view.table.primary_key)
        return f"struct<{_fields(self.view.table, self.columns, key)}>"

    # -- what it makes of it ------------------------------------------------------------------------------------------

    def _own(self) -> list[Column]:
        gone = f"WHEN NOT {ODD} AND {_EVENT} IS NULL THEN {UNVERSIONED}"
        made = {
            "view": literal(self.view.name),
            "id": f"IF({ODD}, NULL, {self._id()})",
            "version": f"CASE {gone} WHEN NOT {ODD} THEN {self._position()} END",
            "document": f"IF({_UPSERT} AND NOT {ODD}, X'', NULL)",
            "ts_ms": f"COALESCE({_EVENT}.source.ts_ms, 0L)",
        }
        return [F.expr(made.get(name, name)).cast(kind).alias(PREFIX + name) for name, (_, kind) in META.items()]

    def _typed(self) -> list[Column]:
        """Each column of the row; of a row that is gone those of its key."""
        keys, found = set(self.view.table.primary_key), []
        for column, how in zip(self.view.table.columns, self.columns, strict=True):
            row = how.value(f"{_EVENT}.after.{quoted(column.name)}")
            other = how.value(f"{_ROWKEY}.{quoted(column.name)}") if column.name in keys else "NULL"
            made = f"CASE WHEN {ODD} THEN NULL WHEN {_UPSERT} THEN {row} ELSE {other} END"
            found.append(F.expr(made).alias(column.name))
        return found

    def _id(self) -> str:
        """As ``cdc.keys.document_id``."""
        by_name = dict(zip((column.name for column in self.view.table.columns), self.columns, strict=True))
        texts = []
        for name in self.view.key:
            text = by_name[name].key
            assert text is not None
            texts.append(text(f"{_ROWKEY}.{quoted(name)}"))
        if len(texts) == 1:
            return texts[0]
        escaped = [rf"REPLACE(REPLACE({text}, '\\', '\\\\'), '|', '\\|')" for text in texts]
        return f"CONCAT_WS('|', {', '.join(escaped)})"

    def _position(self) -> str:
        """As ``cdc.debezium_json.Decoder`` has it."""
        source, snapshot = f"{_EVENT}.source", self.snapshot_lsn
        before = f"(COALESCE({source}.snapshot, 'false') = 'false' AND {_LSN} < {snapshot}L)"
        no_commit = f"STARTSWITH(COALESCE({source}.sequence, '[null'), '[null')"
        return f"{pack(self.epoch, 0)}L | IF({before} AND {no_commit}, {snapshot}L, {_LSN})"

    @staticmethod
    def _lsn() -> str:
        # ["…","…"] or [null,"…"]: what stands before the first quote but one from either end.
        sequence = f"{_EVENT}.source.sequence"
        first = f"SUBSTRING_INDEX(SUBSTRING_INDEX({sequence}, '\"', 2), '\"', -1)"
        second = f"SUBSTRING_INDEX(SUBSTRING_INDEX({sequence}, '\"', -2), '\"', 1)"
        parts = [f"COALESCE(TRY_CAST({part} AS BIGINT), 0L)" for part in (first, second)]
        return f"GREATEST(COALESCE({_EVENT}.source.lsn, 0L), {', '.join(parts)})"

    # -- what is plain ------------------------------------------------------------------------------------------------

    def _is_keyed(self) -> str:
        conditions = [] if self.events else [f"TO_JSON({_ROWKEY}) = CAST({KEY} AS STRING)"]
        for column, how in self._of_key():
            raw = f"{_ROWKEY}.{quoted(column)}"
            conditions += [f"{raw} IS NOT NULL", *([how.plain(raw)] if how.plain else [])]
        return _all(conditions)

    def _of_key(self) -> Iterable[tuple[str, Native]]:
        keys = set(self.view.table.primary_key)
        for column, how in zip(self.view.table.columns, self.columns, strict=True):
            if column.name in keys:
                yield column.name, how

    def _is_plain(self) -> str:
        table, source = self.view.table, f"{_EVENT}.source"
        event = _all(
            [
                f"{_EVENT}.{_CORRUPT} IS NULL",
                f"{source}.`table` = {literal(table.name)} AND {source}.`schema` = {literal(table.schema)}",
                f"{_LSN} BETWEEN 1L AND {MAX_LSN}L",
                f"({source}.sequence IS NULL OR {source}.sequence RLIKE {literal(_SEQUENCE)})",
            ]
        )
        ended = f"{_EVENT}.op = 'd' AND {_EVENT}.after IS NULL"
        upsert = f"{self._is_upsert()} AND {self._is_row()}"
        return f"{event} AND {upsert}" if self.events else f"text IS NULL OR ({event} AND (({ended}) OR ({upsert})))"

    def _is_upsert(self) -> str:
        kinds = "'r', 'c'" if self.events else "'r', 'c', 'u'"
        return f"{_EVENT}.op IN ({kinds}) AND {_EVENT}.after IS NOT NULL"

    def _is_row(self) -> str:
        """Whether the row, written again, is what came, and each value is one that Spark gets right."""
        row = f"TO_JSON({_EVENT}.after, MAP('ignoreNullFields', 'false'))"
        conditions = [f"CONTAINS(text, '\"after\":' || {row})"]
        marks = [f"CONTAINS(text, {literal(mark.decode())})" for mark in marks_of(self.view.table)]
        if marks:
            conditions.append(f"({_EVENT}.op = 'r' OR NOT ({' OR '.join(marks)}))")
        for column, how in zip(self.view.table.columns, self.columns, strict=True):
            if how.plain:
                raw = f"{_EVENT}.after.{quoted(column.name)}"
                conditions.append(f"({raw} IS NULL OR {how.plain(raw)})")
        return _all(conditions)


def _fields(table: Table, columns: Sequence[Native], names: set[str] | None = None) -> str:
    pairs = zip(table.columns, columns, strict=True)
    return ", ".join(
        f"{quoted(column.name)}: {how.raw}" for column, how in pairs if names is None or column.name in names
    )


def _all(conditions: Iterable[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions)
