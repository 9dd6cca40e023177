"""What ``headwater explain`` finds out about one document; the shape of its ``--json``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from cdc.errors import ConfigError, StateError
from cdc.join.aggregates import for_json
from cdc.join.rows import Stamp
from cdc.join.view import JoinedView
from cdc.outbox import topics_of_table
from cdc.pipeline import Pipeline
from cdc.records.position import format_lsn, unpack
from cdc.resolve.names import near
from cdc.resolve.views import resolve_views
from cdc.saying import Say, to_nobody
from cdc.stateful import StatefulView
from cdc.view import View
from operations.explain.differences import Difference, differences, without
from operations.held import Found, held_under, place_of
from operations.logged_events import logged
from operations.no_key import no_key
from operations.opened import Opened
from operations.run.session import open_spark
from operations.state.folder import register_of
from operations.state.frozen import known_to
from sinks.rowstore.redis import RedisRowStore
from spark.disk.made_of import as_defined
from spark.join.explain import Explained, Row, Total, explain
from truth import values as truth
from truth.bounds import met
from truth.columns import comparable_expected, with_singles
from truth.expected import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Somebody waits at a terminal: a row store that does not answer is reported, not waited for.
PATIENCE_SECONDS = 3.0


def explain_report(
    pipeline: Pipeline,
    sink: str,
    key: str,
    view_name: str | None = None,
    *,
    expected: bool = False,
    progress: Say = to_nobody,
) -> dict[str, Any]:
    """Explain one document.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        key: the document's id.
        view_name: needed when the sink has several views.
        expected: also build it from Postgres.
        progress: told a line when something takes long.

    Raises:
        ConfigError: no such sink or view.
        HeadwaterError: a server that is needed does not answer.
    """
    if sink in pipeline.sinks:  # what the sink holds is what its living generation was made of
        register = register_of(pipeline, sink)
        pipeline = as_defined(pipeline, register.generation(register.living()))
    view = find_view(pipeline, sink, view_name, live=expected)
    with _session(pipeline, view, progress, wanted=expected) as spark:
        typed = view
        if spark is not None and isinstance(view, JoinedView):
            from spark.join.child_expressions import analysed

            typed = analysed(spark, view)
        elif spark is not None and isinstance(view, StatefulView):
            from spark.events.states import analyse_stateful

            typed = analyse_stateful(spark, view)
        opened = Opened(pipeline, register_of(pipeline, sink).generation(), [typed], token=0)
        return _report(_Case(opened, key, typed, spark), expected=expected)


@dataclass(frozen=True)
class _Case:
    opened: Opened
    key: str
    view: View
    spark: SparkSession | None


def _report(case: _Case, *, expected: bool) -> dict[str, Any]:
    view, opened = case.view, case.opened
    found = held_under(opened, view, case.key)
    stored = _stored(case) if isinstance(view, JoinedView) else None
    report: dict[str, Any] = {
        "pipeline": opened.pipeline.name,
        "at": time.time(),
        "sink": opened.sink,
        "type": opened.part.type,
        "view": view.name,
        "key": case.key,
        "generation": opened.number,
        "state": opened.status(view)[1],
        "held": _held(view, found),
        "computed": sorted(view.fields),
        "rows": _plain_rows(case, found) if stored is None else [_row(opened.pipeline, row) for row in stored.rows],
        "left_out": {} if stored is None else stored.cut,
        "aggregates": [] if stored is None else [_total(total) for total in stored.totals],
        "row_store": None if stored is None else _row_store(view, found, stored, columns=opened.warehouse),
        "expected": _expected(case, found) if expected else None,
    }
    known = found.document is not None or report["rows"] or (report["expected"] or {}).get("document") is not None
    wrong = None if known or isinstance(view, StatefulView) else no_key(view, case.key)
    return report | {"found": bool(known), "near": [] if known else list(found.near), "not_a_key": wrong}


# -- which view --------------------------------------------------------------------------------------------------------


def find_view(pipeline: Pipeline, sink: str, name: str | None, *, live: bool) -> View:
    """A view of a sink.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        name: the view's; may be left out when the sink has one.
        live: ask Postgres for the tables' definitions even if those of the last start are known.

    Raises:
        ConfigError: no such sink, no such view, or several to choose from.
    """
    if sink not in pipeline.sinks:
        choices = f"choose from {', '.join(pipeline.sinks)}"
        raise ConfigError(f"no sink {sink} in the pipeline", fix=near(sink, pipeline.sinks) or choices)
    views = {view.name: view for view in _views(pipeline, sink, live=live)}
    if name is None and len(views) == 1:
        return next(iter(views.values()))
    if name is None:
        raise ConfigError(
            f"sink {sink} has {len(views)} views", fix=f"say which: --view {' or --view '.join(sorted(views)[:20])}"
        )
    if name not in views:
        choices = f"choose from {', '.join(sorted(views)[:20])}"
        raise ConfigError(f"sink {sink} has no view {name}", fix=near(name, views) or choices)
    return views[name]


def _views(pipeline: Pipeline, sink: str, *, live: bool) -> list[View]:
    """The sink's views, by the tables as they were seen last: that is how its rows are stored. Readers see a generation
    that may go on with tables as they were before."""
    from operations.state.catalogue import remembered_catalogue, source_catalogue

    generation = register_of(pipeline, sink).generation()
    if not live:
        try:
            last = remembered_catalogue(pipeline)
            if last is not None:
                return resolve_views(pipeline, known_to(pipeline, generation, last), sink)
        except (ConfigError, StateError):  # the file may name tables that were added since
            pass
    return resolve_views(pipeline, known_to(pipeline, generation, source_catalogue(pipeline)), sink)


@contextmanager
def _session(pipeline: Pipeline, view: View, progress: Say, *, wanted: bool) -> Iterator[SparkSession | None]:
    if not wanted or not needs_spark(view):
        yield None
        return
    progress(f"starting Spark: view {view.name} has Spark SQL")
    spark = open_spark(pipeline, [])
    try:
        yield spark
    finally:
        spark.stop()


# -- parts of the report -----------------------------------------------------------------------------------------------


def _stored(case: _Case) -> Explained:
    assert isinstance(case.view, JoinedView)
    patience = {"give_up_seconds": PATIENCE_SECONDS, "request_timeout_seconds": PATIENCE_SECONDS}
    store = RedisRowStore(case.opened.row_store(case.view, **patience))
    try:
        return explain(case.view, store, case.key)
    finally:
        store.close()


def _position(position: int | None) -> dict[str, Any]:
    """A position, and what it means in Postgres's notation; nulls where there is none."""
    try:
        epoch, lsn = unpack(-1 if position is None else position)
    except StateError:
        return {"position": None, "epoch": None, "lsn": None}
    return {"position": position, "epoch": epoch, "lsn": format_lsn(lsn)}


