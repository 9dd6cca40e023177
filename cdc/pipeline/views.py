"""``views`` of the pipeline file: what a document is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from cdc.pipeline.fields import Columns, EventType, Part, TableName, Text, entry
from cdc.pipeline.joins import EXAMPLES, Aggregate, Child, FieldName, Ref, picks
from cdc.pipeline.timing import Match, Window

# Keys that make documents of many events, which a state remembers: a view has one of them at most.
STATEFUL = ("fold", "window", "match")
# Keys that make a document of several tables. They came later than the others: a view without them must keep its hash.
JOINS = ("refs", "children", "aggregates")


# The flow that a sink's plain views share (spark/flow.py).
SHARED_FLOW = "main"


class Fold(Part):
    """The current state of an aggregate, folded from its events."""

    initial: Text = entry(
        description="Spark SQL, a struct: the state before the first event. Its fields are the document's.",
        example="named_struct('status', 'new', 'total', 0.00)",
        content=True,
    )
    step: Text = entry(
        description="Spark SQL: the state after an event, of the same fields. `state` is the state before it, `event` "
        "a struct of the outbox table's columns. NULL ends the aggregate: it has no document until its next event.",
        example="named_struct('status', event.type, 'total', state.total + "
        "cast(get_json_object(event.payload, '$.amount') as decimal(12, 2)))",
        content=True,
    )


class View(Part):
    """A document for each row of one table, the root; `refs`, `children` and `aggregates` add rows of other tables."""

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
    events: Annotated[tuple[EventType, ...], Field(strict=False)] = entry(
        (),
        "Of a view whose root is `source.outbox.table`: the aggregate types whose events it shows.",
        shown_default="events of all types",
        example=["order"],
        alternative=True,
        content=True,
        max_length=1000,
    )
    refs: Mapping[FieldName, Ref] = entry(
        {},
        "Rows that this row points at (many-to-one), by their name in the document: each an object, or null.",
        example=EXAMPLES["refs"],
        content=True,
    )
    children: Mapping[FieldName, Child] = entry(
        {},
        "Rows that point at this row (one-to-many), by their name in the document: each name an array of objects, or "
        "what `one`, `value` and `hide` make of it.",
        example=EXAMPLES["children"],
        content=True,
    )
    aggregates: Mapping[FieldName, Aggregate] = entry(
        {},
        "Counts, sums, averages, least and greatest values over rows that point at this row, by their name in the "
        "document.",
        example=EXAMPLES["aggregates"],
        content=True,
    )
    fields: Mapping[str, Text] = entry(
        {},
        "More fields of the document: name: Spark SQL expression over the row's columns (and refs as structs, children "
        "as arrays of structs, aggregates). Only the top of a document has computed fields; below, columns are picked "
        "and renamed. An expression may use a column of a joined row that its `columns` leaves out.",
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

    fold: Fold | None = entry(
        None,
        "Of a view whose root is `source.outbox.table`, with one type in `events`: a document for each aggregate, its "
        "current state, in place of one for each event.",
        example={
            "initial": "named_struct('orders', 0)",
            "step": "named_struct('orders', state.orders + 1)",
        },
        alternative=True,
        content=True,
    )

    window: Window | None = entry(
        None,
        "A document for each window of event time and each group, in place of one for each event.",
        example={"time": "at", "size": "1 hour", "delay": "10 minutes", "measures": {"views": "count(*)"}},
        alternative=True,
        content=True,
    )
    match: Match | None = entry(
        None,
        "A document for each event that others follow in time, or do not.",
        example={
            "time": "at",
            "delay": "1 minute",
            "within": "10 minutes",
            "first": {"where": "type = 'ordered'", "key": "aggregateid"},
        },
        alternative=True,
        content=True,
    )

    @property
    def stateful(self) -> str | None:
        """Which of ``STATEFUL`` it has; the first, if the file has several."""
        return next((name for name in STATEFUL if getattr(self, name) is not None), None)

    @property
    def picks(self) -> tuple[tuple[str, str], ...]:
        """``columns`` as (column, name in the document)."""
        return picks(self.columns)

    @property
    def joins(self) -> tuple[str, ...]:
        """Those of refs, children and aggregates that it has."""
        return tuple(name for name in JOINS if getattr(self, name))

    @property
    def alone(self) -> bool:
        """Whether it has a flow of its own in every sink, of its name: plain views share one where they can."""
        return bool(self.joins or self.fields or self.where is not None or self.stateful is not None)
