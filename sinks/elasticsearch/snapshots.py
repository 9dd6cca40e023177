"""Snapshots of indices in repositories of the server's: copies that are somebody's backup, and are not touched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sinks.elasticsearch.client import connect, translated
from sinks.elasticsearch.settings import read_settings


def snapshots_of(config: Mapping[str, Any], indices: Collection[str]) -> dict[str, list[str]]:
    """Repository -> names of the snapshots that have one of these indices.

    Args:
        config: plain data, of ``sinks.configure``.
        indices: their names.

    Raises:
        SinkUnavailable: no answer (transient). SinkRefused: this user may not look.
    """
    settings = read_settings(config)
    client = connect(settings)
    try:
        with translated(settings.who, "looking for snapshots"):
            found = {}
            for name in client.snapshot.get_repository().body:
                answer = client.snapshot.get(repository=name, snapshot="_all", ignore_unavailable=True).body
                mine = [str(one["snapshot"]) for one in answer["snapshots"] if set(one["indices"]) & set(indices)]
                if mine:
                    found[str(name)] = mine
            return found
    finally:
        client.close()
