"""Tables, trees and rows written by hand, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc.catalogue import Column, Table
from cdc.join.tree import Node
from truth.joins import TextRow


def table(name: str, key: str, /, **columns: str) -> Table:
    """A table from ``column="type"``; numeric(p,s) and array types as Postgres prints them."""
    found = []
    for column, kind in columns.items():
        base, _, inside = kind.removesuffix("[]").partition("(")
        precision, scale = map(int, inside[:-1].split(",")) if base == "numeric" and inside else (None, None)
        found.append(Column(column, kind, base, precision, scale, kind.endswith("[]")))
    return Table("public", name, tuple(found), tuple(key.split()))


def node(of: Table, name: str = "root", kind: Any = "root", on: Sequence[tuple[str, str]] = (), **rest: Any) -> Node:
    columns = rest.pop("columns", None) or tuple((column.name, column.name) for column in of.columns)
    return Node(name, kind, of, tuple(on), columns, **rest)


def texts(columns: str, *lines: str) -> list[TextRow]:
    """Rows from ``a b c`` and ``1 x -`` (``-`` is NULL)."""
    return [
        {name: None if word == "-" else word for name, word in zip(columns.split(), line.split(), strict=True)}
        for line in lines
    ]


AIRLINES = table("airlines", "carrier", carrier="text", name="text")
FLIGHTS = table("flights", "id", id="int4", carrier="text", origin="text", dest="text", miles="int4")
AIRPORTS = table("airports", "faa", faa="text", city="text")
