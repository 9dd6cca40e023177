"""Records that a captured table's topic has lost: it had a retention for a while, or somebody deleted what was in it.

Compaction keeps the newest record of each key and never moves a partition's first offset; retention and DeleteRecords
do. Who reads the topic from offset 0 then lacks every row that has not changed since, and nobody writes it again. So
the list of captured tables remembers where its topic began when the table was last read whole: a partition that begins
later has lost something, and the table is read again like one with any other gap (``changed.py``). It remembers the
topic's id as well: one that somebody deleted and made again by hand begins at 0 and has lost all that it held.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.outbox import is_outbox
from cdc.pipeline import Pipeline
from connectors.captured.captured import LOST, Captured
from connectors.captured.changed import Change

# Partitions that are named in a message; the others are counted.
NAMED = 3


def lost_records(
    pipeline: Pipeline,
    captured: Mapping[str, Captured],
    first: Mapping[str, Mapping[int, int]],
    ids: Mapping[str, str],
) -> dict[str, Change]:
    """Captured tables whose topics begin later than when the table was last read whole. Pure.

    Args:
        pipeline: the loaded file. An outbox's topics hold events, which are allowed to end.
        captured: the list.
        first: first offsets, topic -> partition -> offset; topics that are not there are left out.
        ids: the brokers' own ids of topics, by name, where they give some.
    """
    out = {}
    for table, entry in captured.items():
        topic = pipeline.topic(table)
        if is_outbox(pipeline, table) or topic not in first:
            continue
        if entry.topic_id and ids.get(topic, entry.topic_id) != entry.topic_id:
            out[table] = Change(f"{LOST}: its topic {topic} was deleted and made again by somebody")
            continue
        later = {p: at for p, at in sorted(first[topic].items()) if at > entry.begins.get(p, 0)}
        if later:
            out[table] = Change(_words(topic, later))
    return out


def _words(topic: str, later: Mapping[int, int]) -> str:
    named = ", ".join(f"what was before offset {at:,} of partition {p}" for p, at in list(later.items())[:NAMED])
    more = f", and of {len(later) - NAMED} more" if len(later) > NAMED else ""
    return f"{LOST} of its topic {topic} (a retention, or somebody deleted them): {named}{more}"
