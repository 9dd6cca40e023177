"""Where a warehouse's tables hold a row: current tables of every generation, and histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.errors import SinkRefused
from cdc.view import View
from operations.erase.places import Place
from operations.erase.readers import Build, histories_of
from operations.erase.shown import places_of
from operations.erase.subject import Subject
from operations.state.history import namespaces_left
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name, open_catalog
from sinks.iceberg.history import all_histories
from sinks.iceberg.remains import Remains, Shown, remains
from sinks.iceberg.rows import held_keys

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


# Where it is said what to do about rows of which nobody can tell whose they are.
UNSURE = "docs/erasure.md#keys-that-a-table-cant-hold"


@dataclass
class Held:
    """A table, and what it holds.

    Attributes:
        sink: the sink's name.
        build: the generation; None of a history.
        view: whose table it is; empty for a history.
        name: ``namespace.table``.
        there: what was found.
        rows: of a history, partition -> offsets of the row's records.
    """

    sink: str
    build: Build | None
    view: str
    name: str
    there: Remains
    rows: dict[int, list[int]] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """For the certificate."""
        files, hidden, unsure = len(self.there.rows), len(self.there.hidden), len(self.there.unsure)
        words = [f"{files} data files"] if files else []
        words += [f"{hidden} files that can't be looked into"] if hidden else []
        words += [f"{unsure} files with rows that may be this one ({UNSURE})"] if unsure else []
        words += [f"{self.there.snapshots} snapshots"] if words else []
        refs = (*self.there.tags, *self.there.branches)
        words += [f"kept by {', '.join(refs)}"] if refs else []
        return Place(
            "history" if self.build is None else "table",
            self.name,
            self.sink,
            None if self.build is None else self.build.opened.number,
            found=sum(self.there.rows.values()),
            hidden=len(self.there.hidden | self.there.unsure),
            words=", ".join(words),
            refs=refs,
        )


def tables_of(subject: Subject, builds: Sequence[Build], sinks: Sequence[str] = ()) -> list[Held]:
    """Look into every table that may hold the row, of these sinks or all.

    Raises:
        SinkUnavailable, SinkRefused: a catalogue does not open, or refuses.
    """
    found = []
    for sink in sinks or warehouses(subject, builds):
        with opened(subject, sink) as catalog:
            for build in builds:
                if build.opened.sink == sink:
                    found += list(_current(subject, catalog, build))
            for namespace in _namespaces(subject, sink):
                found += list(_history(subject, catalog, sink, namespace))
    return found


def warehouses(subject: Subject, builds: Sequence[Build]) -> list[str]:
    """Sinks whose tables may hold the row."""
    named = {build.opened.sink for build in builds if build.opened.warehouse}
    return [sink for sink in subject.pipeline.sinks if sink in named or _namespaces(subject, sink)]


def _namespaces(subject: Subject, sink: str) -> list[str]:
    """Where a sink has histories of the table."""
    left = namespaces_left(subject.pipeline, sink, subject.topic)
    if sink not in histories_of(subject):
        return left
    return [*left, subject.pipeline.sinks[sink].namespace]  # type: ignore[union-attr]


@contextmanager
def opened(subject: Subject, sink: str) -> Iterator[Catalog]:
    """A sink's catalogue."""
    with open_catalog(subject.pipeline.sinks[sink], catalog_name(sink)) as catalog:
        yield catalog


def _current(subject: Subject, catalog: Catalog, build: Build) -> Iterator[Held]:
    part = build.opened.part
    for view in build.views:
        try:
            table = iceberg.load_table(catalog, part, view.name, build.opened.number, build.opened.owner)
        except SinkRefused:
            continue  # it was never made, or is another one's
        yield _held(subject, build.opened.sink, build, view.name, table, _places(subject, view))


def _places(subject: Subject, view: View) -> list[Shown]:
    """Where a view's table shows the row, and by which columns it is told.

    A key that the columns have no place for does not tell the row from another whose key they do not hold either, which
    may be there and live. No row of a table has such a key of its own, but for what an earlier version has put in.
    """
    own = sorted(view.key) == sorted(view.table.primary_key)
    told = subject.held_key == subject.key
    return [(one.path, one.key if told or (own and not one.path) else None) for one in places_of(view, subject.name)]


def _history(subject: Subject, catalog: Catalog, sink: str, namespace: str) -> Iterator[Held]:
    places: list[Shown] = [((), tuple(subject.view.key))]
    key = subject.key_in_history()
    for table in all_histories(catalog, namespace, subject.table.name, subject.table.qualified):
        # Files of a former key that lack the present one's columns may count as such that can't be looked into.
        held = _held(subject, sink, None, "", table, places, key)
        held.rows = _records(table, subject, key) if key is not None and held.there.rows else {}
        yield held


def _held(
    subject: Subject,
    sink: str,
    build: Build | None,
    view: str,
    table: Table,
    places: Sequence[Shown],
    key: str | None = None,
) -> Held:
    """What a table holds: rows with ``key`` are the row's; without one, those that only may be it count beside."""
    name = ".".join(table.name()[-2:])
    subject.say(f"looking into {name}")
    there = remains(table, places, subject.key, subject.held_key) if key is None else remains(table, places, key)
    return Held(sink, build, view, name, there)


def _records(table: Table, subject: Subject, wanted: str) -> dict[int, list[int]]:
    """Which records of the log the living rows of a history are of."""
    from cdc.records.history import OFFSET, PARTITION

    found: dict[int, list[int]] = {}
    key = list(subject.view.key)
    for batch in table.scan(selected_fields=(*key, PARTITION, OFFSET)).to_arrow_batch_reader():
        parts, offsets = batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist()
        for identity, part, offset in zip(held_keys([batch], key), parts, offsets, strict=True):
            if identity == wanted:
                found.setdefault(part, []).append(offset)
    return found


def history_name(held: Held) -> str:
    """``catalog.namespace.table`` of a history, each part quoted."""
    namespace, table = held.name.split(".", 1)
    return f"`{catalog_name(held.sink)}`.`{namespace}`.`{table}`"
