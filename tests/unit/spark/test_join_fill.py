"""A fill's place in the log, how it is begun, begun anew and gone on with, and the calls behind a task's back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from cdc.catalogue import Column, Table
from cdc.errors import KafkaUnavailable, SinkUnavailable, StateError
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.view import View
from sinks.contract import Held
from sinks.rowstore.memory.store import MemoryStore
from spark.behind import Behind
from spark.disk.checkpoint import committed_offsets
from spark.disk.filling import FillState, Slice, load, save, write_live
from spark.flow import Flow, Reading
from spark.join import fill, health, query, start
from spark.log_gaps import LONG_AGO, Vigil, unread_since
from spark.reading.computed import FAILED, WHERE
from spark.reading.spec import FlowSpec
from spark.write import NEW, from_arrow
from tests.support import trees

BEGINS = {"root": {0: 0, 1: 10}, "ref": {0: 0}}
ENDS = {"root": {0: 100, 1: 60}, "ref": {0: 7}}


def state(*, once: bool = True) -> FillState:
    return FillState("run", "attempt", "root", once, BEGINS, ENDS)


def slices(made: FillState, size: int) -> Iterator[tuple[Slice, FillState]]:
    while (piece := made.next(size)) is not None:
        made = FillState.from_json(made.after(piece, 1.0).to_json())
        yield piece, made


def test_the_roots_topic_is_read_once_and_last() -> None:
    found = list(slices(state(), 50))
    assert [piece.which for piece, _ in found] == ["rows", "documents", "documents", "documents"]
    assert found[0][0] == Slice("rows", {"ref": {0: 0}}, {"ref": {0: 7}})
    assert found[1][0] == Slice("documents", {"root": {0: 0, 1: 10}}, {"root": {0: 34, 1: 27}})
    assert all(piece.size <= 51 for piece, _ in found)
    assert found[-1][0].ends == {"root": {0: 100, 1: 60}}
    assert [made.progress() for _, made in found][:2] == [("documents", 7, 157), ("documents", 58, 157)]
    assert found[-1][1].done
    assert found[-1][1].progress() == ("documents", 157, 157)
    assert found[-1][1].slices == 4


def test_a_root_that_stands_elsewhere_too_is_read_twice() -> None:
    found = list(slices(state(once=False), 1000))
    assert [(piece.which, sorted(piece.ends)) for piece, _ in found] == [
        ("rows", ["ref", "root"]),
        ("documents", ["root"]),
    ]
    assert state(once=False).progress() == ("rows", 0, 157 + 150)


def test_every_record_is_in_one_slice() -> None:
    for size in (1, 3, 40, 10_000):
        seen = [
            (topic, part, at)
            for piece, _ in slices(state(), size)
            for topic, parts in piece.ends.items()
            for part, end in parts.items()
            for at in range(piece.starts[topic][part], end)
        ]
        assert len(seen) == len(set(seen)) == 157


def test_an_empty_log_is_filled_at_once() -> None:
    assert FillState("run", "a", "root", True, {"root": {0: 5}}, {"root": {0: 5}}).done


# -- beginning ------------------------------------------------------------------------------------------------


class Store(MemoryStore):
    """A store whose server says which run it is."""

    run = "one"
    dropped = 0

    def __init__(self) -> None:
        super().__init__(token=1)

    def server(self) -> str:
        """As the test says."""
        return self.run

    def setup(self) -> None:
        """Nothing."""

    def empty(self) -> int:
        """Count it."""
        self.dropped += 1
        return super().empty()

    def close(self) -> None:
        """Nothing."""


class Target:
    """A sink as far as a fill's beginning goes."""

    def __init__(self, *held: str) -> None:
        self.held, self.calls = list(held), list[str]()
        self.is_there = False

    def there(self, _view: str) -> bool:
        """Whether it was made ready, and not lost since."""
        return self.is_there

    def close(self) -> None:
        """Nothing."""

    def scan(self, _view: str) -> Iterator[Held]:
        """What the test put there."""
        return iter([Held(key, 1, b"{}") for key in self.held])

    def empty(self, _view: str) -> None:
        """Hold nothing any more."""
        self.calls.append("empty")
        self.held.clear()
        self.is_there = False

    def setup(self) -> None:
        """Note it."""
        self.calls.append("setup")
        self.is_there = True


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    class Log:
        def __init__(self, *_: object) -> None:
            pass

        def bounds(self, _topics: object) -> Any:
            return BEGINS, ENDS

        def close(self) -> None:
            pass

    monkeypatch.setattr(fill, "LogEnds", Log)
    table = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
    root = Node("v", "root", table, columns=(("id", "id"),))
    spec = FlowSpec(
        "search", {"v": JoinedView("v", table, ("id",), root.columns, root=root)}, {}, {"root": table}, {}, {}
    )
    return Flow("v", spec, Reading("", cast(Any, {}), None), tmp_path)


