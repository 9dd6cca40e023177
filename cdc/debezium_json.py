"""Debezium's change events as JSON without schemas, one decoder a table.

Which settings the connector must have for this to be exact is in docs/types.md; the rule for positions is in
docs/decisions/positions.md. Values stay raw here: views convert the columns that they use, and no others.
"""

from __future__ import annotations

from typing import Any

import orjson

from cdc.catalogue import Table
from cdc.change import Change, Op
from cdc.errors import DecodeError
from cdc.position import MAX_LSN, pack

PLACEHOLDER = "__debezium_unavailable_value"
_OPS = {op.value: op for op in Op if op is not Op.TOMBSTONE}
_WITH_ROW = frozenset((Op.READ, Op.CREATE, Op.UPDATE))


class Decoder:
    """Decodes the records of one table's topic.

    Args:
        table: the table as the catalogue knows it.
        epoch: of the source's identity; goes into every position.

    Raises:
        StateError: the epoch does not fit a position.
    """

    def __init__(self, table: Table, epoch: int = 0) -> None:
        self.table, self.epoch = table, epoch
        self._base = pack(epoch, 0)
        self._key_columns = table.primary_key
        self._known = frozenset(table.by_name)

    def decode(self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int) -> Change:
        """One record.

        Args:
            key: the record's key, JSON; None only for TRUNCATE.
            value: the record's value, JSON; None is a tombstone.
            topic: where it was read, for the change and for messages.
            partition: likewise.
            offset: likewise.

        Raises:
            DecodeError: not an event of this table; names topic, partition and offset (terminal).
        """
        try:
            if value is None:
                return Change(self.table.qualified, Op.TOMBSTONE, self._key(key), None, 0, topic, partition, offset, 0)
            event = orjson.loads(value)
            source = event["source"]
            op = _OPS[event["op"]]
            after = event["after"] if op in _WITH_ROW else None
            if op in _WITH_ROW and type(after) is not dict:
                raise ValueError(f"an event of kind {op.value!r} must have `after`")
            if source["table"] != self.table.name or source["schema"] != self.table.schema:
                raise ValueError(f"it is of {source['schema']}.{source['table']}")
            return Change(
                self.table.qualified,
                op,
                {} if op is Op.TRUNCATE else self._key(key),
                after,
                self._position(source),
                topic,
                partition,
                offset,
                source.get("ts_ms") or 0,
                unavailable(after) if after is not None and _may_hold_placeholder(value) else (),
                op is Op.READ,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self._undecodable(error, value, topic, partition, offset) from error

    def _key(self, key: bytes | None) -> dict[str, Any]:
        if key is None:
            raise ValueError("it has no key")
        found = orjson.loads(key)
        if type(found) is not dict:
            raise ValueError("its key is not a JSON object")
        for name in self._key_columns:
            if found.get(name) is None:
                raise ValueError(f"its key lacks the column {name}")
        return found

    def _position(self, source: dict[str, Any]) -> int:
        lsn = source.get("lsn") or 0
        sequence = source.get("sequence")
        if sequence:
            for text in orjson.loads(sequence):
                if text is not None and int(text) > lsn:
                    lsn = int(text)
        if type(lsn) is not int or not 0 < lsn <= MAX_LSN:
            raise ValueError(f"its source has no usable LSN (lsn {source.get('lsn')!r}, sequence {sequence!r})")
        return self._base | lsn

    def drift(self, change: Change) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(columns the event has and the catalogue has not, columns the catalogue has and the event has not)."""
        if change.after is None or change.after.keys() == self._known:
            return (), ()
        names = change.after.keys()
        return tuple(sorted(names - self._known)), tuple(sorted(self._known - names))

    def _undecodable(
        self, error: Exception, value: bytes | None, topic: str, partition: int, offset: int
    ) -> DecodeError:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        fix = ""
        if value is not None and value[:9] == b'{"schema"':
            fix = "set key.converter.schemas.enable and value.converter.schemas.enable to false: run `headwater apply`"
        return DecodeError(
            f"record {topic}/{partition}/{offset} is not an event of {self.table.qualified}: {why}",
            means="it goes to the dead letters; the row it is about may be out of date in the sinks",
            fix=fix,
        )


# The placeholder's base64 and the first numbers of its bytes: how it looks in bytea and in integer arrays.
_MARKS = (PLACEHOLDER.encode(),)


def _may_hold_placeholder(value: bytes) -> bool:
    """A cheap look before the dear one: hardly any event holds the placeholder."""
    return any(mark in value for mark in _MARKS)


def unavailable(after: dict[str, Any]) -> tuple[str, ...]:
    """The columns whose value is Debezium's placeholder."""
    return tuple(name for name, value in after.items() if is_placeholder(value))


def is_placeholder(value: Any) -> bool:
    """Whether a raw value stands for "unchanged, and not in the log"."""
    return bool(value in (PLACEHOLDER, [PLACEHOLDER]))


