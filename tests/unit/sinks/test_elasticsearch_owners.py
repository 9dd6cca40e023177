"""Indices that another pipeline, or another sink of the same one, has made: named, not written, not removed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinks.elasticsearch.index import Indices
from sinks.elasticsearch.rehearsal import of_others
from sinks.elasticsearch.settings import Target


def _meta(pipeline: str, view: str, sink: str = "search") -> dict[str, Any]:
    said = {"pipeline": pipeline, "view": view, "sink": sink, "generation": 2}
    return {"mappings": {"_meta": {"headwater": said}}}


def test_a_name_that_another_pipeline_has_is_told_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"user_g2": _meta("one", "user"), "post_g1": _meta("two", "post"), "user_x_g1": _meta("one", "user_x")}
    indices = SimpleNamespace(get_mapping=lambda **_: SimpleNamespace(body=held))
    client = SimpleNamespace(indices=indices, close=lambda: None)
    monkeypatch.setattr("sinks.elasticsearch.rehearsal.connect", lambda settings: client)
    targets = {name: Target(name, name, 1, {}) for name in ("user", "post")}
    settings = SimpleNamespace(who="s", name="search", pipeline="two", targets=targets)
    monkeypatch.setattr("sinks.elasticsearch.rehearsal.read_settings", lambda config: settings)
    assert of_others({}) == {"user": ("user_g2", "sink search of pipeline one")}


@pytest.mark.parametrize(("pipeline", "there"), [("one", False), ("two", True)])
def test_indices_that_another_pipeline_has_made_are_not_there(pipeline: str, there: bool) -> None:
    said = _meta(pipeline, "user")
    indices = SimpleNamespace(exists=lambda index: True, get_mapping=lambda index: SimpleNamespace(body={index: said}))
    settings = SimpleNamespace(who="s", name="search", pipeline="two")
    made = Indices(cast("Any", SimpleNamespace(indices=indices)), cast("Any", settings), cast("Any", None))
    assert made.there(Target("user", "user", 1, {})) is there


class Server:
    """What stands for a search server.

    Attributes:
        held: index -> its mapping.
        deleted: indices, in the order of their going.
    """

    def __init__(self, held: dict[str, Any]) -> None:
        self.held, self.deleted = held, list[str]()
        self.indices = self

    def exists(self, index: str) -> bool:
        """Whether it is there."""
        return index in self.held

    def get_mapping(self, index: str) -> Any:
        """Its mapping."""
        return SimpleNamespace(body={index: self.held[index]})

    def get(self, **_: Any) -> Any:
        """None is left of older versions."""
        return SimpleNamespace(body={})

    def delete(self, index: str, **_: Any) -> None:
        """One goes."""
        self.deleted.append(index)


def _indices(server: Server, sink: str) -> Indices:
    settings = SimpleNamespace(who=f"sink {sink}", name=sink, pipeline="two")
    return Indices(cast("Any", server), cast("Any", settings), cast("Any", None))


def test_a_sink_that_was_refused_for_anothers_index_can_be_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Renamed in the file, a sink never wrote a document, and neither it nor its pipeline could be dropped."""
    server = Server({name: _meta("two", "user") for name in ("user_g2", "user_g2_fences")})
    target = Target("user", "user", 2, {})
    with caplog.at_level(logging.WARNING):
        _indices(server, "finder").drop(target)
    assert server.deleted == [] and not _indices(server, "finder").there(target)
    assert "index user_g2 was made by sink search of this pipeline, and stays" in caplog.text
    _indices(server, "search").drop(target)
    assert server.deleted == ["user_g2", "user_g2_fences"]
