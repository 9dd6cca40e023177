"""How matchers of standing queries are, as metrics: from what they have noted, so that a scrape waits for no server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from prometheus_client.core import Metric

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.metrics.families import counter, gauge
from operations.standing.note import MatcherNote, read_notes, works

_COUNTED = (
    ("documents", "Versions of documents that were held against the standing queries."),
    ("told", "Versions of which it was told that something entered, changed or left."),
    ("unread", "Versions that the search server could not read: they match nothing."),
)
_GAUGED = (
    ("lag_seconds", "How much younger the newest change is than those that were judged."),
    ("queries", "Standing queries of the view."),
    ("pending", "Standing queries that not all documents were held against yet."),
    ("refused", "Queries that the search server does not take: they match nothing."),
)


def standing_metrics(pipelines: Iterable[Pipeline]) -> Iterator[Metric]:
    """One family a metric; no samples where no queries may stand."""
    found: list[tuple[Mapping[str, str], MatcherNote]] = []
    working: list[tuple[Mapping[str, str], float]] = []
    for one in pipelines:
        for view, note in read_notes(one).items():
            of = {"pipeline": one.name, "view": view}
            if note.at:
                found.append((of, note))
            with suppress(HeadwaterError, OSError):  # whether its sink is paused can't be read: of the others is told
                goes_on = works(one, view, note)
                if goes_on is not None:  # nobody is alarmed of a pause
                    working.append((of, int(goes_on)))
    for name, said in _COUNTED:
        yield counter(f"headwater_standing_{name}", said, [(of, getattr(note, name)) for of, note in found])
    for name, said in _GAUGED:
        known = [(of, getattr(note, name)) for of, note in found if getattr(note, name) is not None]
        yield gauge(f"headwater_standing_{name}", said, known)
    yield gauge("headwater_standing_working", "1 while the matcher goes on, 0 when it can't or is not run.", working)
