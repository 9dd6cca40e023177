"""The events that folded views are held against: as the log has them, for the second opinion, which reads no log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import orjson

from cdc.fold import FoldView
from cdc.join.view import JoinedView
from cdc.log.client import Kafka
from cdc.log.records import records
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.view import View
from truth.folded import Event, Events
from truth.versions import Logged, Versions


def logged(pipeline: Pipeline, view: View) -> Events | Versions | None:
    """What reads a folded view's events, or the versions of what a joined one shows as it was; None for another view.

    Args:
        pipeline: the loaded file.
        view: the view.
    """
    if isinstance(view, FoldView):
        return partial(_events, pipeline, view)
    if isinstance(view, JoinedView) and (tables := view.tree.versioned()):
        return partial(_versions, pipeline, sorted(tables))
    return None


def _versions(pipeline: Pipeline, tables: Sequence[str]) -> Iterator[Logged]:
    """Every change of some tables that the log has now; what is none is a dead letter.

    Raises:
        KafkaUnavailable, RegistryUnavailable: no answer (transient).
    """
    kafka, encoding = Kafka(pipeline), encoding_of(pipeline.source.reader())
    named = {pipeline.topic(table): table for table in tables}
    for topic, found in kafka.describe([*named]).items():
        for part in range(found.partitions):
            for message in records(kafka, topic, part):
                try:
                    # Keys are JSON, whatever values are.
                    event, key = encoding.loads(message.value() or b""), orjson.loads(message.key() or b"")
                    told = (int(event["source"]["ts_ms"]), str(event["op"]), dict(key), event["after"])
                    yield Logged(named[topic], message.offset() or 0, *told)
                except (ValueError, KeyError, TypeError):
                    continue


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
