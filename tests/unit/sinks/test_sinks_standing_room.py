"""The index in which standing queries judge has room for what the documents' index has, and for fields of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinks.elasticsearch.mapping import flatten
from sinks.elasticsearch.settings import read_settings
from sinks.elasticsearch.standing.percolator import Percolator

SETTINGS = read_settings({"type": "elasticsearch", "name": "s", "url": "http://h:9200", "targets": {"thing": {}}})
TARGET = SETTINGS.targets["thing"]
FIELDS = "index.mapping.total_fields.limit"


class Server:
    """The indices of a server: that of the documents, and what is made beside it."""

    def __init__(self, fields: int, settings: dict[str, Any]) -> None:
        self.found: dict[str, Any] = {}
        self.grow(fields, settings)
        self.said: list[str] = []
        self.indices = self

    def grow(self, fields: int, settings: dict[str, Any]) -> None:
        """Give the documents' index so many fields, and settings."""
        properties = {f"f{n}": {"type": "long"} for n in range(fields)}
        self.found[TARGET.concrete] = {"settings": {"index": settings}, "mappings": {"properties": properties}}

    def options(self, **_: Any) -> Server:
        """Itself."""
        return self

    def get(self, index: str) -> Any:
        """One index."""
        return SimpleNamespace(body={index: self.found[index]} if index in self.found else {})

    def exists(self, index: str) -> bool:
        """Whether there is one."""
        return index in self.found

    def create(self, index: str, mappings: dict[str, Any], settings: dict[str, Any]) -> None:
        """Make one."""
        self.found[index] = {"settings": {"index": {"uuid": "u"}}, "mappings": {"properties": {}}}
        self.found[index]["mappings"]["_meta"] = mappings["_meta"]
        self.put_settings(index, settings)
        self.put_mapping(index, mappings["properties"])

    def put_settings(self, index: str, settings: dict[str, Any]) -> None:
        """Change settings."""
        self.said.append("settings")
        self.found[index]["settings"] |= settings

    def put_mapping(self, index: str, properties: dict[str, Any]) -> None:
        """Add fields, if there is room: those that a percolator makes by itself are five."""
        self.said.append("mapping")
        there = self.found[index]["mappings"]["properties"]
        there |= properties
        assert len(there) + 2 + 5 <= int(flatten(self.found[index]["settings"]).get(FIELDS, 1_000))

    def judges(self) -> str:
        """Set up what judges."""
        return Percolator(cast(Any, self), SETTINGS, TARGET).setup()


@pytest.mark.parametrize("settings", [{}, {"mapping": {"total_fields": {"limit": "1200"}}}])
def test_a_view_that_has_just_room_has_standing_queries(settings: dict[str, Any]) -> None:
    Server(1_200 if settings else 998, settings).judges()


def test_a_limit_that_was_raised_by_hand_reaches_what_judges() -> None:
    """The documents went on, and the standing queries of the view stood."""
    server = Server(900, {"mapping": {"coerce": "false"}})
    server.judges()
    server.grow(1_900, {"mapping": {"coerce": "true", "total_fields": {"limit": "2000"}, "depth": {"limit": "30"}}})
    server.said.clear()
    server.judges()
    assert server.said == ["settings", "mapping"]
    settings = flatten(server.found[TARGET.percolator]["settings"])
    assert (settings["index.mapping.depth.limit"], settings["index.mapping.coerce"]) == ("30", "false")
    server.judges()
    assert server.said == ["settings", "mapping"]  # nothing is said twice