def prepare(flow: Flow, target: Target, store: Store) -> FillState:
    fill.prepare(flow, cast(Any, target), cast(Any, store))
    found = load(flow.folder)
    assert found is not None
    return found


def test_a_fill_goes_on_where_it_was(flow: Flow) -> None:
    target, store = Target(), Store()
    first = prepare(flow, target, store)
    assert (first.root, first.once, first.ends) == ("root", True, ENDS)
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, first.after(piece, time.time()))
    target.held.append("1")
    assert prepare(flow, target, store).rows == piece.ends
    assert (target.calls, store.dropped) == ([], 1)


@pytest.mark.parametrize("cut", ["", "made ready", "bounds of the log"])
def test_a_fill_whose_target_was_lost_begins_anew(flow: Flow, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    """An index that was deleted, a cache that came back empty: what is made ready for it lacks the documents so far.
    Also where the start that has seen it was ``cut``, and the next one finds an empty target."""
    target, store = Target(), Store()

    def begin() -> FillState:
        monkeypatch.setattr(start, "open_sink", lambda _config: target)
        monkeypatch.setattr(start, "open_store", lambda *_: store)
        monkeypatch.setattr(start, "JoinedQuery", lambda *_: None)
        start.start_joined(cast(Any, None), flow)
        found = load(flow.folder)
        assert found is not None
        return found

    first = begin()
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, first.after(piece, time.time()))
    target.calls.clear()
    target.held.append("1")
    assert begin().rows == piece.ends, "it goes on"

    target.held.clear()
    target.is_there = False
    setup = target.setup

    def die(*_: Any) -> Any:
        setup()
        raise KafkaUnavailable("away")

    if cut:
        with monkeypatch.context() as once, pytest.raises(KafkaUnavailable):
            where: tuple[object, str] = (target, "setup") if cut == "made ready" else (fill, "_begin")
            once.setattr(*where, die)
            begin()
        assert target.is_there and not target.held
    again = begin()
    assert (again.rows, again.slices) == ({}, 1) and again.attempt != first.attempt
    assert target.calls[-2:] == ["empty", "setup"]


def test_a_new_flow_refuses_a_target_that_holds_something(flow: Flow) -> None:
    with pytest.raises(StateError, match="holds rows"):
        prepare(flow, Target("1"), Store())


