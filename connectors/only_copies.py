"""Topics that nothing fills again as they were: events, and all versions of rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cdc.log.client import Topic
from cdc.outbox import events_topics
from cdc.pipeline import Pipeline
from connectors.topics import FOR_EVER, LAG

Holds = Literal["events", "versions"]
# What goes with such a topic, in words.
GONE: Mapping[Holds, str] = {
    "events": "events go for good, but for those whose rows are still in the outbox",
    "versions": "what its rows were before (`as_of`) goes for good; what they are can be read again",
}


def only_copies(pipeline: Pipeline, there: Mapping[str, Topic]) -> dict[str, Holds]:
    """Topic -> what it is the only copy of, for those that are. Other topics are read from the tables again.

    Args:
        pipeline: the loaded file.
        there: topics that exist, with their settings: by these a topic keeps all versions, whatever the file says, for
            a generation that is kept may show them still.
    """
    events = events_topics(pipeline)
    found = dict[str, Holds]()
    for name, topic in sorted(there.items()):
        if name in events:
            found[name] = "events"
        elif topic.config.get(LAG) == FOR_EVER:
            found[name] = "versions"
    return found
