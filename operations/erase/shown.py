"""Where documents of a view show rows of a table, and whether one shows a certain row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.keys import document_id
from cdc.view import View

Path = tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """One place in a view's documents at which rows of the table stand.

    Attributes:
        path: names that lead there; none for the document itself.
        key: names of the fields that hold the row's key, in the order of its table's primary key, whatever the view's
            own is; None where the view does not show it, so that nobody can tell which row it is.
    """

    path: Path
    key: tuple[str, ...] | None


def places_of(view: View, table: str) -> list[Shown]:
    """Where a view shows rows of a table; empty if it takes none of it.

    Args:
        view: plain or joined.
        table: ``schema.table``.
    """
    if not isinstance(view, JoinedView):
        return [Shown((), _names(view.columns, view.row_key))] if view.table.qualified == table else []
    found = [
        Shown(path, _key_of(view, node, path)) for path, node in _walk(view.tree, ()) if node.table.qualified == table
    ]
    # In an aggregate alone, or hidden: something of the row may be seen, and not whose it is.
    return found or ([Shown((), None)] if table in view.tree.tables() else [])


def _walk(node: Node, path: Path) -> Iterator[tuple[Path, Node]]:
    yield path, node
    for one in node.shown:
        yield from _walk(one.node, (*path, one.name))


def _key_of(view: JoinedView, node: Node, path: Path) -> tuple[str, ...] | None:
    if node.value is not None:
        return None
    key = node.table.primary_key if path else view.row_key
    return _names(node.columns, key)


def _names(columns: tuple[tuple[str, str], ...], key: tuple[str, ...]) -> tuple[str, ...] | None:
    outs = dict(columns)
    return tuple(outs[name] for name in key) if all(name in outs for name in key) else None


def shows(document: Any, places: list[Shown], key: str) -> bool:
    """Whether a document shows the row of this key, or may: where it does not show whose rows they are.

    Args:
        document: as JSON has it.
        places: of ``places_of``.
        key: the row's.
    """
    return any(one.key is None or key in _keys(document, one.path, one.key) for one in places)


def _keys(document: Any, path: Path, names: tuple[str, ...]) -> Iterator[str]:
    if isinstance(document, list):
        for one in document:
            yield from _keys(one, path, names)
    elif isinstance(document, Mapping):
        if path:
            yield from _keys(document.get(path[0]), path[1:], names)
        elif all(name in document for name in names):
            yield document_id([document[name] for name in names])
