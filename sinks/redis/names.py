"""Key names. Pure.

======================  =====================================  =========================================
value, plain            ``<key_prefix><view>:<id>``            the JSON document; plain GET reads it
value, hidden           ``<key_prefix><view>@<N>:<id>``        a document of generation N beside them
version                 ``hw:v:{<own name of the value>}``     decimal digits; stays after a delete (fence)
pointer                 ``<key_prefix><view>@live``            hash: which generation is where (pointer.py)
changes                 ``<key_prefix><view>@<N>@changes``     stream of generation N's changes (stream/changes.py)
webhooks                ``<key_prefix><view>@hooks``           hash: how far each webhook is (stream/hooks.py)
refused by webhooks     ``<key_prefix><view>@letters``         stream of batches that a webhook did not take
matches                 ``<key_prefix><view>@match…``, …       who matches which standing query (stream/matches.py)
======================  =====================================  =========================================

A generation's *own* name is the plain one for generation 1 and the hidden one for all others. Versions keep to it;
values of the generation that readers see lie at the plain names (``promotion.py``).

Redis Cluster places a key by what stands between its first braces, so the version key always lands in its value's slot
and one script may touch both. That only works if the value key itself has no braces, so in an id ``%``, ``{`` and ``}``
are percent-encoded (``%25``, ``%7B``, ``%7D``); any other id is used as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cdc.keys import is_stray, stray_id, stray_name

VERSION_PREFIX = b"hw:v:{"
_ENCODE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


class MatchKeys(NamedTuple):
    """Where the matches of a view's standing queries are (stream/matches.py)."""

    matcher: bytes
    matched: bytes
    standing: bytes
    matches: bytes


@dataclass(frozen=True)
class Names:
    """Where one generation of one view lives: prefixes of its keys, and the pointer."""

    key_prefix: str
    view: str
    generation: int = 1

    @property
    def stem(self) -> str:
        """What all keys of all generations begin with (cdc/keyspaces.py)."""
        return f"{self.key_prefix}{self.view}"

    @cached_property
    def plain(self) -> bytes:
        """Prefix of the names that readers use."""
        return prefix_of(self.key_prefix, self.view)

    @cached_property
    def hidden(self) -> bytes:
        """Prefix of this generation's names beside them."""
        return self.hidden_of(self.generation)

    @cached_property
    def own(self) -> bytes:
        """Prefix of the names by which versions are kept."""
        return self.plain if self.generation == 1 else self.hidden

    @cached_property
    def pointer(self) -> bytes:
        """The key that says which generation is where."""
        return f"{self.key_prefix}{self.view}@live".encode()

    @cached_property
    def changes(self) -> bytes:
        """The key of this generation's changes: no id of any view can make it."""
        return f"{self.key_prefix}{self.view}@{self.generation}@changes".encode()

    @cached_property
    def hooks(self) -> bytes:
        """The key of what webhooks keep, whichever generation readers see."""
        return f"{self.key_prefix}{self.view}@hooks".encode()

    @cached_property
    def letters(self) -> bytes:
        """The key of what webhooks have refused."""
        return f"{self.key_prefix}{self.view}@letters".encode()

    @cached_property
    def matches(self) -> MatchKeys:
        """The keys of its standing queries' matches, of all generations."""
        return MatchKeys(*(f"{self.stem}@{name}".encode() for name in ("matcher", "matched", "standing", "matches")))

    def hidden_of(self, generation: int) -> bytes:
        """``hidden`` of another generation."""
        return f"{self.key_prefix}{self.view}@{generation}:".encode()

    def version(self, suffix: bytes) -> bytes:
        """The version key of an encoded id."""
        return version_key(self.own + suffix)


def prefix_of(key_prefix: str, view: str) -> bytes:
    """What every plain value key of a view begins with."""
    return f"{key_prefix}{view}:".encode()


def encoded(key: str) -> bytes:
    """An id as it stands in a key."""
    if is_stray(key):
        return stray_name(key)
    return key.translate(_ENCODE).encode()


def version_key(value: bytes) -> bytes:
    """Where its version lies."""
    return VERSION_PREFIX + value + b"}"


def id_of(suffix: bytes) -> str:
    """The document id of a value key without its prefix; the inverse of ``encoded``, also for what we never write."""
    try:
        text = suffix.decode()
    except UnicodeDecodeError:
        return stray_id(suffix)
    if not any(sign in text for sign in "%{}"):
        return text
    plain = text.replace("%7B", "{").replace("%7D", "}").replace("%25", "%")
    return plain if encoded(plain) == suffix else stray_id(suffix)


def common(prefixes: Sequence[bytes]) -> bytes:
    """What all of some prefixes begin with: a server goes through its keys once for all of them."""
    first, last = min(prefixes), max(prefixes)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (one, other) in pairs if one != other), len(first))]


def pattern(prefix: bytes) -> bytes:
    """A glob for SCAN that matches exactly the keys that begin with ``prefix``."""
    out = bytearray()
    for byte in prefix:
        if byte in b"*?[]\\":
            out += b"\\"
        out.append(byte)
    return bytes(out) + b"*"