def test_a_table_with_rows_is_refused_before_it_is_made_ready(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was claimed, and had lost the columns that the view lacks, when it was refused."""
    target = Target("1")
    target.is_there = True
    monkeypatch.setattr(start, "open_store", lambda *_: Store())
    with pytest.raises(StateError, match="holds rows"):
        start.start_joined(cast(Any, None), flow, lambda *_: cast(Any, target))
    assert (target.calls, target.held) == ([], ["1"])


def test_fault_37_a_row_store_restarted_during_a_fill_begins_it_anew(flow: Flow) -> None:
    target, store = Target(), Store()
    first = prepare(flow, target, store)
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, first.after(piece, time.time()))
    target.held, store.run = ["1"], "two"
    flow.checkpoint.mkdir()
    again = prepare(flow, target, store)
    assert (again.rows, again.server, again.slices) == ({}, "two", 1)
    assert again.attempt != first.attempt
    assert (target.calls, target.held, store.dropped) == (["empty", "setup"], [], 2)
    assert not flow.checkpoint.exists()


def test_a_fill_goes_on_when_its_row_store_has_got_a_node(flow: Flow) -> None:
    target, store = Target(), Store()
    store.run = "A1 B1"
    first = prepare(flow, target, store)
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, first.after(piece, time.time()))
    store.run = "A1 B1 C1"
    again = prepare(flow, target, store)
    assert (again.rows, again.server, target.calls) == (piece.ends, "A1 B1 C1", [])
    running = fill.Fill(cast(Any, None), flow, threading.Event())
    store.run = "A1 B1 C1 D1"
    running._same_server(cast(Any, store))
    assert running.state.server == "A1 B1 C1 D1"
    store.run = "A1 B1 C2 D1"
    with pytest.raises(SinkUnavailable, match="was restarted while"):
        running._same_server(cast(Any, store))


def test_a_fill_over_a_store_that_was_emptied_meanwhile_begins_anew(flow: Flow) -> None:
    target, store = Target(), Store()
    first = prepare(flow, target, store)
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, first.after(piece, time.time()))
    store.servers.flush(0)  # the same run of the server
    assert prepare(flow, target, store).rows == {}
    assert target.calls == ["empty", "setup"]


@pytest.mark.parametrize("newest", [8 * 86400, 60], ids=["cut", "slow"])
def test_a_fill_begun_longer_ago_than_deletes_are_remembered_begins_anew(flow: Flow, newest: float) -> None:
    """Also one whose newest slice is young: what an early slice has read may have been deleted just after it."""
    target, store = Target(), Store()
    first = prepare(flow, target, store)
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, replace(first, begun=time.time() - 8 * 86400).after(piece, time.time() - newest))
    assert prepare(flow, target, store).rows == {}
    assert target.calls == ["empty", "setup"]


@pytest.mark.parametrize(("ahead", "anew"), [(3.0, False), (10 * 86400, True)])
def test_a_fill_begun_under_a_clock_that_was_ahead_begins_anew_once_that_is_right(
    flow: Flow, ahead: float, anew: bool
) -> None:
    """It stayed young for as long as the clock had been ahead, and rows that were deleted meanwhile stayed for good."""
    target, store = Target(), Store()
    first = prepare(flow, target, store)
    piece = first.next(10)
    assert piece is not None
    save(flow.folder, replace(first, begun=time.time() + ahead).after(piece, time.time()))
    vigil = Vigil(flow)
    assert vigil.late(None, filling=True) == anew, "it is ended while it runs"
    assert (unread_since(flow.folder) == LONG_AGO) == anew
    assert (prepare(flow, target, store).rows == {}) == anew
    vigil.reread(filling=True)
    assert not vigil.late(None, filling=True) and target.calls == ["empty", "setup"] * anew


def test_a_fill_of_an_earlier_release_that_was_cut_begins_anew(flow: Flow) -> None:
    target, store = Target("1"), Store()
    (flow.folder / "phase.json").write_text('{"phase": "documents"}')
    flow.checkpoint.mkdir(parents=True)
    (flow.checkpoint / "metadata").write_text("{}")
    assert prepare(flow, target, store).rows == {}
    assert target.calls == ["empty", "setup"]


def test_a_living_target_is_not_emptied_because_a_file_is_gone(flow: Flow) -> None:
    target, store = Target("1"), Store()
    flow.checkpoint.mkdir(parents=True)
    (flow.checkpoint / "metadata").write_text("{}")
    with pytest.raises(StateError, match=r"phase\.json is gone"):
        prepare(flow, target, store)
    assert target.calls == []


@pytest.mark.parametrize("lost", ["ends", "attempt", "server"])
def test_a_place_that_lacks_anything_is_no_fill_at_its_beginning(tmp_path: Path, lost: str) -> None:
    """Each reader knew the note by its own words, and took one that looked otherwise for none."""
    save(tmp_path, state())
    whole = json.loads((tmp_path / "fill.json").read_text())
    (tmp_path / "fill.json").write_text(json.dumps({name: value for name, value in whole.items() if name != lost}))
    with pytest.raises(StateError, match=r"fill\.json can't be read"):
        load(tmp_path)
    write_live(tmp_path)
    assert committed_offsets(tmp_path / "checkpoint") == (-1, {})  # who shows it falls over nothing


def test_a_flow_that_was_killed_as_it_went_live_is_live(flow: Flow) -> None:
    first = prepare(flow, Target(), Store())
    assert not query.went_live(flow)
    while (piece := first.next(1000)) is not None:
        first = first.after(piece, time.time())
    save(flow.folder, first)
    assert not query.went_live(flow)  # its query has committed nothing: where the fill ended is where it begins
    for folder in ("offsets", "commits"):
        (flow.checkpoint / folder).mkdir(parents=True)
    (flow.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"root":{"0":100,"1":60}}')
    (flow.checkpoint / "commits" / "0").write_text("v1\n{}")
    assert query.went_live(flow)
    assert not query.is_filling(flow)


# -- the mark -------------------------------------------------------------------------------------------------


def test_a_store_without_the_mark_of_its_fill_is_refused(flow: Flow) -> None:
    store = Store()
    store.open("a fill")
    with pytest.raises(StateError, match="none of the rows"):
        health.check(store, flow, "a fill")
    store.note(filled=True)
    health.remember_filled(flow, "one")
    assert health.check(store, flow, "a fill") == 0
    store.run = "two"
    assert health.check(store, flow, "a fill") == 0  # restarted, and it still has the newest write: nothing was lost
    with pytest.raises(StateError, match="none of the rows"):
        health.check(store, flow, "another fill")
    store.servers.flush(0)
    with pytest.raises(StateError, match="none of the rows"):
        health.check(store, flow, "a fill")


def test_batches_that_a_restarted_server_lost_are_replayed_from_where_the_fill_ended(flow: Flow) -> None:
    store = Store()
    store.open("a fill")
    store.note(filled=True)
    health.remember_filled(flow, "one")
    before = store.servers.copy(0)
    for folder in ("offsets", "commits"):
        (flow.checkpoint / folder).mkdir(parents=True)
        for batch in range(3):
            planned = json.dumps({"batchTimestampMs": int(time.time() * 1000)})
            (flow.checkpoint / folder / str(batch)).write_text(f'v1\n{planned}\n{{"root":{{"0":1}}}}')
    health.note(store, flow)
    store.servers.restart(0, before)
    store.run = "two"
    assert health.check(store, flow, "a fill") == 1
    assert list((flow.checkpoint / "commits").iterdir()) == []
    assert [path.name for path in (flow.checkpoint / "offsets").iterdir()] == ["0"]


# -- behind a task's back -------------------------------------------------------------------------------------


def test_calls_run_in_order_and_only_so_many_wait() -> None:
    behind: Behind[int] = Behind(ahead=1)
    gate, started = threading.Event(), threading.Event()
    order: list[int] = []

    def call(number: int) -> int:
        started.set()
        gate.wait(10)
        order.append(number)
        return number

    behind.submit(lambda: call(0))
    started.wait(10)
    behind.submit(lambda: call(1))  # waits; a third would have to wait for room
    third = threading.Thread(target=lambda: behind.submit(lambda: call(2)))
    third.start()
    third.join(0.2)
    assert third.is_alive()
    assert behind.ended() == []
    gate.set()
    third.join(10)
    assert behind.finish() == [0, 1, 2]
    assert order == [0, 1, 2]
    assert behind.finish() == []


def test_after_an_error_nothing_more_is_called() -> None:
    behind: Behind[None] = Behind()
    called: list[int] = []

    def fail() -> None:
        raise SinkUnavailable("away")

    behind.submit(fail)
    with pytest.raises(SinkUnavailable):
        for _ in range(100):
            behind.submit(lambda: called.append(1))
            time.sleep(0.01)
    with pytest.raises(SinkUnavailable):
        behind.finish()
    assert called == []
    behind.abandon()


def test_what_waits_is_left_when_a_task_fails() -> None:
    behind: Behind[None] = Behind()
    gate, started = threading.Event(), threading.Event()
    called: list[int] = []

    def wait() -> None:
        started.set()
        gate.wait(10)

    behind.submit(wait)
    started.wait(10)
    behind.submit(lambda: called.append(1))
    thread = behind._thread
    behind.abandon()  # does not wait for the call that runs
    gate.set()
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    assert called == []


def test_a_new_row_that_the_views_condition_leaves_out_is_not_deleted() -> None:
    def row(key: str, offset: int, *, there: bool) -> dict[str, Any]:
        own = {"view": "v", "id": key, "version": 1, "document": b"{}", "topic": "", "partition": -1, "offset": offset}
        return {**own, "ts_ms": 0, WHERE: there, FAILED: None}

    batch = pa.RecordBatch.from_pylist(
        [row("new", NEW, there=False), row("known", -1, there=False), row("in", NEW, there=True)]
    )
    table = trees.table("t", "id", id="int4")
    spec = FlowSpec("s", {"v": replace(View.identity(table), name="v", where="id > 1")}, {}, {}, {}, {})
    entries = from_arrow(spec, batch).entries
    assert [(entry.id, entry.document) for entry in entries] == [("known", None), ("in", b"{}")]