def _held(view: View, found: Found) -> dict[str, Any] | None:
    if found.document is None:
        return None
    # What is made of many events counts its own versions.
    at = _position(None if isinstance(view, StatefulView) else place_of(view, found.version))
    return {"version": found.version, "epoch": at["epoch"], "lsn": at["lsn"], "document": found.shown}


def _row(pipeline: Pipeline, row: Row) -> dict[str, Any]:
    stamp: Stamp | None = row.stamp
    return {
        "path": row.path,
        "table": row.table,
        "key": row.key,
        "state": row.state,
        **_position(None if stamp is None else stamp.position),
        "topic": topics_of_table(pipeline, row.table)[0],
        "partition": None if stamp is None else stamp.partition,
        "offset": None if stamp is None else stamp.offset,
    }


def _plain_rows(case: _Case, found: Found) -> list[dict[str, Any]]:
    """A view of one table keeps no stamps: the version is the position of the row's newest change, and all there is."""
    if found.document is None or isinstance(case.view, StatefulView):  # made of many rows, and of none that is kept
        return []
    row = Row(case.view.name, case.view.table.qualified, case.key, "shown")
    return [_row(case.opened.pipeline, row) | _position(found.version)]


def _total(total: Total) -> dict[str, Any]:
    return {
        "path": total.path,
        "table": total.table,
        # As JSON reads it, like the document: a sum may be beyond the integers that what prints this can write.
        "value": truth.parse(truth.canonical(for_json(total.value))),
        "values": total.count,
        "known": total.known,
    }


def _row_store(view: View, found: Found, stored: Explained, *, columns: bool = False) -> dict[str, Any]:
    """What the row store would make of the document now, and how that differs from what the sink holds."""
    made = stored.document
    document = None if made is None else plain(view, comparable_expected(view, made) if columns else made)
    hidden = [*stored.unknown, *((name,) for name in view.fields)]
    differing = _differing(found.document, document, hidden)
    may_be_left_out = found.document is None and document is not None and view.where is not None
    equal = (found.document is None) == (document is None) and not differing
    return {
        "version": stored.version,
        "waiting": stored.waiting,
        # Of a warehouse only the form that is compared is like what it holds.
        "document": document if made is None or columns else _written(made),
        # Whether the condition holds only Spark SQL can tell.
        "equal": None if may_be_left_out else equal,
        "differences": [one.to_dict("sink", "row_store") for one in differing],
    }


def _expected(case: _Case, found: Found) -> dict[str, Any]:
    from truth.one_document import expected_document

    view = case.view
    opened = case.opened
    wanted = expected_document(
        view, opened.pipeline.source, case.key, case.spark, opened.form(view), logged(opened.pipeline, view)
    )
    document = None if wanted.document is None else plain(view, wanted.document)
    held = None if found.document is None else met(found.document, wanted.bounds)[0]
    differing = _differing(held, document, ())
    return {
        "document": document if wanted.document is None or opened.warehouse else _written(wanted.document),
        "why": wanted.why,
        "equal": (found.document is None) == (document is None) and not differing,
        "differences": [one.to_dict("sink", "expected") for one in differing],
    }


def _differing(
    held: Mapping[str, Any] | None, other: Mapping[str, Any] | None, hidden: Sequence[tuple[str, ...]]
) -> list[Difference]:
    """Field by field; empty when one of the two is not there, because then all of it differs."""
    if held is None or other is None:
        return []
    return without(differences(held, other), hidden)


def _written(document: Any) -> Any:
    """A document to be shown: as a sink gets it, with all digits."""
    return truth.exact(document if isinstance(document, bytes) else orjson.dumps(document))


def plain(view: View, document: Any) -> dict[str, Any]:
    """A document to be compared: as JSON reads it, every ``real`` as the number it is."""
    text = document if isinstance(document, bytes) else orjson.dumps(document)
    found: dict[str, Any] = truth.parse(truth.canonical(with_singles(view, text)))
    return found
