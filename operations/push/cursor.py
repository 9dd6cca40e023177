"""A cursor: up to where a subscriber has read, as a text that means nothing to anybody else. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

# What a subscriber keeps in the place of a cursor from a `reset` until all was told: it leads nowhere, so who comes
# again with it begins anew. With nothing at all an EventSource would bring the last one that it has, or the cursor of
# its address, from where there is too little for who has forgotten.
RESET = "reset"
# Of ours: shorter ones are none, longer ones were not made here.
MAX_CHARS = 200
_FORM = re.compile(rb"1\.([0-9]{1,7})\.([0-9a-f]{16})\.([0-9]{1,20}-[0-9]{1,20})")


@dataclass(frozen=True)
class Cursor:
    """A place in one stream.

    Attributes:
        generation: of the sink.
        mark: of the stream: one that was made anew has another.
        place: the entry's id.
    """

    generation: int
    mark: str
    place: bytes

    def text(self) -> str:
        """As a subscriber keeps it."""
        plain = b"1.%d.%s.%s" % (self.generation, self.mark.encode(), self.place)
        return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()

    @property
    def number(self) -> tuple[int, int]:
        """By which places of one stream are compared."""
        return number_of(self.place)

    def precedes(self, other: Cursor) -> bool:
        """Whether another place of the same stream lies behind this one."""
        return (self.generation, self.mark) == (other.generation, other.mark) and self.number < other.number


def number_of(place: bytes) -> tuple[int, int]:
    """A place as numbers, in the order of the stream."""
    first, _, second = place.partition(b"-")
    return int(first), int(second)


def parse_cursor(text: str) -> Cursor | None:
    """The cursor that a text is; None for any other text, which leads to nowhere that could be gone on from."""
    if len(text) > MAX_CHARS:
        return None
    try:
        plain = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error, ValueError):
        return None
    found = _FORM.fullmatch(plain)
    return None if found is None else Cursor(int(found[1]), found[2].decode(), found[3])
