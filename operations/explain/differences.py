"""Two documents held against each other, field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

# A path's parts: names, and numbers of places in arrays.
Path = tuple[str | int, ...]


class _Absent:
    """What a document has not got."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


class Difference(NamedTuple):
    """A field in which two documents differ; ABSENT on the side that does not have it."""

    path: Path
    left: Any
    right: Any

    @property
    def field(self) -> str:
        """``airline.name``, ``flights[3].delay``."""
        return written(self.path)

    def to_dict(self, left: str, right: str) -> dict[str, Any]:
        """As ``--json`` shows it: a side that lacks the field lacks the key.

        Args:
            left: what the first document is called.
            right: what the second one is called.
        """
        sides = {name: value for name, value in ((left, self.left), (right, self.right)) if value is not ABSENT}
        return {"field": self.field, **sides}


def written(path: Path) -> str:
    """A path as text."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def differences(left: Any, right: Any, path: Path = ()) -> Iterator[Difference]:
    """Where two JSON values differ, the deepest place of each.

    Args:
        left: a value as JSON reads it.
        right: another one.
        path: where they stand.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in [*left, *(name for name in right if name not in left)]:
            yield from differences(left.get(name, ABSENT), right.get(name, ABSENT), (*path, name))
    elif isinstance(left, list) and isinstance(right, list):
        for at in range(max(len(left), len(right))):
            one, other = (side[at] if at < len(side) else ABSENT for side in (left, right))
            yield from differences(one, other, (*path, at))
    elif left is ABSENT or right is ABSENT or not _same(left, right):
        yield Difference(path, left, right)


def without(found: Iterable[Difference], names: Iterable[tuple[str, ...]]) -> list[Difference]:
    """Differences that are not at or below these fields, which may stand in any place of an array."""
    hidden = set(names)
    kept = []
    for one in found:
        plain = tuple(part for part in one.path if isinstance(part, str))
        if not any(plain[:length] in hidden for length in range(1, len(plain) + 1)):
            kept.append(one)
    return kept


def _same(left: Any, right: Any) -> bool:
    """Equal as verification sees it: 1 and 1.0 are two texts, true and 1 are two values."""
    return orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(right, option=orjson.OPT_SORT_KEYS)
