"""What is found of a row, place by place: the body of a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["topic", "letters", "table", "history", "index", "cache", "row-store", "sink", "matches", "backup"]


@dataclass
class Place:
    """A place that was searched.

    Attributes:
        kind: what it is.
        name: of the topic, table, index, server or repository; of a sink that the file has no more its folder.
        sink, generation: whose it is.
        found: how many values of the row were seen.
        hidden: how many things are there that may hold some, and that nobody can look into: deleted documents that no
            merge has removed yet, a file of a server's own.
        words: what was seen, in words.
        left: what ``found`` is after all was done; None as long as nothing was.
        hidden_left: the same of ``hidden``.
        note: what else must be known, and who has to do something about it.
        refs: tags and branches that keep what was seen.
    """

    kind: Kind
    name: str
    sink: str | None = None
    generation: int | None = None
    found: int = 0
    hidden: int = 0
    words: str = ""
    left: int | None = None
    hidden_left: int | None = None
    note: str | None = None
    refs: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str | None, int | None]:
        """By which it is found again in a later look."""
        return self.kind, self.name, self.sink, self.generation

    @property
    def empty(self) -> bool:
        """Whether nothing of the row is there any more, as far as can be seen."""
        seen = self.found if self.left is None else self.left
        may = self.hidden if self.hidden_left is None else self.hidden_left
        return self.kind == "backup" or not (seen or may)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` and the certificate have it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "sink": self.sink,
            "generation": self.generation,
            "found": self.found,
            "hidden": self.hidden,
            "words": self.words,
            "left": self.left,
            "hidden_left": self.hidden_left,
            "refs": list(self.refs),
            "note": self.note,
            "empty": self.empty,
        }


def settled(before: list[Place], after: list[Place]) -> list[Place]:
    """What was found, each with what is left of it; what only the second look has found comes behind. Pure."""
    later = {place.key: place for place in after}
    for place in before:
        now = later.pop(place.key, None)
        place.left, place.hidden_left = (0, 0) if now is None else (now.found, now.hidden)
        if now is not None:
            place.refs, place.note = now.refs, now.note or place.note
    for place in later.values():
        place.left, place.hidden_left = place.found, place.hidden
    return [*before, *later.values()]
