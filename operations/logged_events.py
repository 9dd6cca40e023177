"""The events that folded views are held against: as the log has them, for the second opinion, which reads no log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cdc.fold import FoldView
from cdc.log.client import Kafka
from cdc.log.records import records
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.view import View
from truth.folded import Event, Events


def logged(pipeline: Pipeline, view: View) -> Events | None:
    """What reads a folded view's events; None for another view.

    Args:
        pipeline: the loaded file.
        view: the view.
    """
    return partial(_events, pipeline, view) if isinstance(view, FoldView) else None


def _events(pipeline: Pipeline, view: View) -> Iterator[Event]:
    """Every event that the log has now; what is none is a dead letter, and counts nowhere.

    Raises:
        KafkaUnavailable, RegistryUnavailable: no answer (transient).
    """
    kafka, loads = Kafka(pipeline), encoding_of(pipeline.source.reader()).loads
    for topic, found in kafka.describe(view.topics).items():
        for part in range(found.partitions):
            for message in records(kafka, topic, part):
                try:
                    event = loads(message.value() or b"")
                    again = event["source"]["snapshot"] == "incremental"
                    yield Event(part, message.offset() or 0, dict(event["after"]), again)
                except (ValueError, KeyError, TypeError):
                    continue
