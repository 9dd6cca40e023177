"""What a sink holds under one key, whatever kind of sink it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc.keys import document_id
from cdc.view import View
from operations.holding import holding
from operations.opened import Opened


@dataclass(frozen=True)
class Found:
    """What is there.

    Attributes:
        version: as the sink keeps it.
        document: as JSON reads it; of a warehouse the row, with dates and times as the numbers that it keeps; None if
            there is none.
        near: keys like the one that was asked for, that the sink does hold; only looked for when there is nothing.
    """

    version: int | None = None
    document: dict[str, Any] | None = None
    near: tuple[str, ...] = ()


def held_under(generation: Opened, view: View, key: str) -> Found:
    """Look a document up.

    Args:
        generation: of the sink.
        view: one of its views.
        key: the document's id.

    Raises:
        SinkUnavailable: its server does not answer. SinkRefused: a warehouse has no such table.
    """
    with holding(generation, view) as held:
        found = held.documents([key]).get(key)
        if found is None:
            return Found(near=tuple(held.documents(alike(key, len(view.key)))))
        return Found(found.version, found.documents[0])


def alike(key: str, columns: int) -> list[str]:
    """Keys that somebody may have meant: another letter case, blanks or zeros too many, parts joined otherwise."""
    bare = key.strip()
    found = [bare, bare.lower(), bare.upper(), bare.capitalize(), bare.lstrip("0"), bare.strip("'\"")]
    for sign in "|,/:; " if columns > 1 else "":
        parts = [part.strip() for part in bare.strip("()").split(sign)]
        if len(parts) == columns:
            found += [document_id(parts), document_id(parts[::-1])]
    return [one for one in dict.fromkeys(found) if one and one != key]
