"""Of documents that differ, which columns do: their names, and their values only for who asks.

Rows are private: a report may be kept, sent and shown where they must not be. So a field inside of a JSON column is not
named either, its name may be anything that somebody has entered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdc.catalogue import Column
from cdc.join.tree import Node
from cdc.letters.words import hidden
from cdc.types import lossy
from cdc.view import View
from operations.explain.differences import Difference, Path, differences, written
from operations.logged_events import logged
from truth.bounds import Bounds, bounds_of
from truth.columns import NO_DOCUMENT, as_read, tree_of
from truth.expected import expected, form_of
from truth.placing import is_several
from truth.rows import snapshot

if TYPE_CHECKING:
    from operations.verify.settle import Settler

# Columns that are named of one document.
NAMED = 20
# In the place of columns: a warehouse's table has the row more than once.
TWICE = "(held twice)"

Told = dict[str, list[Any]]


def differing_columns(settler: Settler, keys: Sequence[str], *, values: bool) -> Told:
    """Key -> names of the columns that differ, of documents that are there and should be; with ``values`` objects of
    ``field``, ``sink`` and ``expected`` instead. A document that is right by now has none.

    Args:
        settler: of the view.
        keys: documents that differ.
        values: tell what stands there and what should.

    Raises:
        HeadwaterError: a server does not answer.
    """
    if not keys:
        return {}
    holding, view = settler.holding, settler.view
    wanted, bounds = dict[str, Any](), dict[str, Bounds]()
    with snapshot(holding.opened.pipeline.source) as connection:
        events = logged(holding.opened.pipeline, view)
        found = expected(view, connection, settler.spark, keys, events=events, folder=settler.folder)
        for one in found:
            if one.fields is not None:
                wanted[one.key] = as_read(form_of(view, one.document, one.fields, holding.opened.form(view)))
                bounds[one.key] = bounds_of(one.fields)
    holding.bounds = lambda key: bounds.get(key, {})
    held = holding.documents(keys)
    told: Told = {}
    for key in keys:
        if key not in held or key not in wanted:
            continue
        documents = held[key].documents
        if len(documents) > 1:
            told[key] = [{"field": TWICE}] if values else [TWICE]
            continue
        listed = list(differences(documents[0], {} if NO_DOCUMENT in documents[0] else wanted[key]))
        if values:
            told[key] = [one.to_dict("sink", "expected") for one in listed[:NAMED]]
        else:
            told[key] = list(dict.fromkeys(_named(view, one) for one in listed))[:NAMED]
    return told


def undelivered(view: View, told: Told) -> list[dict[str, str]]:
    """Of the columns that differ, those of a type of which Debezium does not deliver every value. Pure.

    Args:
        view: whose documents differ.
        told: by ``differing_columns``, with values or without.

    Returns:
        ``column``, ``type`` and ``why`` of each: perhaps it is that, and no repair of a sink mends it for good.
    """
    fields = [one["field"] if isinstance(one, dict) else str(one) for columns in told.values() for one in columns]
    names = {re.sub(r"\[\d+\]", "", name) for name in fields}
    return [
        {"column": name, "type": column.type_name, "why": why}
        for name, column in (_shown_columns(tree_of(view) or view) if names else ())
        if (why := lossy(column)) and any(one == name or one.startswith(f"{name}.") for one in names)
    ]


def _shown_columns(node: View | Node, above: str = "") -> Iterator[tuple[str, Column]]:
    """The tables' columns that a document shows, with their names in it."""
    by_name = node.table.by_name
    yield from ((above + out, by_name[source]) for source, out in node.columns if source in by_name)
    for one in node.shown if isinstance(node, Node) else ():
        if one.node.value is None:
            yield from _shown_columns(one.node, f"{above}{one.name}.")
        else:
            yield above + one.name, one.node.table.by_name[one.node.value]


def source_faults(told: Told) -> dict[str, str]:
    """Key -> what is wrong with the source's own rows, of documents that no sink can have right.

    Args:
        told: by ``differing_columns``, with values or without.
    """
    found: dict[str, str] = {}
    for key, columns in told.items():
        for one in columns:
            text = f"{one['field']} {one.get('expected')}" if isinstance(one, dict) else str(one)
            if is_several(text.partition(" ")[2]):
                found.setdefault(key, text)
    return found


def reasons(left: Sequence[Mapping[str, str]], told: Told, *, values: bool) -> list[dict[str, str]]:
    """Why keys were not repaired: what is wrong with the source's own rows says it better than what a sink holds.

    Args:
        left: ``key`` and ``why`` of each.
        told: by ``differing_columns``.
        values: whether the reasons may quote rows; a sink's words and Spark's do.
    """
    faults = {key: f"{text}: keep one of them" for key, text in source_faults(told).items()}
    found = [{**one, "why": faults.get(one["key"], one["why"])} for one in left]
    return found if values else [one | {"why": hidden(one["why"])} for one in found]


def _named(view: View, one: Difference) -> str:
    """A column's name, with what is wrong with its rows in the source itself if it is that."""
    name = written(_column(view, one.path))
    return f"{name} {one.right}" if is_several(one.right) else name


def _column(view: View, path: Path) -> Path:
    """A path without what lies inside of a column."""
    node, kept = tree_of(view), list[str | int]()
    for at, part in enumerate(path):
        kept.append(part)
        if isinstance(part, str):
            node = next((one.node for one in node.shown if one.name == part), None) if node is not None else None
            if node is None:
                break
            if node.value is not None:  # a column too, or an array of them
                kept += [number for number in path[at + 1 : at + 2] if isinstance(number, int)]
                break
    return tuple(kept)
