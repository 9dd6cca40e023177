"""A row store that has lost writes is found and healed, one that was wiped is refused."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import NewerFormat, SinkUnavailable, StateError
from cdc.join.layout import Layout
from cdc.join.tree import Node, Order
from sinks.rowstore.memory.nodes import Servers
from sinks.rowstore.memory.store import MemoryStore
from spark.disk.checkpoint import committed_offsets, planned, trim
from spark.flow import Flow, Reading
from spark.join import health
from spark.reading.spec import FlowSpec
from tests.support.kept import Kept

IDENTITY = "a fill"


class Restarting(MemoryStore):
    """A store whose server says which run it is."""

    run = "one"

    def __init__(self) -> None:
        super().__init__(token=1)
        self.open(IDENTITY)
        self.note(filled=True)

    @property
    def batch(self) -> int:
        """What the newest note says."""
        return self.noted().batch

    def goes_back(self, batch: int) -> None:
        """It holds what it held then."""
        self.servers.nodes[0]["o"]["batch"] = batch

    def server(self) -> str:
        """As the test says."""
        return self.run


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    spec = FlowSpec("search", {}, {}, {}, {}, {})
    made = Flow("card", spec, Reading("", cast(Any, {}), None), tmp_path)
    for folder in ("offsets", "commits"):
        (made.checkpoint / folder).mkdir(parents=True)
    return made


def plan(flow: Flow, batch: int, age: float = 0.0) -> None:
    at = json.dumps({"batchTimestampMs": int((time.time() - age) * 1000)})
    (flow.checkpoint / "offsets" / str(batch)).write_text(f'v1\n{at}\n{{"t":{{"0":{batch}}}}}')


def commit(flow: Flow, *batches: int, age: float = 0.0) -> None:
    for batch in batches:
        plan(flow, batch, age)
        (flow.checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_all_is_well(flow: Flow) -> None:
    store = Restarting()
    assert health.check(store, flow, IDENTITY) == 0
    commit(flow, 0, 1, 2)
    health.note(store, flow)
    assert store.batch == 2
    assert health.check(store, flow, IDENTITY) == 0
    commit(flow, 3)  # committed and not yet noted: the server was never away, so it has it
    assert health.check(store, flow, IDENTITY) == 0
    assert committed_offsets(flow.checkpoint)[0] == 3


def test_fault_37_a_restarted_server_gets_again_what_it_may_have_lost(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1, 2)
    health.note(store, flow)
    commit(flow, 3, 4)
    store.run = "two"
    with pytest.raises(SinkUnavailable, match="was restarted"):
        health.note(store, flow)
    assert health.check(store, flow, IDENTITY) == 1  # versions from now on beat every old one
    assert committed_offsets(flow.checkpoint)[0] == 2
    assert sorted(path.name for path in (flow.checkpoint / "offsets").iterdir()) == ["0", "1", "2", "3"]
    health.note(store, flow)
    assert health.check(store, flow, IDENTITY) == 1


def test_fault_37_healing_that_was_killed_half_way_is_done_again(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1, 2)
    health.note(store, flow)
    commit(flow, 3, 4, 5)
    store.run = "two"

    def killed(_checkpoint: Path, batch: int) -> bool:
        for number in range(5, batch, -1):
            (flow.checkpoint / "commits" / str(number)).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(health, "rewind", killed)
        with pytest.raises(KeyboardInterrupt):
            health.check(store, flow, IDENTITY)
    flow_checked = health.check(store, flow, IDENTITY)
    trim(flow.checkpoint)  # as each start of a flow does
    assert flow_checked >= 1
    assert committed_offsets(flow.checkpoint)[0] == 2
    assert planned(flow.checkpoint) == 3  # and not 5, of which Spark would replay that alone


def test_fault_37_a_batch_under_way_when_the_server_went_down_gets_a_new_epoch(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1)
    health.note(store, flow)
    plan(flow, 2)  # begun, not committed
    store.run = "two"
    assert health.check(store, flow, IDENTITY) == 1
    assert committed_offsets(flow.checkpoint)[0] == 1


def test_fault_37_a_note_that_only_the_new_server_has_says_nothing_of_the_rows(flow: Flow) -> None:
    class Dying(Restarting):
        """Goes down between the question who it is and the note."""

        def note(self, batch: int | None = None, *, epoch: int = 0, filled: bool = False) -> None:
            """Note, as the next run."""
            if batch is not None:
                self.run = "two"
            super().note(batch, epoch=epoch, filled=filled)

    store = Dying()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1)
    with pytest.raises(SinkUnavailable, match="just now"):
        health.note(store, flow)
    assert health.check(store, flow, IDENTITY) == 1
    assert committed_offsets(flow.checkpoint)[0] == -1
    assert planned(flow.checkpoint) == 0


def test_a_clean_restart_costs_nothing(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1)
    health.note(store, flow)
    store.run = "two"
    assert health.check(store, flow, IDENTITY) == 0
    assert committed_offsets(flow.checkpoint)[0] == 1


def test_fault_37_a_store_restored_from_a_copy_is_wound_back_to(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, *range(6))
    health.note(store, flow)
    store.goes_back(2)
    store.run = "restored"
    assert health.check(store, flow, IDENTITY) == 1
    assert committed_offsets(flow.checkpoint)[0] == 2


def test_fault_37_an_older_copy_than_the_checkpoint_remembers_is_refused(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, *range(10, 16))
    health.note(store, flow)
    store.goes_back(2)
    with pytest.raises(StateError, match="13 batches behind its checkpoint"):
        health.check(store, flow, IDENTITY)
    assert committed_offsets(flow.checkpoint)[0] == 15


def test_fault_37_a_wiped_store_is_refused_with_the_way_out(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0)
    health.note(store, flow)
    store.servers.flush(0)
    with pytest.raises(StateError) as caught:
        health.check(store, flow, IDENTITY)
    assert "none of the rows" in str(caught.value)
    assert "headwater rebuild FILE search --auto" in str(caught.value)
    assert json.loads((flow.folder / "rowstore.json").read_text())["batch"] == 0


def test_fault_37_a_node_that_may_have_gone_back_alone_is_refused(flow: Flow) -> None:
    store = Restarting()
    store.run = "A1 B1"
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1)
    health.note(store, flow)
    store.run = "A1 B2"
    assert health.check(store, flow, IDENTITY) == 0  # nothing was under way
    commit(flow, 2)
    store.run = "A2 B2"
    with pytest.raises(StateError, match="in the middle of a batch") as caught:
        health.check(store, flow, IDENTITY)
    assert "headwater rebuild FILE search --auto" in str(caught.value)
    assert committed_offsets(flow.checkpoint)[0] == 2


def test_a_node_that_is_added_to_a_cluster_has_lost_nothing(flow: Flow) -> None:
    store = Restarting()
    store.run = "A1 B1"
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1)
    store.run = "A1 B1 C1"
    health.note(store, flow)  # under a flow that runs
    assert health.known(flow).server == "A1 B1 C1"
    commit(flow, 2)
    store.run = "0 A1 B1 C1"
    assert health.check(store, flow, IDENTITY) == 0  # and while none did
    assert (committed_offsets(flow.checkpoint)[0], health.known(flow).server) == (2, "0 A1 B1 C1")


def test_fault_37_a_node_that_was_added_is_missed_from_the_first_look_on(flow: Flow) -> None:
    store = Restarting()
    store.run = "A1 B1"
    health.check(store, flow, IDENTITY)
    store.run = "A1 B1 C1"
    health.note(store, flow)
    commit(flow, 0)
    store.run = "A1 B1 C2"
    with pytest.raises(SinkUnavailable, match="was restarted"):
        health.note(store, flow)
    with pytest.raises(StateError, match="in the middle of a batch"):
        health.check(store, flow, IDENTITY)


def test_fault_37_a_loss_that_is_older_than_the_log_keeps_everything_is_refused(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0)
    health.note(store, flow)
    commit(flow, 1)
    store.run = "two"
    os.utime(flow.folder / "rowstore.json", (time.time() - 4000, time.time() - 4000))
    with pytest.raises(StateError, match=r"1\.1 h ago, and the log keeps every record for 1\.0 h only"):
        health.check(store, flow, IDENTITY, 3600)
    assert health.check(store, flow, IDENTITY, 7200) == 1


@pytest.mark.parametrize("run", ["two", "one"])  # it came back with its files, or by way of a replica
def test_fault_37_an_older_state_than_the_log_keeps_everything_is_refused(flow: Flow, run: str) -> None:
    """It was away for a second, and came back as it was hours ago: what compaction has removed since was not replayed,
    and a former parent's document showed for ever what was no longer its own."""
    store = Restarting()
    health.check(store, flow, IDENTITY)
    for batch in range(50):  # one each ten minutes
        commit(flow, batch, age=(50 - batch) * 600)
    health.note(store, flow)
    store.goes_back(10)
    store.run = run
    for _ in range(2):
        with pytest.raises(StateError, match=r"begins with batch 11, of 6\.5 h ago, .* for 1\.0 h only") as caught:
            health.check(store, flow, IDENTITY, 3600)
    assert "headwater rebuild FILE search --auto" in str(caught.value)
    assert (committed_offsets(flow.checkpoint)[0], health.known(flow).epoch) == (49, 0)
    store.goes_back(44)
    assert health.check(store, flow, IDENTITY, 3600) == 1
    assert committed_offsets(flow.checkpoint)[0] == 44


