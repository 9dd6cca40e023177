"""``refs``, ``children`` and ``aggregates`` of a view: rows of other tables in a document, to any depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from cdc.pipeline.fields import NAMESPACE, Columns, Flag, Part, RowLimit, TableName, Text, entry

# Keys of nested rows that came after the first version: a file that says nothing of them must keep its hash.
LATER = ("value", "hide", "one", "as_of")
# Levels below the root. Elasticsearch itself refuses documents deeper than 20 objects.
MAX_DEPTH = 16
# A name of a row or value in the document of the row above: an identifier to Spark SQL, no path to Elasticsearch.
FieldName = Annotated[str, Field(pattern=NAMESPACE)]
On = Annotated[Mapping[Text, Text], Field(min_length=1, max_length=32)]

_OF_CUSTOMER = {"customer_id": "customer_id"}
_OF_ORDER = {"order_id": "replaces"}
_TO_REFERRER = {"referred_by": "customer_id"}
# What may hang on a customer, and on an order of hers.
EXAMPLES: dict[str, Any] = {
    "refs": {"referrer": {"table": "customers", "on": _TO_REFERRER}},
    "children": {"orders": {"table": "orders", "on": _OF_CUSTOMER}},
    "aggregates": {"orders_total": {"table": "orders", "on": _OF_CUSTOMER, "value": "count(*)"}},
}
_OF_ORDERS: dict[str, Any] = {
    "refs": {"customer": {"table": "customers", "on": _OF_CUSTOMER}},
    "children": {"replacements": {"table": "orders", "on": _OF_ORDER}},
    "aggregates": {"replacements_total": {"table": "orders", "on": _OF_ORDER, "value": "count(*)"}},
}


class Aggregate(Part):
    """A value over the rows that point at the row above, kept up to date without reading them."""

    table: TableName = entry(description="The table of these rows.", example="orders", content=True)
    on: On = entry(
        description="{column of the row above: column of this table}; the left ones are the whole primary key of the "
        "row above, or another unique key of it.",
        example=_OF_CUSTOMER,
        content=True,
    )
    value: Text = entry(
        description="count(*), count(x), count(distinct x), sum(x), min(x), max(x) or avg(x); x is a column of this "
        "table or a Spark SQL expression over its row. NULLs are ignored, as in SQL.",
        example="sum(total)",
        content=True,
    )
    where: Text | None = entry(
        None,
        "Spark SQL condition over this table's row: only rows for which it is true take part.",
        shown_default="every row",
        example="status <> 'cancelled'",
        content=True,
    )


class Nested(Part):
    """What rows that point and rows that are pointed at have in common."""

    table: TableName = entry(description="The table of the nested rows.", example="customers", content=True)
    on: On = entry(
        description="{column of the row above: column of this table}: which rows belong together.",
        example=_OF_CUSTOMER,
        content=True,
    )
    columns: Columns = entry(
        (),
        "Columns of the nested row, as in a view.",
        shown_default="all columns",
        example=["customer_id", {"full_name": "name"}],
        content=True,
    )
    refs: Mapping[FieldName, Ref] = entry({}, "As in a view.", example=EXAMPLES["refs"], content=True)
    children: Mapping[FieldName, Child] = entry({}, "As in a view.", example=EXAMPLES["children"], content=True)
    aggregates: Mapping[FieldName, Aggregate] = entry({}, "As in a view.", example=EXAMPLES["aggregates"], content=True)
    value: Text | None = entry(
        None,
        "A column of this table whose value stands in the document in the place of the object; then nothing else of "
        "the row does.",
        example="full_name",
        alternative=True,
        content=True,
    )
    hide: Flag = entry(
        False,
        "The row is only a step on the way: what is below it stands in the row above, in its place.",
        example=False,
        content=True,
    )

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        said: dict[str, Any] = dump(self)
        return {name: value for name, value in said.items() if value or name not in LATER}

    @property
    def picks(self) -> tuple[tuple[str, str], ...]:
        """``columns`` as (column, name in the document)."""
        return picks(self.columns)


class Ref(Nested):
    """A row that the row above points at (many-to-one): an object in the document, or null."""

    on: On = entry(
        description="{column of the row above: column of this table}; the right ones are the whole primary key of this "
        "table, or another unique key of it.",
        example=_TO_REFERRER,
        content=True,
    )
    as_of: Text | None = entry(
        None,
        "A column of the row above with a moment: the row stands in the document as it was then, whatever became of it "
        "(docs/as-of-joins.md). All versions of this table's rows are kept for that.",
        shown_default="the row as it is",
        example="ordered_at",
        alternative=True,
        content=True,
    )


class Child(Nested):
    """The rows that point at the row above (one-to-many): an array of objects in the document."""

    table: TableName = entry(description="The table of the nested rows.", example="orders", content=True)
    on: On = entry(
        description="{column of the row above: column of this table}; the left ones are the whole primary key of the "
        "row above, or another unique key of it.",
        example=_OF_CUSTOMER,
        content=True,
    )
    columns: Columns = entry(
        (),
        "Columns of the nested row, as in a view.",
        shown_default="all columns",
        example=["order_id", "ordered_at", "total"],
        content=True,
    )
    refs: Mapping[FieldName, Ref] = entry({}, "As in a view.", example=_OF_ORDERS["refs"], content=True)
    children: Mapping[FieldName, Child] = entry({}, "As in a view.", example=_OF_ORDERS["children"], content=True)
    aggregates: Mapping[FieldName, Aggregate] = entry(
        {}, "As in a view.", example=_OF_ORDERS["aggregates"], content=True
    )
    value: Text | None = entry(
        None,
        "A column of this table whose values stand in the document in the place of the objects, NULLs left out; then "
        "nothing else of the rows does.",
        example="total",
        alternative=True,
        content=True,
    )
    hide: Flag = entry(
        False,
        "The rows are only a step on the way, as those of a junction table: what is below them stands in the row "
        "above, in their place.",
        example=False,
        content=True,
    )
    one: Flag = entry(
        False,
        "At most one row points at the row above: an object or null instead of an array. Of several the newest is "
        "shown, and `headwater verify` names the document.",
        example=False,
        content=True,
    )
    order_by: Text | None = entry(
        None,
        "Columns of this table to sort by, each with asc or desc, and nulls first or nulls last; the primary key "
        "decides between equals.",
        shown_default="the primary key",
        example="ordered_at desc, order_id",
        content=True,
    )
    limit: RowLimit | None = entry(
        None, "Only so many rows, after sorting.", unit="rows", shown_default="all of them", example=20, content=True
    )


def picks(columns: Columns) -> tuple[tuple[str, str], ...]:
    """A list of columns as (column, name in the document)."""
    return tuple((item, item) if isinstance(item, str) else next(iter(item.items())) for item in columns)


def standing(part: Any) -> list[tuple[tuple[str, ...], str, Nested]]:
    """What of other rows stands in a view's root or a nested row: (its path below the part, its name, what it is).

    In the place of a hidden row stands what it shows.

    Args:
        part: a ``View`` or a ``Nested``.
    """
    found: list[tuple[tuple[str, ...], str, Nested]] = []
    for join in ("refs", "children"):
        for name, item in getattr(part, join).items():
            if item.hide:
                found += [((join, name, *path), below, what) for path, below, what in standing(item)]
            else:
                found.append(((join, name), name, item))
    return found


Nested.model_rebuild()
Ref.model_rebuild()
Child.model_rebuild()
