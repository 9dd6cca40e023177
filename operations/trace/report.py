"""Follows one row from Postgres through its topic into each sink, and says where it is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cdc.catalogue import Catalogue, Table
from cdc.errors import HeadwaterError, StateError
from cdc.join.view import JoinedView
from cdc.keys import document_id, split_id
from cdc.log.registry import encoding_of
from cdc.outbox import topics_of_table
from cdc.pipeline import Pipeline
from cdc.records.change import Op
from cdc.records.debezium_json import Decoder
from cdc.records.events import EventDecoder
from cdc.records.position import format_lsn, unpack
from cdc.resolve.views import resolve_views, table_view, view_tables
from cdc.stateful import StatefulView
from cdc.view import View
from connectors.database.slot import read_slot
from connectors.postgres import connect
from operations.held import held_under, place_of, with_moments
from operations.holding import with_later
from operations.no_key import no_key
from operations.opened import Opened, going_on
from operations.preview.asked import near_keys
from operations.records.backwards import Newest, newest_record
from operations.state.catalogue import captured_table, remembered_catalogue, source_catalogue
from operations.state.folder import register_of
from operations.state.frozen import known_to
from operations.trace.verdict import verdict
from spark.disk.applied import applied_offsets
from spark.disk.made_of import as_defined
from spark.flow import flow_name
from truth.columns import readable
from truth.digest import digest
from truth.one_document import expected_document
from truth.rows import PLAIN, snapshot
from truth.values import exact

# How long the log is read backwards: somebody sits at a page.
LOG_SECONDS = 20.0


def trace_report(pipeline: Pipeline, table: str, key: str, *, values: bool = False) -> dict[str, Any]:
    """Follow a row; the shape of ``GET /v1/trace``, for ``orjson`` to write: see ``truth.values.exact``.

    Args:
        pipeline: the loaded file.
        table: ``schema.table``, or its name alone where only one schema has it.
        key: of the row: its primary key, of several columns with ``|`` between.
        values: also what the row holds, at each place.

    Raises:
        ConfigError: no such table is captured (terminal).
        SourceError: its definition is not known, and Postgres does not answer (transient by nature).
    """
    catalogue = _catalogue(pipeline)
    case = _Case(pipeline, catalogue, captured_table(catalogue, table), key, values)
    sinks = {sink: _Role.of(case, sink) for sink in pipeline.sinks}
    with ThreadPoolExecutor(max_workers=2 + len(sinks)) as pool:
        source = pool.submit(_asked, case.source)
        log = pool.submit(_asked, case.log)
        held = {sink: pool.submit(_held, case, sink, role.roots) for sink, role in sinks.items()}
    told, newest = log.result(), case.newest
    report: dict[str, Any] = {
        "pipeline": pipeline.name,
        "at": time.time(),
        "table": case.table.qualified,
        "key": key,
        "key_columns": list(case.table.primary_key),
        "values": values,
        "source": source.result(),
        "log": told,
        "sinks": [
            case.judged(one, newest)
            for sink, role in sinks.items()
            for one in (role.reading(held[sink].result(), newest) or [role.told(sink)])
        ],
    }
    same = case.same()
    report["log"]["same_as_source"] = same
    known = any(place["there"] for place in (report["source"], report["log"], *report["sinks"]))
    report["near"] = [] if known else sorted(set(case.near))
    report["not_a_key"] = None if known else no_key(case.view, key)
    return report | {"verdict": verdict(report)}


@dataclass(frozen=True)
class _Role:
    """What a table is to a sink.

    Attributes:
        roots: views whose documents are this table's rows.
        parts: names of views that take rows of it into documents of others.
        error: why that is not known.
    """

    roots: list[View]
    parts: list[str]
    error: str | None = None

    @classmethod
    def of(cls, case: _Case, sink: str) -> _Role:
        """Of the generation that readers see."""
        name, register = case.table.qualified, register_of(case.pipeline, sink)
        try:
            generation = register.generation()
            catalogue = known_to(case.pipeline, generation, case.catalogue)  # as its documents show the tables
            views = resolve_views(going_on(case.pipeline, generation, catalogue), catalogue, sink)
        except HeadwaterError as error:
            return cls([], [], error.what)
        roots = [view for view in views if view.table.qualified == name]
        return cls(roots, [view.name for view in views if view not in roots and name in view_tables(view)])

    def reading(self, held: list[dict[str, Any]], newest: Newest | None) -> list[dict[str, Any]]:
        """Of what is held by views, that of views which read the record: an event is in the topic of one type."""
        topic = newest.record.topic if newest and newest.record else None
        others = {view.name for view in self.roots if topic and view.topics and topic not in view.topics}
        return [one for one in held if one["view"] not in others]

    def told(self, sink: str) -> dict[str, Any]:
        """Of a sink that keeps no documents of this table's rows, or of which that is not known."""
        return {"sink": sink, "view": None, "part_of": self.parts, "there": None, "error": self.error}


