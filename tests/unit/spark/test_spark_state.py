"""The generation's folder: identity, lock, and a checkpoint looked over before Spark sees it."""

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import Fenced, StateError
from spark.disk.applied import applied_offsets, forget_applied
from spark.disk.checkpoint import batch_offsets, check_checkpoint, committed_offsets, trim
from spark.disk.filling import FillState, save, write_live
from spark.disk.state import OWN, Generation, Identity
from spark.disk.status import FlowStatus

IDENTITY = Identity("7123", 1, "shop", "headwater_shop", {"shop.public.orders": "AAA"}, "abc")


def make_checkpoint(folder: Path, offsets: int, commits: int) -> Path:
    checkpoint = folder / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"x"}')
    for number in range(offsets):
        text = "v1\n{}\n" + json.dumps({"t": {"0": 10 * (number + 1), "1": 5}})
        (checkpoint / "offsets" / str(number)).write_text(text)
    for number in range(commits):
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    return checkpoint


def test_the_flow_of_a_table_that_was_let_go_does_not_stay_failed(tmp_path: Path) -> None:
    generation = Generation(tmp_path, "shop", "lake")
    numbers = dict.fromkeys(("pid", "batch_id", "records", "written", "deleted", "stale", "rejected"), 0)
    more = dict.fromkeys(("position", "source_ts_ms", "batch_ms"), 0) | {"last_error": "was dropped", "topics": []}
    for name in ("kept", "gone"):
        FlowStatus(flow=f"lake/{name}", state="failed", at=1.0, **numbers, **more).write(generation.flow_folder(name))
    generation.end_others(["kept"])
    states = {name: FlowStatus.read(generation.flow_folder(name)) for name in ("kept", "gone")}
    assert {name: (s.state, s.last_error) for name, s in states.items() if s} == {
        "kept": ("failed", "was dropped"),
        "gone": ("finished", None),
    }


def test_what_was_applied_is_the_furthest_that_anybody_tells(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, offsets=2, commits=2)
    assert applied_offsets(tmp_path) == {"t": {0: 20, 1: 5}}
    (tmp_path / "applied.json").write_text('{"batch": 7, "offsets": {"t": {"0": 31, "1": 4}, "u": {"0": 2}}}')
    assert applied_offsets(tmp_path) == {"t": {0: 31, 1: 5}, "u": {0: 2}}
    (tmp_path / "applied.json").write_text('{"batch": 7, "off')
    assert applied_offsets(tmp_path) == {"t": {0: 20, 1: 5}}
    forget_applied(tmp_path)
    assert applied_offsets(tmp_path / "never run") == {}


def test_the_same_identity_may_start_again(tmp_path: Path) -> None:
    for _ in range(2):
        Generation(tmp_path, "shop", "search").bind(IDENTITY)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"system_identifier": "999"}, "another Postgres cluster"),
        ({"timeline": 2}, "failed over"),
        ({"database": "other"}, "another database"),
        ({"slot": "other"}, "another replication slot"),
        ({"spec_hash": "def"}, "changed in the pipeline file"),
        ({"topic_ids": {"shop.public.orders": "BBB"}}, "deleted and created again"),
    ],
)
def test_a_changed_identity_is_refused_with_the_way_out(tmp_path: Path, change: dict[str, object], named: str) -> None:
    generation = Generation(tmp_path, "shop", "search")
    generation.bind(IDENTITY)
    with pytest.raises(StateError, match=named) as raised:
        generation.bind(replace(IDENTITY, **change))  # type: ignore[arg-type]
    anew = change.keys() & {"system_identifier", "timeline", "database", "slot"}
    assert ("headwater recapture FILE" if anew else "headwater rebuild FILE search --auto") in raised.value.fix


def test_an_unreadable_identity_is_refused(tmp_path: Path) -> None:
    generation = Generation(tmp_path, "shop", "search")
    generation.bind(IDENTITY)
    (generation.folder / "identity.json").write_text("{")
    with pytest.raises(StateError, match="can't be read"):
        generation.bind(IDENTITY)


@pytest.mark.parametrize("name", [*OWN, "main", "orders"])
def test_a_flow_of_any_name_has_a_folder_beside_what_a_generation_keeps(tmp_path: Path, name: str) -> None:
    """A warehouse's table called lock had the folder where the lease has its file, and was tried for ever."""
    generation = Generation(tmp_path, "shop", "lake")
    generation.lock()
    generation.flow_folder(name).mkdir()
    assert generation.flows() == [name]
    assert (generation.flow_folder(name).name == name) == (name not in OWN)  # nobody's place in the log has moved
    generation.unlock()


def test_no_name_of_a_generation_s_own_file_is_left_that_a_view_may_have(tmp_path: Path) -> None:
    generation = Generation(tmp_path, "shop", "lake")
    generation.bind(IDENTITY)
    generation.lock()
    generation.note_views(["orders"])
    generation.unlock()
    assert {path.name for path in generation.folder.iterdir() if "." not in path.name} == set(OWN)


