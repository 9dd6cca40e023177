"""A folded view of the pipeline file, held against the source's catalogue."""

from __future__ import annotations

from cdc.catalogue import Table
from cdc.fold import FoldView
from cdc.outbox import events_topics
from cdc.pipeline import Pipeline
from cdc.pipeline.views import Fold, View
from cdc.resolve.names import columns_of, known


def resolve_fold(pipeline: Pipeline, name: str, model: View, fold: Fold, table: Table) -> FoldView:
    """A view of aggregates.

    Args:
        pipeline: the loaded file, which was checked: it has an outbox, and the view's root is that.
        name: the view's.
        model: the view.
        fold: its fold.
        table: the outbox table.

    Raises:
        ConfigError: the outbox has no such column (terminal).
    """
    outbox = pipeline.source.outbox
    assert outbox is not None
    key = outbox.aggregate_id
    known(pipeline, table, key, ("source", "outbox", "aggregate_id"))
    columns = columns_of(pipeline, table, model.picks or ((key, key),), ("views", name, "columns"))
    topics = events_topics(pipeline, model.events)
    return FoldView(name, table, (key,), columns, topics=topics, initial=fold.initial, step=fold.step)
