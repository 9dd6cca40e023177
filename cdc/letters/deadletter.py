"""A dead letter: one item that a sink will never take (or one record that can't be decoded), with the reason. Pure.

Kept in a compacted topic under sink, generation, view and key, so that the newest verdict on a key is the one that
stays. A letter is about a document, or about a row: of a record that can't be decoded nobody knows the document, and a
row of a joined view's other tables has none of its own. docs/decisions/letters.md says when a letter stands no more.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import Any

import orjson

from cdc.errors import DecodeError
from cdc.formats import LETTER, refuse_newer
from cdc.keys import document_id
from cdc.letters.words import bare

# More of a document is of no use to whoever looks at a letter. What is cut can be found again by topic, partition and
# offset, and is told by its digest.
MAX_DOCUMENT_BYTES = 4 << 20
MAX_REASON_CHARS = 4000


@dataclass(frozen=True)
class DeadLetter:
    """One rejected item.

    Attributes:
        sink, view, key: where it should have gone; view and key may be empty for a record that could not be decoded.
            The key is the document's id, or the row's where there is a ``table``; the record's own key as text if not
            even that could be read. An empty one need not be none: see ``keyless``.
        version: that the sink was given; of a row its position; not above 0 when unknown.
        reason: the server's or the codec's words.
        document: what was to be written; None for a delete or when there is none.
        topic, partition, offset: the record it came from, where known.
        at_ms: when it was rejected, milliseconds since 1970.
        document_bytes: full size of a document that was cut in ``to_json``, or left out; None when it is whole.
        generation: which build of the sink; None in letters of before that was told.
        table: ``schema.table`` of the row that it is about; None when it is about a document.
        tx_id: the source's transaction, where known.
        deleting: it is a delete that was refused.
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
    generation: int | None = None
    table: str | None = None
    tx_id: int | None = None
    deleting: bool = False

    @property
    def keyless(self) -> bool:
        """Whether nobody knows what it is about. An empty key is also the id of a document whose key is an empty text:
        of that the view is known, and no table is told. (Letters without a generation are of before tables were.)"""
        return not self.key and (self.table is not None or not self.view or self.generation is None)

    def record_key(self) -> bytes:
        """Key in the dead-letter topic: ``sink|view|key|g<generation>``, with ``|schema.table`` behind it for a row.

        Without a key ``sink|topic|partition|offset|g<generation>``, so that two undecodable records don't replace each
        other. No two of these meet: the fourth part is ``g…`` or a number.
        """
        parts = [self.sink, self.view, self.key]
        if self.keyless:
            parts = [self.sink, self.topic or "", str(self.partition), str(self.offset)]
        if self.generation is not None:
            parts.append(f"g{self.generation}")
            if self.key and self.table is not None:
                parts.append(self.table)
        return document_id(parts).encode()

    def without_values(self) -> DeadLetter:
        """The same without what rows hold: no document, and of the reason only what no server quotes."""
        size = self.document_bytes if self.document is None else len(self.document)
        return replace(self, document=None, document_bytes=size, reason=bare(self.reason))

    def to_json(self, most: int | None = None) -> bytes:
        """As a JSON object. The document is a string (or base64 where it isn't UTF-8): it may not be valid JSON.

        Args:
            most: bytes that the topic takes; of the document so much is left out that it is no more. A joined document
                may be larger than any record, and base64 and escapes make each larger than it was.
        """
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
            "generation": self.generation,
            "table": self.table,
            "tx_id": self.tx_id,
            "deleting": self.deleting,
        }
        if self.document is None:
            size = {} if self.document_bytes is None else {"document_bytes": self.document_bytes}
            return orjson.dumps(record | {"document": None} | size)
        if self.document_bytes is not None:
            record["document_bytes"] = self.document_bytes
        keep = min(len(self.document), MAX_DOCUMENT_BYTES)
        data = orjson.dumps(record | self._shown(keep))
        if most is None or len(data) <= most:
            return data
        around = len(orjson.dumps(record | self._shown(0)))
        while len(data) > most and keep:
            # By as much as it is too large; and a little more each time, as no byte of it need be as large as another.
            takes = len(data) - around
            keep = keep * max(0, takes - (len(data) - most)) // max(1, takes) * 9 // 10
            data = orjson.dumps(record | self._shown(keep))
        return data

    def _shown(self, keep: int) -> dict[str, Any]:
        """The first bytes of the document, as text where all of it is text; what they are of, if they are not all."""
        whole = self.document or b""
        told: dict[str, Any] = {}
        if keep < len(whole):
            told = {"document_bytes": len(whole), "document_sha256": hashlib.sha256(whole).hexdigest()}
        try:
            whole.decode()
        except UnicodeDecodeError:
            return told | {"document_base64": base64.b64encode(whole[:keep]).decode()}
        return told | {"document": whole[:keep].decode(errors="ignore")}  # but for half a character at its end

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
                generation=record.get("generation"),
                table=record.get("table"),
                tx_id=record.get("tx_id"),
                deleting=bool(record.get("deleting", False)),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise DecodeError(f"not a dead letter: {error!r}") from error