def test_fault_37_a_server_that_is_restarted_after_days_of_rest_costs_nothing(flow: Flow) -> None:
    store, days = Restarting(), 3 * 86400.0
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1, age=days)
    health.note(store, flow)
    store.run = "two"
    assert health.check(store, flow, IDENTITY, 3600) == 0  # it has all that there was
    commit(flow, 2)
    plan(flow, 3)
    store.run = "three"
    assert health.check(store, flow, IDENTITY, 3600) == 1  # what is replayed is young, whatever was before it
    assert committed_offsets(flow.checkpoint)[0] == 1


def test_fault_37_a_batch_that_waits_for_longer_than_the_log_keeps_everything_is_not_replayed(flow: Flow) -> None:
    """Nobody knows which of its rows the server still has: its newest files may be of any moment since it began."""
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0)
    health.note(store, flow)
    plan(flow, 1, age=4000)
    assert health.check(store, flow, IDENTITY, 3600) == 0
    store.run = "two"
    with pytest.raises(StateError, match=r"begins with batch 1, of 1\.1 h ago"):
        health.check(store, flow, IDENTITY, 3600)


@pytest.mark.parametrize("says", ["{}", "[]", "?", '{"batchTimestampMs": 9000000000000}'])  # the last is still to come
def test_fault_37_of_what_nobody_knows_how_old_it_is_nothing_is_replayed(flow: Flow, says: str) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1)
    health.note(store, flow)
    (flow.checkpoint / "offsets" / "1").write_text(f'v1\n{says}\n{{"t":{{"0":1}}}}')
    store.goes_back(0)
    store.run = "two"
    with pytest.raises(StateError, match="nobody knows how long ago batch 1, which it may lack, was begun"):
        health.check(store, flow, IDENTITY, 7200)


