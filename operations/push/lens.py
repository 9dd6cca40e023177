"""What a subscriber sees of a change: a filter over the document, and the fields it wants. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from jmespath.exceptions import JMESPathError

from cdc.filters import compiled
from cdc.json_text import members, read

Op = Literal["created", "changed", "deleted", "entered", "left"]


@dataclass(frozen=True)
class Lens:
    """One way to look at a view. Those that are equal see the same.

    Attributes:
        filter: a JMESPath expression that must be true of a document; empty for all documents.
        fields: names to be kept; none for all.
    """

    filter: str = ""
    fields: tuple[str, ...] = ()
    _true: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, filter: str | None, fields: Sequence[str] = ()) -> Lens:
        """A lens, once its filter was understood.

        Raises:
            ConfigError: the filter is no JMESPath; says where (terminal).
        """
        text = (filter or "").strip()
        return cls(text, tuple(dict.fromkeys(fields)), compiled(text) if text else None)

    def op(self, before: bytes | None, after: bytes | None) -> Op | None:
        """What a change is to who looks through this; None when nothing is to be seen of it."""
        if self._true is None:
            op: Op | None = "created" if before is None else "deleted" if after is None else "changed"
        else:
            was, now = self.matches(before), self.matches(after)
            op = ("changed" if was else "entered") if now else ("left" if was else None)
        if op == "changed" and self.fields and self.seen(before) == self.seen(after):
            return None
        return op

    def matches(self, document: bytes | None) -> bool:
        """Whether a document is among those that are wanted: the filter is true of it, not only something."""
        if document is None:
            return False
        if self._true is None:
            return True
        try:
            return self._true.search(_read(document)) is True
        except (JMESPathError, ValueError, TypeError, RecursionError):
            return False  # no JSON, or a function that does not take what this document has there

    def seen(self, document: bytes | None) -> bytes:
        """A document as JSON, narrowed; ``null`` for none, and for what is no JSON.

        What is told of it is the text that it is, so that a number keeps all of its digits.
        """
        if document is None:
            return b"null"
        try:
            found = _read(document)
        except ValueError:
            return b"null"
        # A line break would end the line of an event; only somebody else's document has one, between its values.
        whole = document.replace(b"\n", b" ").replace(b"\r", b" ")
        if not self.fields:
            return whole
        if not isinstance(found, dict):
            return b"null"
        parts = members(whole.decode())
        kept = (f"{orjson.dumps(name).decode()}:{parts[name]}" for name in self.fields if name in parts)
        return ("{" + ",".join(kept) + "}").encode()


def _read(document: bytes) -> Any:
    """What a filter looks at: Postgres has JSON that ``orjson`` does not take, and other fields beside it."""
    try:
        return orjson.loads(document)
    except ValueError:
        return read(document)
