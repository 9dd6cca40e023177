"""What the nodes of a row store in memory hold: see sinks/rowstore/memory/store.py."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from sinks.rowstore import key_names


class Servers:
    """What the nodes hold.

    Args:
        nodes: how many there are; a key lies on the node of its slot.
    """

    def __init__(self, nodes: int = 1) -> None:
        self.nodes: list[dict[str, Any]] = [{} for _ in range(nodes)]
        self.run = 0

    def of(self, key: str) -> dict[str, Any]:
        """The node that holds a key."""
        return self.nodes[key_names.slot(key) % len(self.nodes)]

    def copy(self, node: int) -> dict[str, Any]:
        """What a node holds now."""
        return deepcopy(self.nodes[node])

    def restart(self, node: int, held: Mapping[str, Any]) -> None:
        """A node comes back with what it held at some moment."""
        self.nodes[node] = deepcopy(dict(held))
        self.run += 1

    def flush(self, node: int) -> None:
        """A node is emptied, and goes on."""
        self.nodes[node].clear()
