"""Standing queries that are put or removed while a promotion leads readers to another index. No server is asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import SinkUnavailable, StateError, UnknownName
from cdc.pipeline import Pipeline
from operations.generations.carrying import NOTE, Carrying, carry_left
from operations.generations.retire import retire
from operations.run.promotions import finish_promotion
from operations.standing import queries as by_hand
from operations.standing.queries import put_query, remove_query
from operations.state.folder import register_of
from sinks.elasticsearch.standing.queries import Query
from tests.support.promoted import promoted
from tests.support.query_server import QueryServer
from tests.unit.operations.test_standing_moved import Readers, next_shown, readers, second, server, show

__all__ = ["readers", "server"]
OLD, NEW = "v_queries", "shop-v_queries"


@pytest.fixture
def cut(tmp_path: Path, readers: Readers, server: QueryServer, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose promotion was killed behind the register: of its queries one is new, one gone, one changed."""
    pipeline = second(tmp_path)
    for name in ("big", "gone", "other"):
        server.register(OLD, name, 7)

    def meanwhile() -> None:
        server.register(OLD, "late", 9)
        server.register(OLD, "big", 9)
        del server.stored[OLD]["gone"]

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    readers.meanwhile = meanwhile
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Carrying, "rest", killed)
        show(pipeline, 2)
    readers.meanwhile, readers.seen = lambda: None, 2
    assert server.names(NEW) == {"big", "gone", "other"}
    return pipeline


def retired(pipeline: Pipeline) -> None:
    retire(pipeline, "search", 1, lambda _: None)


FINISH: dict[str, Callable[[Pipeline], object]] = {
    "promoted again": lambda pipeline: show(pipeline, 2),
    "run starts": lambda pipeline: finish_promotion(pipeline, "search", 0.0, lambda _: None),
    "the former one goes": retired,
    "and back": lambda pipeline: (show(pipeline, 1), show(pipeline, 2)),
}


@pytest.mark.parametrize("way", FINISH)
def test_a_promotion_that_was_cut_at_its_end_leaves_no_query_behind(
    cut: Pipeline, server: QueryServer, way: str
) -> None:
    """It said `readers see generation 2 already`, and `retire` removed the only copy of what was put meanwhile."""
    FINISH[way](cut)
    assert {name: one["revision"] for name, one in server.stored[NEW].items()} == {"big": 9, "late": 9, "other": 7}
    assert not list(register_of(cut, "search").folder.glob(f"*/{NOTE}"))


def test_what_was_changed_at_the_new_index_since_stays(cut: Pipeline, server: QueryServer) -> None:
    """A plain write put revision 9 over revision 10, and brought back what had been removed there."""
    server.register(NEW, "big", 10)
    server.register(NEW, "gone", 10)
    del server.stored[NEW]["other"]
    server.register(OLD, "other", 9)
    carry_left(cut, "search")
    assert {name: one["revision"] for name, one in server.stored[NEW].items()} == {"big": 10, "gone": 10, "late": 9}


def test_what_is_changed_there_at_this_moment_stays(cut: Pipeline, server: QueryServer) -> None:
    looks: list[int] = []

    def looked() -> None:
        looks.append(1)
        if len(looks) == 2:  # behind the look at the new index, before the write
            server.register(NEW, "big", 10)
            server.register(NEW, "gone", 10)

    server.looked = looked
    carry_left(cut, "search")
    assert {name: one["revision"] for name, one in server.stored[NEW].items()} == {
        "big": 10,
        "gone": 10,
        "late": 9,
        "other": 7,
    }


def test_who_changes_them_all_the_time_is_not_waited_for_for_ever(cut: Pipeline, server: QueryServer) -> None:
    revisions = iter(range(1, 100))
    server.looked = lambda: server.register(NEW, "late", -next(revisions))
    with pytest.raises(SinkUnavailable, match="changed by somebody else"):
        carry_left(cut, "search")


def test_run_says_what_could_not_be_taken_along_and_tries_again(cut: Pipeline, server: QueryServer) -> None:
    said: list[str] = []
    server.failing = {"status": 429, "error": {"type": "circuit_breaking_exception", "reason": "full"}}
    finish_promotion(cut, "search", 0.0, said.append)
    assert len(said) == 1 and "standing queries could not be taken along" in said[0]
    server.failing = None
    finish_promotion(cut, "search", 0.0, said.append)
    assert "late" in server.names(NEW) and len(said) == 1


def test_what_can_not_be_read_is_refused_and_what_is_gone_is_not_asked_for(cut: Pipeline, server: QueryServer) -> None:
    note = register_of(cut, "search").generation(2).folder / NOTE
    kept = note.read_text()
    note.write_text("{}")
    with pytest.raises(StateError, match=r"carried\.json can't be read"):
        carry_left(cut, "search")
    note.write_text(kept)
    register_of(cut, "search").remove(1)
    carry_left(cut, "search")
    assert server.names(NEW) == {"big", "gone", "other"} and not note.exists()


def test_a_way_that_was_not_gone_to_its_end_says_nothing_later(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    pipeline = second(tmp_path)
    server.register(OLD, "big", 7)
    Carrying(pipeline, "search", 2).over()  # and then refused, as for being behind
    register_of(pipeline, "search").move(2, "previous")
    next_shown(pipeline, "search")
    server.register(OLD, "removed at the new one", 8)
    show(pipeline, 2)
    carry_left(pipeline, "search")
    assert server.names(NEW) == {"big"}


# -- who had found the place before ------------------------------------------------------------------------------------


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch, server: QueryServer) -> Callable[[Callable[[], None]], None]:
    """By hand, with something that happens before the first write."""
    pending: list[Callable[[], None]] = []

    def before() -> None:
        if pending:
            pending.pop()()

    @contextmanager
    def searching(place: Any) -> Any:
        def put(name: str, _wanted: bytes) -> Query:
            before()
            server.register(place.target.queries, name, 9)
            return Query(name, 9, b"{}")

        def remove(name: str) -> bool:
            before()
            return server.stored.get(place.target.queries, {}).pop(name, None) is not None

        yield SimpleNamespace(store=SimpleNamespace(setup=lambda: None, change=lambda: ("", 1), remove=remove), put=put)

    monkeypatch.setattr(by_hand, "_searching", searching)
    monkeypatch.setattr(by_hand, "Registering", lambda made: made)
    monkeypatch.setattr(by_hand, "_state", lambda *_: (None, {}))
    return pending.append


def test_who_writes_behind_a_promotion_writes_where_readers_are(
    tmp_path: Path, server: QueryServer, writing: Callable[[Callable[[], None]], None]
) -> None:
    pipeline = second(tmp_path)
    for index in (OLD, NEW):
        server.register(index, "small", 7)
    writing(lambda: promoted(register_of(pipeline, "search"), 2))
    put_query(pipeline, "v", "big", b'{"term": {"a": 1}}')
    assert server.names(NEW) == {"big", "small"}
    writing(lambda: promoted(register_of(pipeline, "search"), 1))
    remove_query(pipeline, "v", "small")
    assert "small" not in server.names(OLD) | server.names(NEW)
    with pytest.raises(UnknownName):
        remove_query(pipeline, "v", "small")


def test_first_all_are_as_they_were_and_no_others(tmp_path: Path, server: QueryServer) -> None:
    pipeline = second(tmp_path)
    server.register(OLD, "big", 7)
    server.register(NEW, "big", 9)
    server.register(NEW, "old", 9)
    Carrying(pipeline, "search", 2).over()
    assert server.stored[NEW] == server.stored[OLD]
