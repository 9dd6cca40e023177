"""Captured tables whose topics have another number of partitions than the pipeline file says, as they are now.

``check``, ``plan`` and ``apply`` refuse such a topic. Where one is enlarged under a pipeline that was applied long ago
nobody asks them: changes of a key go to another partition from then on, with higher positions, so sinks that run stay
right; but what the old partition has of that key stays there for ever, and a generation that is filled anew shows rows
that were deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.errors import KafkaError
from cdc.log.client import SECONDS, Kafka
from cdc.outbox import topics_of_tables
from cdc.pipeline import Pipeline
from connectors.actions import MANY, named
from connectors.captured.captured import read_captured
from connectors.names import Names
from connectors.postgres import ANSWER_SECONDS, connect, within
from connectors.topics import resized_topics


def resized(pipeline: Pipeline, seconds: float = SECONDS) -> dict[str, KafkaError]:
    """Captured tables of which a topic has another number of partitions, and what ``check`` says of it.

    Args:
        pipeline: the loaded file.
        seconds: how long a request to the brokers may take.

    Raises:
        SourceError, KafkaError: a server refused or does not answer (the last may be transient).
        psycopg.Error: the connection to Postgres broke.
    """
    with connect(pipeline.source) as connection, within(connection, ANSWER_SECONDS):
        captured = list(read_captured(connection, Names.of(pipeline)))
    there = Kafka(pipeline, seconds).describe(topics_of_tables(pipeline, captured)) if captured else {}
    return resized_topics(pipeline, captured, there)


def in_a_line(error: KafkaError) -> str:
    """What ``check`` says of it, and the way out."""
    return f"{error.what}: {error.means}; {error.fix}"


def in_lines(found: Mapping[str, KafkaError]) -> list[str]:
    """A line for each table; of many, whose number in the file was changed, one for all of them. Pure.

    Args:
        found: of ``resized``.
    """
    if len(found) < MANY:
        return [in_a_line(error) for error in found.values()]
    first = in_a_line(found[min(found)])
    return [f"{named(found)}: their topics have another number of partitions than the pipeline file says: {first}"]
