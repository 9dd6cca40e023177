"""Indices that another pipeline, or another sink of the same one, has made: named, not written, not removed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkRefused
from operations.edits.changes import Changes
from sinks.elasticsearch.generations import made
from sinks.elasticsearch.index import Indices
from sinks.elasticsearch.rehearsal import of_others
from sinks.elasticsearch.settings import Target
from sinks.redis.claims import Claims


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
    index, who, fix = of_others({})["user"]
    assert (index, who) == ("user_g2", "sink search of pipeline one") and [*of_others({})] == ["user"]
    assert "`index_prefix:`" in fix and "another name" not in fix
    settings.name = "finder"
    found = of_others({})
    assert (*found,) == ("post", "user") and found["user"][1:] == (who, fix)
    assert found["post"][:2] == ("post_g1", "sink search of this pipeline")
    assert "if this one was called `search` before, call it so again" in found["post"][2]


@pytest.mark.parametrize(("pipeline", "there"), [("one", False), ("two", True)])
def test_indices_that_another_pipeline_has_made_are_not_there(pipeline: str, there: bool) -> None:
    said = _meta(pipeline, "user")
    indices = SimpleNamespace(exists=lambda index: True, get_mapping=lambda index: SimpleNamespace(body={index: said}))
    settings = SimpleNamespace(who="s", name="search", pipeline="two")
    ours = Indices(cast("Any", SimpleNamespace(indices=indices)), cast("Any", settings), cast("Any", None))
    assert ours.there(Target("user", "user", 1, {})) is there


def test_generations_are_told_by_the_names_of_their_indices() -> None:
    names = ["user_g1", "user_g1_fences", "user_g12", "user_gone_g3", "user_g2_w5", "user_g2_percolator"]
    indices = SimpleNamespace(get=lambda **_: SimpleNamespace(body=dict.fromkeys(names)))
    client = cast("Any", SimpleNamespace(indices=indices))
    assert made(client, Target("user", "user", 1, {})) == {1, 12}


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


@pytest.mark.parametrize(
    ("held", "sink", "who", "says"),
    [
        (_meta("two", "user"), "finder", "sink search of this pipeline", "if this one was called `search` before"),
        (_meta("one", "user"), "search", "sink search of pipeline one", "`index_prefix:`"),
        (_meta("two", "post"), "search", "sink search for view post", "rename the view"),
        ({"mappings": {}}, "search", "someone else", "delete that index only if nobody keeps it any more"),
    ],
)
def test_whose_an_index_is_and_the_way_back_are_told_in_words(
    held: dict[str, Any], sink: str, who: str, says: str
) -> None:
    """It showed a Python dict and advised to delete the index; a renamed sink's was the one that readers saw."""
    target = Target("user", "user", 2, {})
    with pytest.raises(SinkRefused) as refused:
        _indices(Server({"user_g2": held}), sink)._check_owner(target, "user_g2")
    assert f"was made by {who}, not for view 'user'" in refused.value.what and says in refused.value.fix
    assert ("delete" in refused.value.fix) is (who in ("someone else", "sink search for view post"))


@pytest.mark.parametrize(("owner", "back"), [("two/cache", True), ("one/cache", False), ("two/finder", False)])
def test_keys_that_a_renamed_sink_has_claimed_are_told_with_the_way_back(owner: str, back: bool) -> None:
    fix = Claims("two/finder", "sink finder").refused("user", ("user", owner)).fix
    assert ("if this one was called `cache` before, call it so again" in fix) is back
    assert "give this sink another `key_prefix`" in fix


def test_a_sink_that_may_only_be_renamed_is_told_before_it_is_let_go() -> None:
    said = "run lets go of sink search; what it holds stays"
    assert Changes(removed=("search",)).lines() == [said]
    _, with_new = Changes(added=("finder",), removed=("search",)).lines()
    assert with_new.startswith(said) and "call a sink that was only renamed as before" in with_new