def test_fault_37_when_the_store_was_seen_last_is_never_still_to_come(flow: Flow) -> None:
    """Under a clock that was ahead: a loss was younger than nothing, and was replayed from what compaction had left."""
    store, path = Restarting(), flow.folder / "rowstore.json"
    health.check(store, flow, IDENTITY)
    commit(flow, 0)
    health.note(store, flow)
    ahead = time.time() + 4000
    os.utime(path, (ahead, ahead))
    health.note(store, flow)
    assert abs(path.stat().st_mtime - time.time()) < 600
    os.utime(path, (ahead, ahead))
    commit(flow, 1)
    store.run = "two"
    with pytest.raises(StateError, match="nobody knows how long ago that was, for the clock was put back since"):
        health.check(store, flow, IDENTITY, 7200)
    just = time.time() + 3  # a server that keeps the folder has a clock of its own
    os.utime(path, (just, just))
    assert health.check(store, flow, IDENTITY, 7200) == 1


def test_fault_37_a_store_that_was_emptied_while_nothing_happens_is_noticed(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0)
    health.note(store, flow)
    store.servers.flush(0)
    with pytest.raises(SinkUnavailable, match="lost its marks"):
        health.note(store, flow)


def test_fault_37_a_store_that_goes_back_in_the_same_run_is_noticed_before_it_is_told_more(flow: Flow) -> None:
    """A replica was in its place between two looks, and gave it what it had: the next note hid what was lost."""
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, *range(5))
    health.note(store, flow)
    store.goes_back(2)
    commit(flow, 5)
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="has gone back"):
            health.note(store, flow)
    assert store.batch == 2
    assert health.check(store, flow, IDENTITY) == 1
    assert committed_offsets(flow.checkpoint)[0] == 2
    health.note(store, flow)


