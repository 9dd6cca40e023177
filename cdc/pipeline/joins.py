"""``refs``, ``children`` and ``aggregates`` of a view: rows of other tables in a document, to any depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from cdc.pipeline.fields import NAMESPACE, Columns, Part, RowLimit, TableName, Text, entry

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


Nested.model_rebuild()
Ref.model_rebuild()
Child.model_rebuild()
