"""A view of several tables, resolved: a row-only view of its root plus the tree of what hangs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cdc import types
from cdc.errors import ConfigError
from cdc.join import aggregates
from cdc.join.expressions import quoted
from cdc.join.layout import Layout
from cdc.join.tree import Node
from cdc.view import View

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class JoinedView(View):
    """A document definition over several tables.

    Attributes:
        root: the tree; its own columns are the view's ``columns``.
    """

    root: Node | None = None

    @property
    def tree(self) -> Node:
        """The root node.

        Raises:
            ConfigError: the view was made without one (terminal).
        """
        if self.root is None:
            raise ConfigError(f"view {self.name} has no tree")
        return self.root

    @cached_property
    def layout(self) -> Layout:
        """What of each table the row store keeps, and by which numbers it calls tables, indexes and aggregates."""
        return Layout.of(self.tree, self.row_sql)

    # -- for Spark SQL: the assembled row -----------------------------------------------------------------------------

    def spark_schema(self) -> list[tuple[str, str]]:
        """(name, Spark SQL type) of the assembled row: columns, refs as structs, children as arrays, aggregates."""
        return self._fields(self.tree)

    def _fields(self, node: Node) -> list[tuple[str, str]]:
        stored = self.layout.tables[node.table.qualified]
        by_name = node.table.by_name
        found = [(name, types.spark_type(by_name[name])) for name in stored.columns if name not in node.taken]
        for one in node.shown:
            kind = self._kind(one.node)
            found.append((one.name, f"array<{kind}>" if one.many else kind))
        return found + [(a.name, aggregates.result_type(a)) for a in node.aggregates]

    def _kind(self, node: Node) -> str:
        if node.value is not None:
            return types.spark_type(node.table.by_name[node.value])
        return "struct<" + ",".join(f"{quoted(name)}:{kind}" for name, kind in self._fields(node)) + ">"

    def arrow_schema(self) -> pa.Schema:
        """``pyarrow.Schema`` of the assembled row."""
        import pyarrow as pa

        return pa.schema(self._arrow_fields(self.tree))

    def _arrow_fields(self, node: Node) -> list[Any]:
        import pyarrow as pa

        from cdc.types.arrow import arrow_of_spark

        stored = self.layout.tables[node.table.qualified]
        by_name = node.table.by_name
        found = [pa.field(name, types.arrow_type(by_name[name])) for name in stored.columns if name not in node.taken]
        for one in node.shown:
            kind = self._arrow_kind(one.node)
            found.append(pa.field(one.name, pa.list_(kind) if one.many else kind))
        return found + [pa.field(a.name, arrow_of_spark(aggregates.result_type(a))) for a in node.aggregates]

    def _arrow_kind(self, node: Node) -> Any:
        import pyarrow as pa

        if node.value is not None:
            return types.arrow_type(node.table.by_name[node.value])
        return pa.struct(self._arrow_fields(node))

    # -- mapping ------------------------------------------------------------------------------------------------------

    def elasticsearch_mapping(self, computed_types: Mapping[str, str] | None = None) -> dict[str, Any]:
        """As for a row-only view; rows below become objects, aggregates what their type asks for."""
        own = _properties(self.tree)
        return own | {name: types.mapping_of_spark(kind) for name, kind in (computed_types or {}).items()}


def _properties(node: Node) -> dict[str, Any]:
    by_name = node.table.by_name
    properties = {out: types.elasticsearch_mapping(by_name[source]) for source, out in node.columns}
    # Elasticsearch has no arrays: a field is mapped the same, whether it holds one value or many.
    properties |= {one.name: _mapped(one.node) for one in node.shown}
    return properties | {a.name: aggregates.elasticsearch_mapping(a) for a in node.aggregates}


def _mapped(node: Node) -> dict[str, Any]:
    if node.value is not None:
        return types.elasticsearch_mapping(node.table.by_name[node.value])
    return {"properties": _properties(node)}