@dataclass
class _Case:
    """One row."""

    pipeline: Pipeline
    catalogue: Catalogue
    table: Table
    key: str
    values: bool
    row: bytes | None = None
    rendered: bytes | None = None
    newest: Newest | None = None
    near: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view = table_view(self.pipeline, self.table)

    def source(self) -> dict[str, Any]:
        """The row in Postgres, and how far the slot is."""
        wanted = expected_document(self.view, self.pipeline.source, self.key, None)
        self.row = wanted.document
        if wanted.document is None:
            self.near += self._alike()
        with connect(self.pipeline.source) as connection:
            slot = read_slot(connection, self.pipeline.source.slot)
        confirmed = None if slot is None else slot.confirmed_lsn
        return {
            "there": wanted.document is not None,
            "why": wanted.why,
            "slot_active": None if slot is None else slot.active,
            "slot_confirmed_lsn": None if confirmed is None else format_lsn(confirmed),
            **({"row": _plain(wanted.document)} if self.values else {}),
        }

    def _alike(self) -> list[str]:
        """Keys like the one asked for that there are rows of; where all rows would be read for that, nobody asks."""
        columns = [self.table.by_name[name] for name in self.table.primary_key]
        if not all(column.base_type in PLAIN and not column.array for column in columns):
            return []
        with snapshot(self.pipeline.source) as connection:
            return near_keys(connection, self.view, self.key)

    def log(self) -> dict[str, Any]:
        """The row's newest record."""
        kind = EventDecoder if self.view.topics else Decoder
        decoder = kind(self.table, encoding=encoding_of(self.pipeline.source.reader()))
        newest = self.newest = newest_record(self.pipeline, decoder, self.view, self.key, LOG_SECONDS)
        record, change = newest.record, newest.change
        if change is not None and change.after is not None:
            try:
                self.rendered = self.view.render(change)[1]
            except HeadwaterError:
                self.rendered = None  # a large value that the record does not hold: nothing is said of it
        return {
            "topic": record.topic if record else topics_of_table(self.pipeline, self.table.qualified)[0],
            "there": record is not None,
            "whole": newest.whole,
            "partition": None if record is None else record.partition,
            "offset": None if record is None else record.offset,
            "written_at": newest.written_at,
            "committed_at": change.ts_ms / 1000 if change and change.ts_ms else None,
            "operation": None if change is None else _WORDS[change.op],
            "deleted": change is not None and change.after is None,
            "event": bool(self.view.topics),
            **_position(None if change is None else change.position),
            "undecoded": newest.error,
            **({"row": _plain(self.rendered)} if self.values else {}),
        }

    def same(self) -> bool | None:
        """Whether the record says what Postgres says; None if one of them is not known."""
        if self.row is None or self.rendered is None:
            return None
        return digest(self.row) == digest(readable(self.view, with_later(self.view, self.rendered)))

    def sink(self, sink: str, view: View) -> dict[str, Any]:
        """What a sink holds of the row, and how far it has applied the row's topic."""
        register = register_of(self.pipeline, sink)
        generation = register.generation()
        opened = Opened(as_defined(self.pipeline, generation), generation, [view], token=0)
        status, state = opened.status(view)
        found = held_under(opened, view, _id_in(view, self.key))
        if view.key == self.table.primary_key and not isinstance(view, StatefulView):
            self.near += found.near
        shown = with_moments(view, found.document) if opened.warehouse and found.document else found.shown
        return {
            "sink": sink,
            "type": opened.part.type,
            "view": view.name,
            "flow": flow_name(view, separate=opened.warehouse),
            "joined": isinstance(view, JoinedView),
            "where": view.where,
            "stays": _stays(view),
            "ttl_seconds": getattr(opened.part, "ttl_seconds", None),
            "generation": opened.number,
            "state": state,
            "last_error": None if status is None else status.last_error,
            "there": found.document is not None,
            **_position(place_of(view, found.version)),
            "error": None,
            **({"document": shown} if self.values else {}),
        }

    def judged(self, one: dict[str, Any], newest: Newest | None) -> dict[str, Any]:
        """With whether the newest record has been applied: None if nobody knows."""
        record = None if newest is None else newest.record
        if record is None or one["view"] is None:
            return one | {"applied": None, "applied_offset": None}
        folder = register_of(self.pipeline, one["sink"]).generation().flow_folder(one["flow"])
        at = applied_offsets(folder).get(record.topic, {}).get(record.partition)
        return one | {"applied": at is not None and at > record.offset, "applied_offset": at}


