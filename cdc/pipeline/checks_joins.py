"""Whether the parts of a joined view fit each other, as far as the file alone can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cdc.join.order import TextError, parse_aggregate, parse_order
from cdc.pipeline.joins import MAX_DEPTH, Aggregate, Child, Nested, Ref, standing
from cdc.pipeline.messages import dotted
from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, shown
from cdc.pipeline.views import JOINS, View

# (name of a table, its path, the path in words) -> what is wrong with it
Tables = Callable[[str, Path, str], Iterator[Wrong]]


def check_joins(pipeline: Pipeline, name: str, view: View, tables: Tables) -> Iterator[Wrong]:
    """What does not fit in a view's refs, children and aggregates.

    Args:
        pipeline: the file.
        name: the view's.
        view: the view.
        tables: checks a table's name against ``source.tables``.
    """
    path: Path = ("views", name)
    if not view.joins:
        return
    if pipeline.row_store is None:
        yield Wrong(
            (*path, view.joins[0]),
            f"views.{name} joins tables, and the file has no row_store to keep their rows in",
            "write row_store: {url: redis://host:port/db} at the top level",
        )
    yield from _names(view, path, view.fields)
    yield from _below(view, path, tables, 1)


def _below(part: View | Nested, path: Path, tables: Tables, depth: int) -> Iterator[Wrong]:
    for join in JOINS:
        items: Mapping[str, Nested | Aggregate] = getattr(part, join)
        for name, item in items.items():
            at: Path = (*path, join, name)
            where = dotted(at)
            yield from tables(item.table, (*at, "table"), f"{where}.table")
            yield from _on(item, at)
            if isinstance(item, Aggregate):
                yield from _text(parse_aggregate, item.value, (*at, "value"))
                continue
            if depth > MAX_DEPTH:
                yield Wrong(at, f"{where}: nested deeper than {MAX_DEPTH}", "make a view of its own of what is below")
                continue
            yield from _words(item, at)
            yield from _as_of(item, at)
            if isinstance(item, Child) and item.order_by is not None:
                yield from _text(parse_order, item.order_by, (*at, "order_by"))
            yield from _names(item, at, ())
            yield from _below(item, at, tables, depth + 1)


def _on(item: Nested | Aggregate, path: Path) -> Iterator[Wrong]:
    rights = list(item.on.values())
    for index, (left, right) in enumerate(item.on.items()):
        if right in rights[:index]:
            at: Path = (*path, "on", left)
            yield Wrong(at, f"{dotted(path)}.on: {shown(right)} is here a second time", "name each column once")


def _text(parse: Callable[[str], object], text: str, path: Path) -> Iterator[Wrong]:
    try:
        parse(text)
    except TextError as wrong:
        yield Wrong(path, f"{dotted(path)}: {wrong.what}", wrong.fix)


def _names(part: View | Nested, path: Path, fields: Mapping[str, str] | tuple[()]) -> Iterator[Wrong]:
    """Everything in one object of a document needs a name of its own."""
    taken: dict[str, str] = {}
    for _, out in part.picks:
        taken.setdefault(out, "columns")
    if isinstance(part, Nested):
        yield from _columns(part, path)
    named: list[tuple[str, tuple[str, ...], str]] = [("refs", where, name) for where, name, _ in standing(part)]
    named += [("aggregates", ("aggregates", name), name) for name in part.aggregates]
    named += [("fields", ("fields", name), name) for name in fields]
    for join, where, name in named:
        # A field that is a column is found by the view's own check.
        if name in taken and (join, taken[name]) != ("fields", "columns"):
            yield Wrong(
                (*path, *where),
                f"{dotted((*path, *where[:-1]))}: {shown(name)} is the name of one of "
                f"{dotted((*path, taken[name]))} too",
                "rename one of them",
            )
        taken.setdefault(name, where[0])


def _words(item: Nested, path: Path) -> Iterator[Wrong]:
    """What can't be said of one row together."""
    at = dotted(path)
    below = [*item.refs, *item.children]
    if item.hide:
        if not below:
            yield Wrong((*path, "hide"), f"{at}: hidden, and nothing below it is shown", "write what it leads to")
        for name in ("columns", "aggregates", "value"):
            if getattr(item, name):
                fix = "leave it out; aggregates may stand in the row above or below"
                yield Wrong((*path, name), f"{at}: a hidden row shows nothing of its own, and here are {name}", fix)
    elif item.value is not None:
        for name in ("columns", *JOINS):
            if getattr(item, name):
                fix = "leave `value` out for an object, or leave this out"
                yield Wrong((*path, name), f"{at}: one `value` is all that is shown, and here are {name} too", fix)
    if isinstance(item, Child) and item.one:
        for name in ("order_by", "limit"):
            if getattr(item, name) is not None:
                fix = "leave it out; the first of several is an array of one: `limit: 1` without `one`"
                yield Wrong((*path, name), f"{at}: one row at the most, and here is {name}", fix)


def _as_of(item: Nested, path: Path) -> Iterator[Wrong]:
    """A version of a row has no foreign keys that anything is looked up by."""
    if not isinstance(item, Ref) or item.as_of is None:
        return
    for name in JOINS:
        if getattr(item, name):
            what = f"{dotted(path)}: nothing hangs below a row that is shown as it was, and here are {name}"
            yield Wrong((*path, name), what, "join that to the row above, or make a view of its own")


def nothing_picked(part: View | Nested, path: Path) -> Iterator[Wrong]:
    """An empty list of columns, which would mean all of them: surely the opposite of what was meant."""
    if "columns" in part.model_fields_set and not part.columns:
        what = f"{dotted((*path, 'columns'))}: an empty list picks no column"
        yield Wrong((*path, "columns"), what, "name the columns, or leave `columns` out for all of them")


def _columns(part: Nested, path: Path) -> Iterator[Wrong]:
    yield from nothing_picked(part, path)
    out: set[str] = set()
    for index, (_, column) in enumerate(part.picks):
        if column in out:
            at: Path = (*path, "columns", index)
            yield Wrong(at, f"{dotted((*path, 'columns'))}: two columns are named {shown(column)}")
        out.add(column)
