"""One document as it must be, from Postgres by plain SQL: the same second opinion as ``headwater verify`` has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.pipeline import Source
from cdc.stateful import StatefulView
from cdc.types import merge_fields
from cdc.view import View
from truth.bounds import Bounds, bounds_of
from truth.events.logged import Events
from truth.expected import Form, expected, form_of
from truth.rows import snapshot
from truth.values import canonical
from truth.versions import Versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Wanted:
    """What a document must be.

    Attributes:
        document: None if there must be none.
        why: then, why not.
        bounds: of fields that are compared within bounds.
    """

    document: bytes | None
    why: str = ""
    bounds: Bounds = field(default_factory=dict)


def expected_document(
    view: View,
    source: Source,
    key: str,
    spark: SparkSession | None,
    form: Form = "document",
    events: Events | Versions | None = None,
) -> Wanted:
    """The document that a view must have under a key; only the rows that it is made of are read.

    Args:
        view: the view.
        source: where Postgres is.
        key: the document's id.
        spark: needed when ``truth.expected.needs_spark``.
        form: how the sink holds it.
        events: see ``truth.expected.expected``.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
        StateError: see ``truth.expected.expected``.
    """
    with snapshot(source) as connection:
        found = next(expected(view, connection, spark, [key], words=True, events=events), None)
    if found is None:
        event = "no events of the log make it" if isinstance(view, StatefulView) else None
        of = f" of {view.type_column} {' or '.join(view.event_types)}" if view.event_types else ""
        return Wanted(None, event or f"{view.table.qualified} has no such row{of}")
    if found.broken is not None:
        said = ", ".join(f"{name}: {text}" for name, text in found.broken.said.items())
        return Wanted(None, f"Spark can't compute {said}: {found.broken.words}")
    if found.fields is None and found.unsure:
        return Wanted(None, "there is none, unless an event was given up that may have been (docs/windows.md)")
    if found.fields is None:
        return Wanted(None, f"the condition of the view leaves it out: {view.where}")
    if form == "columns":
        return Wanted(canonical(form_of(view, found.document, found.fields, form)))
    return Wanted(merge_fields(found.document, found.fields), bounds=bounds_of(found.fields))
