"""A dead letter: one item that a sink will never take (or one record that can't be decoded), with the reason. Pure.

Kept in a compacted topic under sink, view and key, so that the newest verdict on a key is the one that stays.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.errors import DecodeError
from cdc.formats import LETTER, refuse_newer
from cdc.keys import document_id

# A letter must fit through the broker; the default limit of kafka.max_message_bytes is 10 MB. What is cut can be found
# again by topic, partition and offset, and is told by its digest.
MAX_DOCUMENT_BYTES = 4 << 20
MAX_REASON_CHARS = 4000


@dataclass(frozen=True)
class DeadLetter:
    """One rejected item.

    Attributes:
        sink, view, key: where it should have gone; view and key may be empty for a record that could not be decoded.
        version: position packed into a long; -1 when unknown.
        reason: the server's or the codec's words.
        document: what was to be written; None for a delete or when there is none.
        topic, partition, offset: the record it came from, where known.
        at_ms: when it was rejected, milliseconds since 1970.
        document_bytes: full size of a document that was cut in ``to_json``; None when it is whole.
    """

    sink: str
    view: str
    key: str
    version: int
    reason: str
    document: bytes | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    at_ms: int = 0
    document_bytes: int | None = None

    def record_key(self) -> bytes:
        """Key in the dead-letter topic: ``sink|view|key``, or ``sink|topic|partition|offset`` when there is no key (so
        that two undecodable records don't replace each other)."""
        if self.key:
            return document_id([self.sink, self.view, self.key]).encode()
        return document_id([self.sink, self.topic or "", str(self.partition), str(self.offset)]).encode()

    def to_json(self) -> bytes:
        """As a JSON object. The document is a string (or base64 where it isn't UTF-8): it may not be valid JSON."""
        record: dict[str, Any] = {
            "format": LETTER,
            "sink": self.sink,
            "view": self.view,
            "key": self.key,
            "version": self.version,
            "reason": self.reason[:MAX_REASON_CHARS],
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "at_ms": self.at_ms,
        }
        if self.document is None:
            return orjson.dumps(record | {"document": None})
        document = self.document
        if len(document) > MAX_DOCUMENT_BYTES:
            record["document_bytes"] = len(document)
            record["document_sha256"] = hashlib.sha256(document).hexdigest()
            document = document[:MAX_DOCUMENT_BYTES]
        elif self.document_bytes is not None:
            record["document_bytes"] = self.document_bytes
        try:
            record["document"] = document.decode()
        except UnicodeDecodeError:
            record["document_base64"] = base64.b64encode(document).decode()
        return orjson.dumps(record)

    @classmethod
    def from_json(cls, data: bytes) -> DeadLetter:
        """Read a letter back; unknown fields are ignored, so that older readers stand newer writers.

        Raises:
            DecodeError: not a dead letter. NewerFormat: a newer Headwater's.
        """
        try:
            record = orjson.loads(data)
            refuse_newer("a dead letter", record.get("format"), LETTER)
            document: bytes | None = None
            if record.get("document_base64") is not None:
                document = base64.b64decode(record["document_base64"])
            elif record.get("document") is not None:
                document = record["document"].encode()
            return cls(
                sink=record["sink"],
                view=record["view"],
                key=record["key"],
                version=int(record["version"]),
                reason=record["reason"],
                document=document,
                topic=record.get("topic"),
                partition=record.get("partition"),
                offset=record.get("offset"),
                at_ms=record.get("at_ms", 0),
                document_bytes=record.get("document_bytes"),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise DecodeError(f"not a dead letter: {error!r}") from error
