"""Rows and steps of a test to the records that Debezium would write for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from cdc.catalogue import Table
from cdc.errors import ConfigError
from cdc.keys import document_id
from cdc.outbox import is_outbox, topic_of_row
from cdc.pipeline import Pipeline
from operations.testing.cases import Case, Change, Row

# Where the log begins, in bytes, and how far a transaction moves it.
_FIRST, _STEP = 0x1000000, 0x100
# When everything was committed (milliseconds since 1970): the same in every run.
_AT_MS = 1_700_000_000_000


class Record(NamedTuple):
    """One record of the log, and the table that it is of."""

    key: bytes
    value: bytes | None
    topic: str
    partition: int
    offset: int
    table: str


def batches_of(case: Case, pipeline: Pipeline) -> list[list[Record]]:
    """The log of a test, cut as a process would read it that keeps up: the given rows, then each step by itself.

    Raises:
        ConfigError: a row is given twice, or a step meets a row that is not there, or is already (terminal).
    """
    log = _Log(case, pipeline)
    given = [record for change in case.changes if change.kind == "given" for record in log.write(change)]
    steps = [log.write(change) for change in case.changes if change.kind != "given"]
    return [batch for batch in (given, *steps) if batch]


class _Log:
    """Rows as they stand, and the offsets of their topics."""

    def __init__(self, case: Case, pipeline: Pipeline) -> None:
        self.case, self.pipeline, self.lsn = case, pipeline, _FIRST
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.offsets: dict[str, int] = {}

    def write(self, change: Change) -> list[Record]:
        """The records of one change; a key that changes is a delete and an insert, as Debezium tells it."""
        table = change.table
        slot = _slot(table, change.key)
        if change.kind != "given":
            self.lsn += _STEP
        if change.kind in ("given", "insert"):
            if slot in self.rows:
                raise self._refused(change, f"{table.name} has a row {slot[1]} already")
            self.rows[slot] = dict(change.row)
            return [self._row(table, change.row, "r" if change.kind == "given" else "c")]
        if slot not in self.rows:
            raise self._refused(change, f"{table.name} has no row {slot[1]}")
        if is_outbox(self.pipeline, table.qualified):
            raise self._refused(change, f"the rows of {table.name} are events, and only inserts of them matter")
        before = self.rows.pop(slot)
        if change.kind == "delete":
            return self._gone(table, change.key)
        after = {**before, **change.row}
        moved = _slot(table, after)
        if moved in self.rows:
            raise self._refused(change, f"{table.name} has a row {moved[1]} already")
        self.rows[moved] = after
        if moved == slot:
            return [self._row(table, after, "u")]
        return [*self._gone(table, change.key), self._row(table, after, "c")]

    def _gone(self, table: Table, key: Row) -> list[Record]:
        topic = self.pipeline.topic(table.qualified)
        value = self._event(table, "d", None)
        return [self._record(table, topic, key, value), self._record(table, topic, key, None)]

    def _row(self, table: Table, row: Row, op: str) -> Record:
        key = {name: row[name] for name in table.primary_key}
        topic = topic_of_row(self.pipeline, table.qualified, row)
        return self._record(table, topic, key, self._event(table, op, row))

    def _event(self, table: Table, op: str, after: Row | None) -> bytes:
        source = {
            "schema": table.schema,
            "table": table.name,
            "lsn": self.lsn,
            "sequence": f'["{self.lsn}","{self.lsn}"]',
            "snapshot": "true" if op == "r" else "false",
            "ts_ms": _AT_MS,
        }
        return orjson.dumps({"before": None, "after": after, "source": source, "op": op})

    def _record(self, table: Table, topic: str, key: Mapping[str, Any], value: bytes | None) -> Record:
        offset = self.offsets.get(topic, 0)
        self.offsets[topic] = offset + 1
        return Record(orjson.dumps(dict(key)), value, topic, 0, offset, table.qualified)

    def _refused(self, change: Change, what: str) -> ConfigError:
        return ConfigError(f"{self.case.file}:{change.line}:1: test {self.case.name!r}: {what}")


def _slot(table: Table, row: Row) -> tuple[str, str]:
    return table.qualified, document_id([row[name] for name in table.primary_key])