def test_only_one_process_may_hold_a_generation(tmp_path: Path) -> None:
    first, second = (Generation(tmp_path, "shop", "search") for _ in range(2))
    first.lock()
    with pytest.raises(StateError, match="already run by process"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_who_waited_while_a_folder_was_discarded_has_the_lock_that_others_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His was of a file that was gone: a third could have taken the lease beside him."""
    first, second, locked = Generation(tmp_path, "shop", "search"), Generation(tmp_path, "shop", "search"), list[Any]()
    first.lock()
    (first.folder / "main").mkdir()
    waiting = threading.Thread(target=lambda: locked.append(second.lease._alone()), daemon=True)
    gone, remove = list[Path](), shutil.rmtree

    def removed(path: Path) -> None:
        waiting.start()
        waiting.join(0.2)
        assert not locked, "nobody takes it while it is being removed"
        gone.append(path)
        remove(path)

    monkeypatch.setattr("spark.disk.lease.shutil.rmtree", removed)
    first.discard()
    waiting.join(10)
    assert gone == [first.folder / "main"] and not gone[0].exists()
    with locked[0] as lock:
        assert os.path.samestat(os.fstat(lock.fileno()), (second.folder / "lock").stat())
    second.lock()
    second.discard()
    assert not second.folder.exists()


def test_what_another_has_taken_over_is_not_discarded(tmp_path: Path) -> None:
    first, second = (Generation(tmp_path, "shop", "search") for _ in range(2))
    first.lock()
    holder = first.lease.holder()
    assert holder is not None
    first.lease._write(replace(holder, pid=0))  # as good as silent for longer than a lease lasts
    second.lock()
    with pytest.raises(Fenced):
        first.discard()
    assert second.lease.busy()
    second.unlock()


def test_a_filled_flow_is_where_its_fill_ended_until_its_first_batch(tmp_path: Path) -> None:
    save(tmp_path, FillState("s", "a", "t", True, {"t": {0: 0}}, {"t": {0: 7}}))
    assert committed_offsets(tmp_path / "checkpoint") == (-1, {})
    write_live(tmp_path)
    assert committed_offsets(tmp_path / "checkpoint") == (-1, {"t": {0: 7}})
    assert committed_offsets(make_checkpoint(tmp_path, 1, 1)) == (0, {"t": {0: 10, 1: 5}})


def test_a_sound_checkpoint_passes_and_a_new_one_too(tmp_path: Path) -> None:
    check_checkpoint(tmp_path / "nothing", "fix")
    check_checkpoint(make_checkpoint(tmp_path, 3, 2), "fix")


def test_batches_whose_commits_were_removed_are_all_replayed(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 6, 3)  # Spark would go on with batch 5, and pass 3 and 4 over
    trim(checkpoint)
    assert sorted(path.name for path in (checkpoint / "offsets").iterdir()) == ["0", "1", "2", "3"]
    for number in (0, 1):
        (checkpoint / "offsets" / str(number)).unlink()
    for number in (0, 1, 2):
        (checkpoint / "commits" / str(number)).unlink()
    with pytest.raises(StateError, match="batches before 2 are not committed"):
        trim(checkpoint, "fix")


def test_fault_31_missing_metadata_is_refused(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 2, 2)
    (checkpoint / "metadata").unlink()
    with pytest.raises(StateError, match="metadata is missing"):
        check_checkpoint(checkpoint, "fix")


def test_fault_32_an_empty_offset_file_is_named(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 2, 1)
    (checkpoint / "offsets" / "1").write_text("")
    with pytest.raises(StateError, match="offsets/1 is empty"):
        check_checkpoint(checkpoint, "fix")


def test_fault_32_who_shows_how_far_a_flow_is_does_not_fall_over_an_empty_offset_file(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 2, 2)
    for damaged in ("", "v1\n{}\n{"):
        (checkpoint / "offsets" / "1").write_text(damaged)
        assert committed_offsets(checkpoint) == (1, {})


def test_fault_32_a_gap_in_the_offsets_is_named(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 4, 4)
    (checkpoint / "offsets" / "2").unlink()
    with pytest.raises(StateError, match="has a gap"):
        check_checkpoint(checkpoint, "fix")


def test_a_commit_without_its_offsets_is_named(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 3, 3)
    (checkpoint / "offsets" / "2").unlink()
    with pytest.raises(StateError, match="batch 2 is committed"):
        check_checkpoint(checkpoint, "fix")


def test_offsets_are_read_back(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, 3, 2)
    assert committed_offsets(checkpoint) == (1, {"t": {0: 20, 1: 5}})
    assert batch_offsets(checkpoint, 2) == {"t": {0: 30, 1: 5}}
    assert committed_offsets(tmp_path / "nothing") == (-1, {})
