"""What the verbs of the row store in memory stand on: its nodes, and the look at their marks before each write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc.errors import Fenced, SinkUnavailable
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt
from sinks.rowstore.memory.nodes import Servers

Step = Callable[[str], None]


class MemoryTalk:
    """One runner's way to the nodes.

    Args:
        step: called with the verb's name before each element.
        servers: what it shares with other stores; its own if None.
        token: of its runner; 0 asks for none.
    """

    def __init__(self, step: Step = lambda _what: None, servers: Servers | None = None, token: int = 0) -> None:
        self.step, self.servers, self.token = step, servers or Servers(), token
        # Whether the answer to a change is lost, so that the client sends it once more.
        self.repeats: Callable[[str], bool] = lambda _what: False

    def _held(self, key: str, empty: Callable[[], Any]) -> Any:
        return self.servers.of(key).setdefault(key, empty())

    def _read(self, key: str, default: Any) -> Any:
        return self.servers.of(key).get(key, default)

    def _guard(self, key: str, by: Attempt = Attempt()) -> dict[str, Any]:  # noqa: B008 (a tuple)
        """The node of a key, once it is certain that this store may write there."""
        number = key_names.slot(key) % len(self.servers.nodes)
        self._guard_node(number, by)
        return self.servers.nodes[number]

    def _guard_node(self, number: int, by: Attempt = Attempt()) -> None:  # noqa: B008
        if not self.token:
            return
        marks = self.servers.nodes[number].get("o", {})
        run = marks.get("run")
        if run is not None and run > self.token:
            raise Fenced(f"fenced by {run}")
        if run != self.token:
            raise SinkUnavailable("the marks are lost")
        if by.part and marks.get(f"task:{by.part}", by.number) > by.number:
            raise SinkUnavailable("a later attempt is at work")

    def _everywhere(self) -> list[dict[str, Any]]:
        return self.servers.nodes
