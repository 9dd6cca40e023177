"""What a failed query says: Spark hands on words and no exceptions, so errors of ours are known by their class's name.

The names are asked of the classes: one that is moved or renamed must not turn what is terminal into what is tried again
for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdc.errors import HeadwaterError


def name_of(kind: type[BaseException]) -> str:
    """A class as Python's tracebacks name it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _tree(kind: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


_KINDS = {name_of(kind): kind for kind in _tree(HeadwaterError)}
_NAMES = "|".join(re.escape(name) for name in sorted(_KINDS, key=len, reverse=True))
_NAMED = re.compile(rf"({_NAMES}):")
# With what it means and the way out, which stand on lines of their own (cdc/errors.py).
_WORDS = re.compile(rf"(?:{_NAMES}): (.+(?:\n  what (?:it means|to do): .+)*)")


def kinds(text: str) -> set[type[HeadwaterError]]:
    """Which errors of ours a text tells of."""
    return {_KINDS[name] for name in _NAMED.findall(text)}


def refused(text: str) -> bool:
    """Whether one of them is such that no retry cures it."""
    return any(not kind.transient for kind in kinds(text))


def words(text: str) -> list[str]:
    """What they say, each with its meaning and its way out."""
    return _WORDS.findall(text)