_WORDS = {Op.READ: "read", Op.CREATE: "insert", Op.UPDATE: "update", Op.DELETE: "delete", Op.TOMBSTONE: "tombstone"}


def _asked(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An answer, or why there is none: the other places are shown all the same."""
    try:
        return {"error": None, **ask()}
    except Exception as error:  # a client's own error as well: a trace is asked for when something is broken
        return {"error": _words(error), "there": None}


def _words(error: Exception) -> str:
    return error.what if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"


def _held(case: _Case, sink: str, views: list[View]) -> list[dict[str, Any]]:
    found = []
    for view in views:
        try:
            found.append(case.sink(sink, view))
        except Exception as error:
            flow = flow_name(view, separate=case.pipeline.sinks[sink].form == "columns")
            kept = {"view": view.name, "flow": flow, "joined": isinstance(view, JoinedView), "where": view.where}
            kept |= {"stays": _stays(view), "ttl_seconds": None, "there": None, "error": _words(error)}
            found.append(_nothing(case.pipeline, sink) | kept)
    return found


def _id_in(view: View, key: str) -> str:
    """The id of a row's document in a view: another one if ``key`` names the primary key in another order."""
    primary = view.table.primary_key
    parts = split_id(key, len(primary))
    if set(view.key) != set(primary) or len(parts) != len(primary):
        return key
    texts = dict(zip(primary, parts, strict=True))
    return document_id([texts[name] for name in view.key]) if view.key != primary else key


def _stays(view: View) -> bool:
    """Whether a document may be there without its row: an event's, or one that is made of many."""
    return view.outlives_rows or isinstance(view, StatefulView)


def _nothing(pipeline: Pipeline, sink: str) -> dict[str, Any]:
    return {
        "sink": sink,
        "type": pipeline.sinks[sink].type,
        "generation": register_of(pipeline, sink).living(),
        "state": None,
        "last_error": None,
        **_position(None),
    }


def _position(position: int | None) -> dict[str, Any]:
    if position is None or position < 0:
        return {"position": None, "lsn": None}
    return {"position": position, "lsn": format_lsn(unpack(position)[1])}


def _plain(document: bytes | None) -> Any:
    """To be shown: what has no limit in Postgres's json has none here."""
    return None if document is None else exact(document)


def _catalogue(pipeline: Pipeline) -> Catalogue:
    """The tables as this machine has seen them last: their records are read by it, and they may be of former shapes."""
    try:
        known = remembered_catalogue(pipeline)
    except StateError:
        known = None
    return known or source_catalogue(pipeline)