def test_a_store_that_counts_the_passes_of_a_fill_has_not_gone_back(flow: Flow) -> None:
    store, counted = Restarting(), replace(flow, spec=replace(flow.spec, batches_before=7))
    health.check(store, counted, IDENTITY)
    health.note(store, counted)  # nothing is committed yet
    commit(flow, 0)
    for _ in range(2):
        health.note(store, counted)
    assert store.batch == 7


def test_fault_37_of_several_nodes_the_one_that_remembers_least_counts() -> None:
    store = MemoryStore(servers=Servers(3), token=1)
    store.open(IDENTITY)
    store.note(4, filled=True)
    before = store.servers.copy(1)
    store.note(7, epoch=1)
    assert store.noted().batch == 7
    store.servers.restart(1, before)
    assert store.noted()[2:4] == (4, 0)
    store.servers.flush(2)
    assert store.noted().identity == ""


def test_fault_37_a_copy_of_before_a_loss_was_healed_is_refused(flow: Flow) -> None:
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, 0, 1, 2)
    health.note(store, flow)
    copy = store.servers.copy(0)
    store.run = "two"
    store.goes_back(1)
    assert health.check(store, flow, IDENTITY) == 1
    commit(flow, 2, 3)  # cut otherwise than the first time
    health.note(store, flow)
    store.servers.restart(0, copy)
    store.run = "three"
    with pytest.raises(StateError, match="a copy of before it was healed"):
        health.check(store, flow, IDENTITY)


def _copied(flow: Flow, store: Restarting, *, to: int) -> None:
    """The state folder as it was at batch 5, put back after the flow has come further."""
    health.check(store, flow, IDENTITY)
    commit(flow, *range(6))
    health.note(store, flow)
    copy = (flow.folder / "rowstore.json").read_text()
    commit(flow, *range(6, to + 1))
    health.note(store, flow)
    (flow.folder / "rowstore.json").write_text(copy)
    for folder in ("offsets", "commits"):
        for number in range(6, to + 1):
            (flow.checkpoint / folder / str(number)).unlink()


def test_a_loss_after_an_older_state_folder_was_put_back_is_replayed(flow: Flow) -> None:
    """The store said 20, and was believed: what it lost of the batches that were cut anew was never replayed."""
    store = Restarting()
    _copied(flow, store, to=20)
    assert health.check(store, flow, IDENTITY) == 1  # a copy of the store of before says other batches
    assert (store.batch, store.noted().epoch, committed_offsets(flow.checkpoint)[0]) == (5, 1, 5)
    assert health.check(store, flow, IDENTITY) == 1
    commit(flow, *range(6, 10))
    health.note(store, flow)
    assert store.batch == 9
    store.goes_back(7)
    store.run = "two"
    assert health.check(store, flow, IDENTITY) == 2
    assert committed_offsets(flow.checkpoint)[0] == 7


def test_a_store_that_was_healed_since_an_older_copy_goes_on_with_a_newer_epoch(flow: Flow) -> None:
    """With the copy's epoch new versions of documents would be less than those that are written."""
    store = Restarting()
    _copied(flow, store, to=20)
    store.note(20, epoch=4)
    assert health.check(store, flow, IDENTITY) == 5
    assert (health.known(flow).epoch, health.known(flow).healed, store.batch) == (5, 5, 5)


