"""What `apply` does around its work on the servers: nobody else's file may come between its question and it, and no
erasure, which has settings of its own on the topics for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cdc.errors import StateError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from connectors.actions import Action, Begins
from connectors.postgres import connect
from connectors.tables.catalogue import read_catalogue
from connectors.topics import wanted_topics
from operations.erase.note import TOPICS, Note
from operations.schema.migrations import let_through
from operations.state.accepted import Text, hand_over, read_accepted
from operations.state.folder import note_captured


def applied_last(pipeline: Pipeline) -> str:
    """The digest of the file that was applied last; empty if none was, or if that can't be read."""
    with suppress(StateError):
        return last.digest if (last := read_accepted(pipeline)) is not None else ""
    return ""


def _settle_topics(pipeline: Pipeline, note: Note) -> None:
    """What a killed erasure has left of topics: what the file says of them stands by now, only the rest is put back.

    Raises:
        StateError: as ``Note.read``.
        SourceError, KafkaError: a server refused, or does not answer (the same again goes on).
    """
    if not (noted := note.read().get(TOPICS)):
        return
    kafka = Kafka(pipeline)
    with connect(pipeline.source) as connection:
        wanted = wanted_topics(pipeline, read_catalogue(connection, pipeline.source.tables))
    says = {topic.name: topic.config for topic in wanted}
    for name in kafka.describe(noted):
        if rest := {key: value for key, value in noted[name].items() if key not in says.get(name, {})}:
            kafka.alter(name, rest)
    note.forget_topics()


def noting(pipeline: Pipeline, begins: Begins = lambda action: None) -> Begins:
    """``begins``, for the actions of ``connectors.apply.apply``, with a note of the one that captures the pipeline:
    before it, for one that is cut short may have made the connector, and the next ``apply`` finds it there."""

    def noted(action: Action | None) -> None:
        if action is not None and action.captures:
            note_captured(pipeline)
        begins(action)

    return noted


@contextmanager
def handing(pipeline: Pipeline, text: Text, seen: str | None) -> Iterator[None]:
    """Work on the servers in the block, under the lock of ``apply``; at its end the file is handed to `run`.

    Args:
        pipeline: the loaded file.
        text: the same as it was read.
        seen: ``applied_last`` before it was asked which sinks may be let go; None if nobody is to be asked.

    Raises:
        StateError: another file was applied since, or an erasure is at work (terminal; nothing was changed).
        SourceUnavailable, SourceError: as ``operations.schema.migrations.let_through``.
        DiskFull, OSError: as ``operations.state.accepted.hand_over``.
    """
    note = Note(pipeline)
    busy = StateError(
        f"an erasure of pipeline {pipeline.name} is at work, or a recapture",
        means="it sets topics' settings for a moment and puts back what they were: those of this file would not stay; "
        "nothing was changed",
        fix="run it again when that one has ended",
    )
    with note.alone(busy):
        if seen is not None and applied_last(pipeline) not in (seen, text.digest):
            raise StateError(
                "another file was applied meanwhile",
                means="`run` would let go of what that one has and this one has not, and nobody was asked about it; "
                "nothing was changed",
                fix="run it again",
            )
        yield
        with suppress(StateError):
            _settle_topics(pipeline, note)
        let_through(pipeline)
        hand_over(pipeline, text)
