"""Whether readers have everything of an entry: topics made anew, promotions under way, flows that have told nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from cdc.pipeline import loads
from connectors.ledger import LedgerEntry
from operations.freshness.place import FlowPlace, FlowSeen, Place, Seen
from operations.state.losses import LossNote
from spark.disk.state import Generation
from spark.disk.status import FlowStatus
from tests.support.lone_cache import FILE

ENTRY = LedgerEntry(9, {"t": {0: 5}}, {}, {"t": "A"})
ALL_OF_IT = Seen((1,), {1: {"main": FlowSeen("running", None, ["t"], {"t": {0: 5}})}}, {1: {"t": "A"}})


def test_offsets_of_a_topic_that_was_made_anew_since_are_no_offsets_of_this_one() -> None:
    assert ALL_OF_IT.reach(ENTRY).there
    found = ALL_OF_IT.reach(replace(ENTRY, ids={"t": "B"}))
    assert (found.there, found.reason, found.stale) == (False, "topic t was made anew", False)


def test_of_an_entry_that_lacks_a_topic_another_one_may_say_more() -> None:
    found = ALL_OF_IT.reach(replace(ENTRY, offsets={}))
    assert (found.there, found.reason, found.stale) == (False, "topic t is not known to the brokers", True)


# -- looked at on disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A cache of a plain view and of one with Spark SQL, each of which has a flow of its own; that of the plain one is
    at work."""
    views = "views: {v: {root: t}, w: {root: t, fields: {big: upper(a)}}}"
    text = FILE.format(folder=tmp_path).replace("views: {v: {root: t}}", views).replace("view: v", "views: [v, w]")
    with closing(Place(loads(text, "p.yaml", {}), "cache")) as made:
        begin(made.register.generation(), "main")
        yield made


def begin(generation: Generation, flow: str) -> None:
    folder = generation.flow_folder(flow)
    folder.mkdir(parents=True)
    counts = dict.fromkeys(("batch_id", "records", "written", "deleted", "stale", "rejected", "position"), 0)
    more: dict[str, Any] = {"source_ts_ms": 0, "batch_ms": 0, "last_error": None, "topics": ["t"], "at": time.time()}
    FlowStatus(flow, "running", os.getpid(), **counts, **more).write(folder)


def test_a_flow_that_has_told_nothing_yet_has_nothing(place: Place) -> None:
    """Its view is in the file, and no folder of it is there: it would seem that there is nothing to wait for."""
    entry = LedgerEntry(9, {"t": {0: 0}})
    found = place.look().reach(entry)
    assert (found.there, found.reason) == (False, "flow w is not begun")
    begin(place.register.generation(), "w")
    assert place.look().reach(entry).there


def test_nothing_is_there_of_what_was_lost(place: Place) -> None:
    assert place.look().hold is None
    LossNote(place.register.folder).write(time.time(), 0, "", "", None)
    assert place.look().hold == "what it kept was lost, and is made again"


def test_nothing_comes_of_a_generation_that_nobody_would_run(place: Place) -> None:
    generation = place.register.generation()
    generation.refuse("its timeline is another")
    assert place.look().hold == "its timeline is another"
    generation.accepted()
    assert place.look().hold is None


# -- while readers are sent to another one -----------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "origin"), [(2, 1), (1, 2)], ids=["from the living one", "to the living one"])
def test_readers_may_see_either_generation_of_a_promotion(place: Place, to: int, origin: int) -> None:
    """The register may already call the one living that readers are still being sent to."""
    ready(place)
    place.register.begin_promotion(to, origin)
    assert place.look().generations == (1, 2)


def test_a_promotion_that_begins_during_the_look_is_not_missed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(place)
    flows = place._flows

    def begun(generation: Generation) -> dict[str, FlowSeen]:
        place.register.begin_promotion(2, 1)
        return flows(generation)

    monkeypatch.setattr(place, "_flows", begun)
    found = place.look()
    assert (found.generations, found.hold) == ((1, 2), "readers are being sent to another generation")
    assert not found.reach(LedgerEntry(9, {})).there


def test_of_a_generation_that_readers_do_not_see_any_more_nothing_is_kept(place: Place) -> None:
    """Each that was ever looked at was, and a connection to its row store, as long as `run` or the server lived."""
    ready(place)
    place.register.begin_promotion(2, 1)
    assert place.look().generations == (1, 2)
    stores = {one: MagicMock() for one in (1, 2)}
    for number, store in stores.items():
        place._deferred._stores[place.register.generation(number).flow_folder("w")] = store
    place.register.move_readers(2)
    place.register.promote(2)
    assert place.look().generations == (2,)
    assert list(place._definitions) == [2]
    assert stores[1].close.called and not stores[2].close.called
    place.register.begin_retiring(1)
    place._deferred._stores[place.register.generation(1).flow_folder("w")] = stores[1]
    assert list(place.flows()) == [2] and len(place._deferred._stores) == 1


def ready(place: Place) -> None:
    """A second generation is there, and complete."""
    place.register.create("another view")
    place.register.move(2, "ready")


class _Named(list[str]):
    """Topics as a file tells them: to look for one goes through all."""

    def __contains__(self, one: object) -> bool:
        raise AssertionError("each topic of an entry was looked for among all of the flow's")


def test_what_is_left_of_hundreds_of_topics_is_found_in_one_pass_over_them() -> None:
    ends = {f"t{number}": {0: 5, 1: number} for number in range(9)}
    entry = LedgerEntry(1, ends, {}, dict.fromkeys(ends, "A"))
    for topics in ([], ["t3"], ["t3", "t8", "t1", "t3"], ["t4", "gone"], [*ends]):
        flow = FlowPlace(_Named(topics), {"t3": {0: 5, 1: 1}, "t4": {0: 9, 1: 4}}, None, False, 1)
        wanted = replace(entry, offsets={topic: end for topic, end in ends.items() if topic in topics})
        assert flow.left(entry) == wanted.behind(flow.applied)
        assert flow.has(entry) == (topics in ([], ["t4"]))