def test_a_mark_that_is_lowered_is_so_before_the_disk_says_it(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round a kill in between left a store that looks like a copy of before it was healed."""
    store = Restarting()
    _copied(flow, store, to=20)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(health, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            health.check(store, flow, IDENTITY)
    assert (store.batch, health.known(flow).epoch) == (5, 0)
    assert health.check(store, flow, IDENTITY) == 1


def test_a_note_of_a_server_that_went_down_is_taken_back_with_what_it_says(flow: Flow) -> None:
    """It stood at 5 with batches 4 and 5 cut anew; the next look took it for a copy of before, and refused it."""
    store = Restarting()
    health.check(store, flow, IDENTITY)
    commit(flow, *range(4))
    health.note(store, flow)
    commit(flow, 4, 5)
    store.note(5)  # and the disk was not told any more
    store.run = "two"
    for _ in range(2):
        assert health.check(store, flow, IDENTITY) == 1
        assert (store.batch, committed_offsets(flow.checkpoint)[0]) == (3, 3)


def test_what_an_older_headwater_has_left_is_refused_by_name(flow: Flow) -> None:
    store = Kept("state_0_1", "first").row_store("search", "card")
    with pytest.raises(StateError, match="written by an older Headwater") as caught:
        health.check(store, flow, IDENTITY)
    assert "headwater rebuild FILE search --auto" in str(caught.value)
    newer = Restarting()
    newer.servers.nodes[0]["o"]["format"] = 3
    with pytest.raises(NewerFormat, match=r"the row store of .* was written by a newer Headwater") as refused:
        health.check(newer, flow, IDENTITY)
    assert refused.value.code == "newer-format"


def _layout(*columns: str) -> Layout:
    table = Table("public", "t", tuple(Column(name, "integer", "int4") for name in columns), ("id",))
    return Layout.of(Node("v", "root", table, columns=tuple((name, name) for name in columns)))


def test_fault_25_rows_that_were_stored_with_other_columns_are_not_read_as_these(flow: Flow) -> None:
    health.check_layout(_layout("id", "a"), flow)
    health.check_layout(_layout("id", "a"), flow)
    with pytest.raises(StateError) as caught:
        health.check_layout(_layout("id", "a", "b"), flow)
    assert "stores other columns now of public.t" in str(caught.value)
    assert "headwater rebuild FILE search --auto" in str(caught.value)


def _limited(*names: str, limit: int | None = 1) -> Layout:
    """Of orders with the first of their lines; both columns of these may be called otherwise than they were."""
    was = ("order_id", "line")
    key = names or was
    lines = Table("public", "lines", tuple(Column(name, "integer", "int4") for name in key), key)
    if names:
        lines = replace(lines, renamed=tuple(zip(was, names, strict=True)))
    orders = Table("public", "orders", (Column("id", "integer", "int4"),), ("id",))
    kid = Node("lines", "child", lines, (("id", key[0]),), ((key[1], "line"),), limit=limit)
    return Layout.of(Node("v", "root", orders, columns=(("id", "id"),), children=(kid,)))


def test_a_row_store_of_before_shared_columns_were_passed_over_goes_on_by_what_it_was_filled_by(flow: Flow) -> None:
    layout, file = _limited(), flow.folder / "layout.json"
    before = layout.over("former").description()
    assert before["ordered"] == [[0, "public.lines", ["order_id", "order_id"]]]
    for names in (("order_id", "line"), ("of_order", "place"), ("line", "order_id")):  # the last have swapped names
        file.write_text(json.dumps(before))
        now = _limited(*names)
        for _ in range(2):
            assert health.arranged(now, flow) == "former"
            health.check_layout(now, flow)
            assert json.loads(file.read_text()) == now.over("former").description()
        assert [one.order for one in now.over(health.arranged(now, flow)).ordered] == [Order(names[0])]


def test_a_new_row_store_has_children_by_what_tells_them_apart(flow: Flow) -> None:
    layout = _limited()
    for _ in range(2):
        assert health.arranged(layout, flow) == "now"
        health.check_layout(layout, flow)
    assert json.loads((flow.folder / "layout.json").read_text())["ordered"][0][2] == ["order_id", "line"]
    renamed = _limited("of_order", "place")
    assert health.arranged(renamed, flow) == "now"
    health.check_layout(renamed, flow)


def test_where_no_children_are_limited_all_row_stores_are_alike(flow: Flow) -> None:
    layout = _limited(limit=None)
    health.check_layout(layout, flow)
    assert layout.over("former") == layout and health.arranged(layout, flow) == "now"


def test_a_row_store_without_arrangements_gets_none(flow: Flow) -> None:
    layout, file = _limited(), flow.folder / "layout.json"
    described = {part: said for part, said in layout.description().items() if part != "ordered"}
    file.write_text(json.dumps(described))
    assert health.arranged(layout, flow) == "none" and layout.over("none").ordered == ()
    health.check_layout(layout, flow)
    assert json.loads(file.read_text()) == described
