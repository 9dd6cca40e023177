"""Events of the outbox: records whose key is the aggregate's id, and whose row's key is in the row.

The connector gives them a topic of their aggregate's type (cdc/outbox.py). An event is written once: there are no
updates and no deletes of it.
"""

from __future__ import annotations

from typing import Any

import orjson

from cdc.errors import DecodeError
from cdc.records.change import Change, Op
from cdc.records.debezium_json import Decoder


class EventDecoder(Decoder):
    """Decodes the records of a topic of events; arguments and errors as ``Decoder``."""

    def decode(self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int) -> Change:
        """One event; see ``Decoder.decode``.

        Raises:
            DecodeError: also what deletes or changes: no event does (terminal).
        """
        if value is None:
            raise self._no_event(f"{topic}/{partition}/{offset}", "a record without a value")
        change = super().decode(key, value, topic, partition, offset)
        if change.op not in (Op.CREATE, Op.READ):
            raise self._no_event(f"{topic}/{partition}/{offset}", f"a record of kind {change.op.value}")
        return change

    def named(self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int) -> Change:
        """See ``Decoder.named``: of an event it is in its row."""
        try:
            row = self._key(key, self._loads(value or b"")["after"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._no_event(f"{topic}/{partition}/{offset}", str(error)) from error
        return Change(self._qualified, Op.TOMBSTONE, row, None, 0, topic, partition, offset, 0)

    def letter_key(self, key: bytes | None, value: bytes | None) -> str:
        """See ``Decoder.letter_key``: the record's own key is its aggregate's, and of that there are other events."""
        try:
            return orjson.dumps(self.named(key, value, "", 0, 0).key).decode()
        except DecodeError:
            return ""

    def superseded(self, change: Change) -> bool:
        """No event is read again once its row was deleted: one whose values do not fit is a dead letter."""
        return False

    def _key(self, key: bytes | None, after: dict[str, Any] | None) -> dict[str, Any]:
        row, found = after or {}, {}
        for name in self.table.primary_key:
            found[name] = value = row.get(name)
            if value is None:
                raise ValueError(f"its row lacks the column {name}, which tells events apart")
        return found

    def _undecodable(self, error: Exception, value: bytes | None, record: str) -> DecodeError:
        if isinstance(error, KeyError) and error.args == ("m",):
            return DecodeError(
                f"record {record} is a message that is no event: not a JSON object of columns of {self._qualified},"
                " with its id and the aggregate's type and id",
                means="it goes to the dead letters; it stays in its topic as the application wrote it",
                fix="correct what the application gives to pg_logical_emit_message (docs/outbox.md)",
            )
        return super()._undecodable(error, value, record)

    def _no_event(self, record: str, what: str) -> DecodeError:
        return DecodeError(
            f"record {record} is not an event of {self._qualified}: {what}",
            means="it goes to the dead letters; events are neither changed nor deleted",
            fix="look at the record: is another connector or application writing to this topic?",
        )
