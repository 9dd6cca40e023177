"""What a sink holds under one key, whatever kind of sink it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.join.view import JoinedView
from cdc.keys import alike
from cdc.records.position import FIRST_LSN
from cdc.types import spark_type
from cdc.types.times import canonical_date, canonical_timestamp
from cdc.view import View
from operations.holding import Document, holding
from operations.opened import Opened
from truth.values import exact


@dataclass(frozen=True)
class Found:
    """What is there.

    Attributes:
        version: as the sink keeps it.
        document: in the form in which it is compared, numbers as JSON reads them; of a warehouse the row, with dates
            and times as the numbers that it keeps; None if there is none.
        near: keys like the one that was asked for, that the sink does hold; only looked for when there is nothing.
        shown: the document as the sink has it, with all digits and in its order: ``orjson`` writes it, and nothing
            compares it.
    """

    version: int | None = None
    document: dict[str, Any] | None = None
    near: tuple[str, ...] = ()
    shown: Mapping[str, Any] | None = None


def place_of(view: View, version: int | None) -> int | None:
    """What a version is in the log, as a position; None where it is none: a fill of joined documents counts its slices.
    Pure."""
    return None if isinstance(view, JoinedView) and version is not None and version < FIRST_LSN else version


_TOLD: Mapping[str, Callable[[int], str]] = {
    "date": canonical_date,
    "timestamp_ntz": canonical_timestamp,
    "timestamp": lambda micros: f"{canonical_timestamp(micros)}Z",
}


def with_moments(view: View, row: dict[str, Any]) -> dict[str, Any]:
    """A warehouse's row to be read beside Postgres's: days and moments in its own columns as texts. Pure."""
    by_name = view.table.by_name
    columns = view.tree.columns if isinstance(view, JoinedView) else view.columns
    told = {out: _TOLD.get(spark_type(by_name[source])) for source, out in columns if source in by_name}
    return row | {
        out: tell(row[out]) for out, tell in told.items() if tell is not None and isinstance(row.get(out), int)
    }


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
        return Found(found.version, found.documents[0], shown=_shown(found))


def _shown(found: Document) -> Mapping[str, Any]:
    try:
        shown = None if found.text is None else exact(found.text)
    except ValueError:
        shown = None
    return shown if isinstance(shown, dict) else found.documents[0]  # a row, or what is no document, and says so
