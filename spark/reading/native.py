"""Records to entries in the virtual machine, for views whose types need no more than Spark's own functions.

The same entries as ``spark.reading.entries`` makes of the same records, without Python. A record is *plain* if it is an
event of the table as it is known, to the letter, and each of its values one that Spark gets right. Whatever is not
(garbage, a former shape, a large value that is left out) is for the Python codec to judge, and with it every other
record of its key, because what becomes of one may depend on the next.
docs/decisions/warehouse-decoding.md; tests hold all ways against each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cdc.join.expressions import literal, quoted
from cdc.records.former import Former
from cdc.records.position import pack
from cdc.types.native import native
from cdc.view import View
from sinks.contract import UNVERSIONED
from spark.reading import native_json, native_rows
from spark.reading.expressions import META, PREFIX
from spark.reading.native_raw import (
    AFTER,
    ALONE,
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
from spark.reading.spec import FlowSpec

# Of records: whether only the codec can read them.
ODD = "_hw_odd"


def odd_ones() -> tuple[Column, ...]:
    """What is counted of what a ``NativeReader`` has read, to know the odd ones again: how many, and which."""
    return (
        F.count(F.when(F.col(ODD), 1)).alias("odd"),
        F.bit_xor(F.when(F.col(ODD), F.xxhash64(*_place()))).alias("which"),
    )


def _place() -> tuple[Column, ...]:
    return tuple(F.col(PREFIX + name) for name in ("topic", "partition", "offset"))


@dataclass(frozen=True)
class NativeReader:
    """Reads the records of one topic for one view.

    Attributes:
        view: the view; its table's columns are all of types that Spark reads.
        raw: how its topic's records are read.
        epoch: see ``FlowSpec``.
        snapshot_lsn: likewise.
        repeats: the same records are odd however often they are read. Not where they may be Avro: that our jar reads
            only while the registry answers (deploy/spark/AvroSchemas.java).
    """

    view: View
    raw: RawTable
    epoch: int = 0
    snapshot_lsn: int = 0
    repeats: bool = True

    @classmethod
    def of(cls, spec: FlowSpec) -> NativeReader | None:
        """The reader of a flow of one view; None if the view or the records need the Python codec.

        Args:
            spec: the flow's work.
        """
        view = spec.view
        table = view.table
        found = [native(column) for column in table.columns]
        columns = tuple(one for one in found if one is not None)
        keys = {column.name: one for column, one in zip(table.columns, found, strict=True) if one and one.key}
        if view.needs_spark or len(columns) < len(found):
            return None
        if Former(table) or table.moved:  # by names alone a record of before would be misread
            return None
        if not table.primary_key or not keys.keys() >= set(table.primary_key):
            return None
        raw = RawTable(table, columns, bool(spec.events))
        return cls(view, raw, spec.epoch, spec.snapshot_lsn, repeats=spec.registry is None)

    def fingerprint(self, records: DataFrame) -> str | None:
        """The same for readers to which the same records are odd; None if there is no telling.

        By our jar other records are odd than without it, and of another version's code nothing is known.

        Args:
            records: as ``read``.
        """
        if not self.repeats:
            return None
        asked = self.raw.events, self.raw.row_ddl(), self.raw.key_ddl(), self._is_plain()
        told = version("headwater"), version("pyspark"), native_rows.there(self.raw, records), self.view, asked
        return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()

    def read(self, records: DataFrame) -> DataFrame:
        """Entries with typed rows as ``spark.reading.expressions.entry_schema`` has them, then ``KEY`` and ``ODD``.

        Documents are empty where there is one: nobody reads it. Of odd records only the place in the log is known.

        Args:
            records: with the columns of ``spark.reading.record``.
        """
        seen = native_rows.seen(self.raw, records)
        if seen is None:
            seen = native_json.seen(self.raw, records)
        if self.raw.events:
            seen = seen.withColumn(ROWKEY, F.col(AFTER))
        judged = seen.withColumn(STATE, F.expr(f"IF({self._is_plain()}, {STATE}, {IS_ODD})"))
        return judged.select(*self._own(), *self._typed(), KEY, (F.col(STATE) == IS_ODD).alias(ODD))

    def of_odd_keys(self, records: DataFrame, found: Mapping[str, Any]) -> DataFrame:
        """The records of every key that has an odd one, in their order: what becomes of one may depend on the next.

        All records if others are odd than were at the look before: one that was odd there and is plain here was left
        out then, and would be now.

        Args:
            records: as ``read``.
            found: by the names of ``odd_ones``, of the look before; empty if nobody has looked.
        """
        odd = self.read(records).where(ODD)
        keys = odd.select(KEY)
        if not self.repeats:
            held = odd.select(KEY, *_place(), ODD).localCheckpoint()  # what is compared is what is joined
            now = held.agg(*odd_ones()).collect()[0].asDict()
            if any(found.get(name) != value for name, value in now.items()):
                return records
            keys = held.select(KEY)
        mine = records.join(keys.distinct(), F.coalesce("key", F.lit(b"")) == F.col(KEY), "left_semi")
        return mine.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")

    # -- what it makes of it ------------------------------------------------------------------------------------------

    def _own(self) -> list[Column]:
        made = {
            "view": literal(self.view.name),
            "id": f"IF({STATE} = {IS_ODD}, NULL, {self._id()})",
            "version": f"CASE {STATE} WHEN {IS_ODD} THEN NULL WHEN {IS_GONE} THEN {UNVERSIONED} "
            f"ELSE {self._position()} END",
            "document": f"IF({STATE} = {IS_UPSERT}, X'', NULL)",
            "ts_ms": TS,
        }
        return [F.expr(made.get(name, name)).cast(kind).alias(PREFIX + name) for name, (_, kind) in META.items()]

    def _typed(self) -> list[Column]:
        """Each column of the row; of a row that is gone those of its key."""
        keys, found = set(self.view.table.primary_key), []
        for name, how in self.raw.of_row():
            row = how.value(f"{AFTER}.{quoted(name)}")
            other = how.value(f"{ROWKEY}.{quoted(name)}") if name in keys else "NULL"
            made = f"CASE {STATE} WHEN {IS_ODD} THEN NULL WHEN {IS_UPSERT} THEN {row} ELSE {other} END"
            found.append(F.expr(made).alias(name))
        return found

    def _id(self) -> str:
        """As ``cdc.keys.document_id``."""
        by_name = dict(self.raw.of_row())
        texts = []
        for name in self.view.key:
            text = by_name[name].key
            assert text is not None
            texts.append(text(f"{ROWKEY}.{quoted(name)}"))
        if len(texts) == 1:
            return texts[0]
        escaped = [rf"REPLACE(REPLACE({text}, '\\', '\\\\'), '|', '\\|')" for text in texts]
        return f"CONCAT_WS('|', {', '.join(escaped)})"

    def _position(self) -> str:
        """As ``cdc.records.debezium_json.Decoder`` has it."""
        snapshot = f"{self.snapshot_lsn}L"
        return f"{pack(self.epoch, 0)}L | IF({ALONE} AND {LSN} < {snapshot}, {snapshot}, {LSN})"

    def _is_plain(self) -> str:
        """Whether each value of what was read is one that Spark gets right."""
        conditions = ["TRUE"]
        for name, how in self.raw.of_key():
            raw = f"{ROWKEY}.{quoted(name)}"
            conditions.append(f"{raw} IS NOT NULL")
            if how.plain:
                # What a numeric has no place for is null, as in any column; as a key it is the codec's to judge.
                conditions += [how.plain(raw), f"{how.value(raw)} IS NOT NULL"]
        for name, how in self.raw.of_row():
            if how.plain:
                raw = f"{AFTER}.{quoted(name)}"
                conditions.append(f"({raw} IS NULL OR {how.plain(raw)})")
        return all_of(conditions)
