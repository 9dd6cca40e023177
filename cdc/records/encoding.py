"""How a record's value is written in Kafka: as JSON, or as Avro with a schema registry.

An encoding turns a value's bytes into the event that Debezium's JSON would be, and nothing else: what an event means is
the decoder's (cdc/records/debezium_json.py), the same for all. Keys are JSON in every encoding
(docs/decisions/avro.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from cdc.catalogue import Table
from cdc.records.placeholders import marks_of


class UnknownSchemaId(ValueError):
    """The registry has no schema of the id that a value bears."""


class Encoding(Protocol):
    """How records' values are written."""

    def loads(self, value: bytes) -> Any:
        """A value as Debezium's JSON would have it.

        Raises:
            ValueError: the bytes are not of this encoding; ``UnknownSchemaId`` among them.
            RegistryError: the registry can't be asked, which says nothing about the record.
        """

    def marks(self, table: Table) -> tuple[bytes, ...]:
        """Bytes of which at least one is in every value of this table that holds a placeholder."""

    def dumps(self, event: Mapping[str, Any], like: bytes) -> bytes:
        """An event of ours, written as ``like`` is, a value of the same topic."""


class Json:
    """Debezium's JSON without schemas."""

    def loads(self, value: bytes) -> Any:
        """Parse; orjson's error is a ValueError."""
        return orjson.loads(value)

    def marks(self, table: Table) -> tuple[bytes, ...]:
        """See cdc/records/placeholders.py."""
        return marks_of(table)

    def dumps(self, event: Mapping[str, Any], like: bytes) -> bytes:
        """JSON has one form."""
        return orjson.dumps(event)


JSON = Json()
