"""``views`` of the pipeline file: what a document is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from cdc.pipeline.fields import Columns, Part, TableName, Text, entry

# The way to a document of several tables; keys that the file does not take yet.
JOINS = ("refs", "children", "aggregates")


class View(Part):
    """A document for each row of one table."""

    root: TableName = entry(
        description="The table; the schema may be left out when no other schema has such a table.",
        example="customers",
        content=True,
    )
    key: Annotated[tuple[Text, ...], Field(strict=False)] = entry(
        (),
        "Columns that make the document's id. They must be the primary key.",
        shown_default="the primary key",
        example=["customer_id"],
        content=True,
        max_length=32,
    )
    columns: Columns = entry(
        (),
        "Columns of the document, in this order; {column: name} renames one.",
        shown_default="all columns",
        example=["customer_id", "email", {"full_name": "name"}],
        content=True,
    )
    fields: Mapping[str, Text] = entry(
        {},
        "More fields of the document: name: Spark SQL expression over the row's columns.",
        example={"email_domain": "split(email, '@')[1]"},
        content=True,
    )
    where: Text | None = entry(
        None,
        "Spark SQL condition: only rows for which it is true have a document; a row that stops matching is "
        "deleted from the sink.",
        shown_default="every row",
        example="email IS NOT NULL",
        content=True,
    )

    @property
    def picks(self) -> tuple[tuple[str, str], ...]:
        """``columns`` as (column, name in the document)."""
        return tuple((item, item) if isinstance(item, str) else next(iter(item.items())) for item in self.columns)
