"""What the sinks should hold: computed from Postgres itself, not from the log and not with the pipeline's own codec.

(But for views that are made of events, which are in the log alone.)

Every column is read as Postgres prints it; ``truth.values`` turns that text into the value a document must have, and
``truth.joins`` joins the tables of a view of several. Views with Spark SQL get their fields from Spark over the
same rows, cast from text by Spark. Memory is bounded by a page of rows, see ``truth.pages``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import orjson

from cdc.errors import ConfigError
from cdc.fold import FoldView
from cdc.join.tree import Node
from cdc.stateful import StatefulView
from cdc.timed import MatchView, WindowView
from cdc.types import merge_fields
from cdc.view import View
from connectors.postgres import Connection
from truth import values as truth
from truth.altered import refuse_altered
from truth.assembled import document_of, marked, shape_of, spark_row, sparks, sums_of
from truth.columns import comparable_expected, numbered, tree_of, with_singles
from truth.digest import digest
from truth.event_types import of_types
from truth.events.folded import states
from truth.events.logged import Events
from truth.events.matched import matches
from truth.events.windowed import windows
from truth.joins import expressions, used_columns
from truth.pages import Pages
from truth.rows import Row, read_rows, rows_of_ids
from truth.spark_sql import Broken, canonical_rows, computed, table_shape
from truth.versions import History, Versions, history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How sinks hold a view: as JSON documents, or as typed columns of a warehouse's table.
Form = Literal["document", "columns"]
Fields = Mapping[str, Any]
Said = Fields | Broken | None


class Expected(NamedTuple):
    """What a row of the root must be.

    Attributes:
        key: the document's id.
        document: without Spark's fields.
        fields: these; None if the condition leaves the row out, or if they can't be computed.
        broken: then, what failed.
        unsure: a sink may have it otherwise and be right: what it says depends on an event that may have been given up
            (``truth.events.happened``).
    """

    key: str
    document: bytes
    fields: Fields | None
    broken: Broken | None = None
    unsure: bool = False


# Documents, and what Spark will have said about them.
_Page = tuple[list[tuple[str, bytes]], "Future[list[Said]] | None"]


def needs_spark(view: View) -> bool:
    """Whether Spark has to evaluate anything to know what a view must hold."""
    tree = tree_of(view)
    return view.needs_spark or (tree is not None and bool(expressions(tree)))


def expected(
    view: View,
    connection: Connection,
    spark: SparkSession | None,
    ids: Sequence[str] | None = None,
    *,
    words: bool = False,
    events: Events | Versions | None = None,
    folder: Path | None = None,
) -> Iterator[Expected]:
    """What a sink must hold, row by row of the root.

    Args:
        view: the view.
        connection: of ``snapshot``.
        spark: needed when ``needs_spark``.
        ids: only these documents; None for all.
        words: see ``truth.spark_sql.computed``.
        events: reads the log's, which a view that is made of events, and what a joined one shows as it was, are
            compared with.
        folder: where these wait, which may be as much as the log; None for where temporary files lie.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
        StateError: the view is of a table as it was, and Postgres can't say any more what it must be.
    """
    refuse_altered(view)
    if isinstance(view, StatefulView):
        yield from _logged(view, cast("Events | None", events), spark, ids, folder)
        return
    tree = tree_of(view)
    # Spark evaluates a page while the next one is read and put together.
    with ThreadPoolExecutor(1, "headwater-truth") as pool:
        ask = _Asking(spark, view, pool, words)
        if tree is None:
            pages = _rows(view, connection, ask, ids)
        else:
            pages = _joined(view, tree, connection, ask, ids, events, folder)
        before: _Page | None = None
        for page in pages:
            if before is not None:
                yield from _finished(before)
            before = page
        if before is not None:
            yield from _finished(before)


def _logged(
    view: StatefulView,
    events: Events | None,
    spark: SparkSession | None,
    ids: Sequence[str] | None,
    folder: Path | None,
) -> Iterator[Expected]:
    if events is None or spark is None:
        raise ConfigError(f"view {view.name} is {view.made}, which are in the log alone")
    if isinstance(view, FoldView):
        for key, document, state, failed in states(view, events, spark, ids, folder):
            yield Expected(key, document, state, Broken({"fold.step": view.step}) if failed else None)
        return
    kept = None if ids is None else frozenset(ids)
    found = matches(view, events, spark, folder) if isinstance(view, MatchView) else None
    for told in windows(view, events, spark, folder) if isinstance(view, WindowView) else found or ():
        if kept is None or told.key in kept:
            yield Expected(told.key, b"{}", told.fields, unsure=told.unsure)


def digests(view: View, found: Iterable[Expected], forms: Collection[Form]) -> Iterator[tuple[str, dict[Form, bytes]]]:
    """(key, form -> digest) of the rows that the view's condition lets through.

    Args:
        view: the view.
        found: of ``expected``.
        forms: what the sinks that hold the view need.
    """
    for one in found:
        if one.fields is not None:
            yield one.key, {form: digest(form_of(view, one.document, one.fields, form)) for form in forms}


def form_of(view: View, document: bytes, fields: Fields, form: Form) -> Any:
    """What a sink of this form must hold, as ``truth.digest.digest`` takes it."""
    if form == "columns":
        held = orjson.dumps(comparable_expected(view, document))
        return with_singles(view, merge_fields(held, {name: numbered(value) for name, value in fields.items()}))
    return with_singles(view, merge_fields(document, fields))


class _Asking:
    """Asks Spark about pages, one page ahead."""

    def __init__(self, spark: SparkSession | None, view: View, pool: ThreadPoolExecutor, words: bool) -> None:
        self.spark, self.view, self._pool, self._words = spark, view, pool, words

    def __call__(self, shape: Any, rows: Sequence[Mapping[str, Any] | Broken]) -> Future[list[Said]]:
        assert self.spark is not None
        return self._pool.submit(computed, self.spark, self.view, shape, rows, words=self._words)


def _finished(page: _Page) -> Iterator[Expected]:
    documents, asked = page
    fields = None if asked is None else asked.result()
    for at, (key, document) in enumerate(documents):
        said = {} if fields is None else fields[at]
        yield Expected(key, document, None, said) if isinstance(said, Broken) else Expected(key, document, said)


def _rows(view: View, connection: Connection, ask: _Asking, ids: Sequence[str] | None) -> Iterator[_Page]:
    shape = table_shape(view.table, view.row_sql)
    names = [column.name for column in view.table.columns]
    rendered = truth.Documents(view)
    for rows in _roots(view, connection, names, ids):
        asked = ask(shape, canonical_rows(view.table, shape, rows)) if view.needs_spark else None
        yield [rendered(row) for row in rows], asked


def _joined(
    view: View,
    tree: Node,
    connection: Connection,
    ask: _Asking,
    ids: Sequence[str] | None,
    logged: Any,
    folder: Path | None,
) -> Iterator[_Page]:
    if not tree.versioned():
        yield from _assembled(view, tree, connection, ask, ids, None)
        return
    if logged is None:
        raise ConfigError(
            f"view {view.name} shows rows of {', '.join(sorted(tree.versioned()))} as they were",
            means="Postgres does not know that any more: it is in the log alone",
            fix="fill a generation beside (`headwater rebuild FILE SINK`), look at that, and promote it or drop it",
        )
    used = used_columns(marked(tree, view.row_sql), view.key)
    with history(tree, used, logged, folder) as found:
        yield from _assembled(view, tree, connection, ask, ids, found)


def _assembled(
    view: View,
    tree: Node,
    connection: Connection,
    ask: _Asking,
    ids: Sequence[str] | None,
    found: History | None,
) -> Iterator[_Page]:
    pages = Pages(connection, view, tree, view.row_sql, ask.spark, keep=ids is None, history=found)
    seen, kinds = sparks(pages.tree, view.row_sql), pages.kinds() if view.needs_spark else {}
    shape = shape_of(seen, kinds) if view.needs_spark else None
    sums = sums_of(pages.tree, view.row_sql, kinds)
    for page in pages.documents(_roots(view, connection, pages.root_columns, ids)):
        asked = None
        if view.needs_spark:
            asked = ask(shape, [sums.without_place(row) or spark_row(seen, row) for _, row in page])
        yield [(key, orjson.dumps(document_of(pages.tree, row))) for key, row in page], asked


def _roots(view: View, connection: Connection, names: Sequence[str], ids: Sequence[str] | None) -> Iterator[list[Row]]:
    if ids is None:
        return read_rows(connection, view.table, names, of_types(view))
    return rows_of_ids(connection, view, names, ids)
