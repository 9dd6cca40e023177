"""Whether a view's `fold` fits the rest of the file, as far as the file alone can tell."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.pipeline.checks_outbox import is_root
from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong
from cdc.pipeline.views import View

# What a document of a folded view can't have besides: all of it is the state.
NOT_BESIDE = ("key", "fields", "where", "refs", "children", "aggregates")


def check_fold(pipeline: Pipeline, name: str, view: View) -> Iterator[Wrong]:
    """What does not fit.

    Args:
        pipeline: the file.
        name: the view's.
        view: the view.
    """
    path: Path = ("views", name, "fold")
    if view.fold is None:
        return
    where, outbox = f"views.{name}.fold", pipeline.source.outbox
    if outbox is None:
        yield Wrong(path, f"{where}: events are folded, and the file has no outbox", "write source.outbox: {table: …}")
        return
    if not is_root(outbox, view.root):
        what = f"{where}: {view.root} is no table of events, {outbox.table} is"
        yield Wrong(("views", name, "root"), what, f"write root: {outbox.table}")
    if len(view.events) != 1:
        # Of two topics nobody knows which event came first.
        what = f"{where}: it takes the events of one aggregate type, whose order is known"
        yield Wrong(path, what, f"write events: [{outbox.types[0]}]")
    for key in NOT_BESIDE:
        if getattr(view, key):
            yield Wrong(
                ("views", name, key), f"views.{name}.{key}: a folded view's document is its state", "say it there"
            )
    if [column for column, _ in view.picks] not in ([], [outbox.aggregate_id]):
        what = f"views.{name}.columns: beside its state a folded view has one column, {outbox.aggregate_id}"
        yield Wrong(("views", name, "columns"), what, f"write columns: [{outbox.aggregate_id}], or leave it out")
