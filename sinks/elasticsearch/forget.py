"""Forgetting documents: Elasticsearch takes no version below the one that it holds, nor below a deleted one's."""

from __future__ import annotations

import time
from collections.abc import Sequence

from elasticsearch import Elasticsearch

from sinks.elasticsearch import read
from sinks.elasticsearch.settings import Target

# The server looks for deletes that it may forget when it refreshes, and not in the very second of the delete.
PRUNE_SECONDS = 1.1


def forget(client: Elasticsearch, target: Target, keys: Sequence[str]) -> None:
    """Delete documents under the versions that they have, and let the index forget its deletes once.

    For about a second another writer's delete is remembered by its fence alone (docs/decisions/fences.md): who writes
    an older version in just that second may bring a document back, which the repair that called this looks for.

    Raises:
        the client's errors; SinkRefused: there is no such index.
    """
    index = target.concrete
    held = read.versions(client, target, index, keys)
    if not held:
        return
    for key, version in held.items():
        # Through the alias for writers: who has lost the lease has lost it too.
        identity, routing = target.address(key)
        client.delete(index=target.writer, id=identity, routing=routing, version=version, version_type="external_gte")
    settings = client.indices.get_settings(index=index).body[index]["settings"]["index"]
    client.indices.put_settings(index=index, settings={"gc_deletes": "0s"})
    try:
        time.sleep(PRUNE_SECONDS)
        client.indices.refresh(index=index)
    finally:
        client.indices.put_settings(index=index, settings={"gc_deletes": settings.get("gc_deletes")})
