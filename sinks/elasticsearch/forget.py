"""Forgetting documents: Elasticsearch takes no version below the one that it holds, nor below a deleted one's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import WRITTEN, Answer, Item
from sinks.elasticsearch import read
from sinks.elasticsearch.bulk import Line, encode
from sinks.elasticsearch.settings import Target

# The server looks for deletes that it may forget when it refreshes, and not in the very second of the delete.
PRUNE_SECONDS = 1.1

Send = Callable[[str, list[Line], list[Answer | None]], None]


def forget(client: Elasticsearch, target: Target, keys: Sequence[str], send: Send) -> None:
    """Delete documents under the versions that they have, and let the index forget its deletes once.

    For about a second another writer's delete is remembered by its fence alone (docs/decisions/fences.md): who writes
    an older version in just that second may bring a document back, which the repair that called this looks for.

    Args:
        client: the connection.
        target: whose.
        keys: of documents.
        send: sends lines to an alias, and puts the answers at their places.

    Raises:
        the client's errors; SinkRefused: there is no such index, or somebody has written one of them meanwhile.
    """
    index = target.concrete
    held = read.versions(client, target, index, keys)
    if not held:
        return
    # Through the alias for writers: who has lost the lease has lost it too.
    deletes = [Item(key, version, None) for key, version in held.items()]
    answers: list[Answer | None] = [None] * len(deletes)
    send(target.writer, [encode(place, item, target.address(item.key)) for place, item in enumerate(deletes)], answers)
    for item, answer in zip(deletes, answers, strict=True):
        if answer is None or answer != WRITTEN:
            why = (answer and answer.reason) or "somebody has written it meanwhile"
            raise SinkRefused(f"document {item.key} of {index} can't be forgotten: {why}", fix="start it again")
    settings = client.indices.get_settings(index=index).body[index]["settings"]["index"]
    client.indices.put_settings(index=index, settings={"gc_deletes": "0s"})
    try:
        time.sleep(PRUNE_SECONDS)
        client.indices.refresh(index=index)
    finally:
        client.indices.put_settings(index=index, settings={"gc_deletes": settings.get("gc_deletes")})
