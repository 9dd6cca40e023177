"""A joined view's document as a table's columns: objects are structs, arrays are arrays, under the document's names.

The types are those that a column has in any table of a warehouse (docs/types.md), and those of aggregates as Spark SQL
knows them. What a document has as JSON of no fixed shape (json, hstore) is text, as it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cdc import types
from cdc.join.aggregates import result_type
from cdc.join.expressions import quoted
from cdc.join.tree import Node, Shown
from cdc.join.view import JoinedView
from cdc.view import View

if TYPE_CHECKING:
    import pyarrow as pa


def document_columns(view: View) -> list[tuple[str, str]]:
    """(name, Spark SQL type) of what a joined view's document shows, without the view's ``fields``; nothing for a view
    of one table. Types name what is nested in quotes, so that they can be part of a statement."""
    return _kinds(view.tree) if isinstance(view, JoinedView) else []


def arrow_columns(view: JoinedView) -> pa.StructType:
    """The same as one Arrow struct: the type of what ``cdc.join.document.Shape.columns`` gives."""
    import pyarrow as pa

    return pa.struct(_fields(view.tree))


def names_of(node: Node, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Every object of a document, by the path that leads to it (empty for the document), with its fields' names."""
    yield (
        path,
        [name for _, name in node.columns] + [one.name for one in node.shown] + [a.name for a in node.aggregates],
    )
    for one in node.shown:
        if one.node.value is None:
            yield from names_of(one.node, f"{path}.{one.name}" if path else one.name)


def _kinds(node: Node) -> list[tuple[str, str]]:
    by_name = node.table.by_name
    found = [(out, types.spark_type(by_name[source])) for source, out in node.columns]
    found += [(one.name, _kind(one)) for one in node.shown]
    return found + [(item.name, result_type(item)) for item in node.aggregates]


def _kind(shown: Shown) -> str:
    node = shown.node
    if node.value is not None:
        kind = types.spark_type(node.table.by_name[node.value])
    else:
        kind = "struct<" + ", ".join(f"{quoted(name)}: {of}" for name, of in _kinds(node)) + ">"
    return f"array<{kind}>" if shown.many else kind


def _fields(node: Node) -> list[Any]:
    import pyarrow as pa

    from cdc.types.arrow import arrow_of_spark

    by_name = node.table.by_name
    found = [pa.field(out, types.arrow_type(by_name[source])) for source, out in node.columns]
    found += [pa.field(one.name, _arrow(one)) for one in node.shown]
    return found + [pa.field(item.name, arrow_of_spark(result_type(item))) for item in node.aggregates]


def _arrow(shown: Shown) -> Any:
    import pyarrow as pa

    node = shown.node
    kind = pa.struct(_fields(node)) if node.value is None else types.arrow_type(node.table.by_name[node.value])
    return pa.list_(kind) if shown.many else kind
