"""What is due to a warehouse's table, by what its metadata says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark.warehouse.marks import QUERY
from spark.warehouse.upkeep.plan import (
    DAY,
    EXPIRED_SHARE,
    FIRST_PAUSE,
    GRAVE,
    HOUR,
    LATER,
    LEAST_YOUNG_SECONDS,
    LONGEST_PAUSE,
    MANY_EXPIRED,
    MANY_FILES,
    MANY_MANIFESTS,
    MANY_YOUNG,
    RARE,
    RARE_REST,
    REST,
    Act,
    Memory,
    Policy,
    Signs,
    Snapshot,
    carried,
    due,
    expired,
    policy_of,
)
from spark.warehouse.upkeep.upkeep import insisting, is_conflict

NOW = 1_800_000_000.0
POLICY = Policy()
# A table that has nothing on it, whose orphans were looked for a moment ago.
CALM = Signs(files=3, delete_files=2, rows=1000, manifests=2, scoped=True, current=9, orphans_at=NOW)


def past(*ages: float, query: str | None = None) -> list[Snapshot]:
    """Snapshots of these ages (seconds), the oldest first; their ids count from 1."""
    marks = {} if query is None else {QUERY: query}
    return [Snapshot(number + 1, NOW - age, marks) for number, age in enumerate(ages)]


def test_nothing_is_due_to_a_calm_table_nor_where_it_is_off_nor_to_an_empty_one() -> None:
    assert due(CALM, Memory(), POLICY, NOW) is None
    many = replace(CALM, files=1000)
    assert due(many, Memory(), POLICY, NOW) is Act.COMPACT
    assert due(many, Memory(), Policy(on=False), NOW) is None
    assert due(Signs(files=1000), Memory(), POLICY, NOW) is None


def test_small_files_are_put_together_when_there_are_many_more_than_were_left() -> None:
    memory = Memory(files=500)
    assert due(replace(CALM, files=500 + MANY_FILES - 1), memory, POLICY, NOW) is None
    assert due(replace(CALM, files=500 + MANY_FILES), memory, POLICY, NOW) is Act.COMPACT


def test_deleted_rows_are_left_out_from_a_share_on_and_what_had_no_effect_is_not_done_again() -> None:
    memory = Memory()
    assert due(replace(CALM, deleted=99), memory, POLICY, NOW) is None
    much = replace(CALM, deleted=100)
    assert due(much, memory, POLICY, NOW) is Act.COMPACT
    memory.did(Act.COMPACT, much, NOW, 0.0, something=True)  # a part of it: there is more
    assert due(much, memory, POLICY, NOW) is Act.COMPACT
    memory.did(Act.COMPACT, much, NOW, 0.0, something=False)
    assert due(much, memory, POLICY, NOW) is None
    assert due(replace(CALM, deleted=120), memory, POLICY, NOW) is Act.COMPACT


def test_delete_files_count_only_where_they_outlive_their_data_file() -> None:
    signs = replace(CALM, delete_files=MANY_FILES)
    assert due(signs, Memory(), POLICY, NOW) is None
    assert due(replace(signs, scoped=False), Memory(), POLICY, NOW) is Act.DELETES


def test_manifests_are_put_together() -> None:
    assert due(replace(CALM, manifests=MANY_MANIFESTS), Memory(), POLICY, NOW) is Act.MANIFESTS
    assert due(replace(CALM, manifests=MANY_MANIFESTS), Memory(manifests=1), POLICY, NOW) is None


def test_after_a_step_the_table_rests_unless_the_debt_is_grave() -> None:
    memory, signs = Memory(), replace(CALM, files=MANY_FILES * 2)
    memory.did(Act.MANIFESTS, CALM, NOW, 3.0, something=True)
    assert due(signs, memory, POLICY, NOW + 3.0 * REST - 0.1) is None
    assert due(signs, memory, POLICY, NOW + 3.0 * REST) is Act.COMPACT
    assert due(replace(CALM, files=MANY_FILES * GRAVE), memory, POLICY, NOW) is Act.COMPACT


@pytest.mark.parametrize("act", sorted(RARE))
def test_a_rare_step_asks_for_no_longer_a_rest_than_it_took(act: Act) -> None:
    memory, signs = Memory(), replace(CALM, files=MANY_FILES * 2)
    memory.did(act, CALM, NOW, 39.0, something=True)
    assert due(signs, memory, POLICY, NOW + 39.0 * RARE_REST - 0.1) is None
    assert due(signs, memory, POLICY, NOW + 39.0 * RARE_REST) is Act.COMPACT


def test_a_load_puts_files_together_at_its_end_unless_they_become_too_many() -> None:
    few, many = replace(CALM, files=MANY_FILES), replace(CALM, files=MANY_FILES * GRAVE)
    assert due(few, Memory(), POLICY, NOW, loading=True) is None
    assert due(few, Memory(), POLICY, NOW) is Act.COMPACT
    assert due(many, Memory(), POLICY, NOW, loading=True) is Act.COMPACT
    assert due(replace(CALM, deleted=100), Memory(), POLICY, NOW, loading=True) is Act.COMPACT


def test_what_has_failed_is_left_alone_for_longer_each_time_and_keeps_nothing_else_waiting() -> None:
    memory, signs = Memory(), replace(CALM, files=MANY_FILES, manifests=MANY_MANIFESTS)
    assert due(signs, memory, POLICY, NOW) is Act.MANIFESTS
    memory.failed(Act.MANIFESTS, NOW)
    assert due(signs, memory, POLICY, NOW) is Act.COMPACT
    assert due(signs, memory, POLICY, NOW + FIRST_PAUSE) is Act.MANIFESTS
    memory.failed(Act.MANIFESTS, NOW)
    assert due(signs, memory, POLICY, NOW + FIRST_PAUSE) is Act.COMPACT
    for _ in range(20):
        memory.failed(Act.MANIFESTS, NOW)
    assert due(signs, memory, POLICY, NOW + LONGEST_PAUSE) is Act.MANIFESTS
    memory.did(Act.MANIFESTS, CALM, NOW, 0.0, something=True)
    assert Act.MANIFESTS not in memory.paused


def test_files_of_nobody_are_looked_for_once_a_day_and_not_on_the_first() -> None:
    assert due(replace(CALM, orphans_at=None), Memory(), POLICY, NOW) is Act.STAMP
    assert due(replace(CALM, orphans_at=NOW - DAY + 1), Memory(), POLICY, NOW) is None
    assert due(replace(CALM, orphans_at=NOW - DAY), Memory(), POLICY, NOW) is Act.ORPHANS


def test_an_hour_of_snapshots_is_kept_then_one_an_hour_then_none() -> None:
    ages = [30 * HOUR, 26 * HOUR, 5.9 * HOUR, 5.8 * HOUR, 5.7 * HOUR, 2.5 * HOUR, 0.9 * HOUR, 0.8 * HOUR, 1.0]
    base = NOW - NOW % HOUR  # so that ages in hours do not straddle one
    snapshots = [Snapshot(number, base - age) for number, age in enumerate(ages)]
    signs = replace(CALM, snapshots=snapshots, current=8)
    # 0 ended 26 hours ago. 1 was the current one until 5.9 hours ago. Of 2, 3, 4 the last stands for its hour. 5 was
    # current until 0.9 hours ago, and somebody may still be reading it.
    assert expired(signs, POLICY, base) == {0, 2, 3}
    assert expired(signs, Policy(snapshot_days=0), base) == {0, 1, 2, 3, 4}
    assert expired(signs, Policy(snapshot_days=30), base) == {2, 3}


@pytest.mark.parametrize("every", [0.5, 1.0, 5.0, 60.0])
def test_of_a_table_that_changes_quickly_so_many_are_kept_for_minutes_at_least(every: float) -> None:
    """A merge each ``every`` seconds, for an hour."""
    signs = replace(CALM, snapshots=past(*(HOUR - every * step for step in range(int(HOUR / every)))), current=-1)
    gone = expired(signs, POLICY, NOW)
    left = [one for one in signs.snapshots if one.id not in gone]
    expected = max(LEAST_YOUNG_SECONDS / every, min(MANY_YOUNG, HOUR / every))
    assert abs(len(left) - expected) <= 3, "besides the newest of each hour"
    assert left[-MANY_YOUNG:] == list(signs.snapshots)[-len(left[-MANY_YOUNG:]) :]
    many = due(signs, Memory(), POLICY, NOW) is Act.EXPIRE
    assert many == (len(gone) >= max(MANY_EXPIRED, EXPIRED_SHARE * len(signs.snapshots)))


def test_a_step_that_was_never_current_goes_whoever_marked_it_and_tells_of_no_batch() -> None:
    done, step, last, cut = (Snapshot(n, NOW - 60 + n, {QUERY: "a"}, seen=n in (0, 2)) for n in range(4))
    signs = replace(CALM, snapshots=[done, step, last, cut], current=2)
    assert expired(signs, POLICY, NOW) == {1, 3}
    assert expired(replace(signs, held=frozenset({1})), POLICY, NOW) == {3}
    old = replace(signs, snapshots=[done, replace(cut, at=NOW - 50)], current=9)
    assert expired(old, POLICY, NOW + 9 * DAY) == {3}, "the mark of what is done stays"


def test_the_current_one_tagged_ones_and_the_newest_mark_of_each_query_are_never_expired() -> None:
    old = [Snapshot(n, NOW - 9 * DAY + n, {QUERY: q} if q else {}) for n, q in enumerate(["a", "a", "b", "", "b", ""])]
    signs = replace(CALM, snapshots=old, current=5, held=frozenset({3}))
    assert expired(signs, POLICY, NOW + DAY) == {0, 2}
    assert expired(replace(signs, held=frozenset()), POLICY, NOW + DAY) == {0, 2, 3}


def test_marks_that_nobody_asks_for_keep_nothing() -> None:
    """One a lease would else be carried on for ever, by a commit each a day."""
    ids = [f"{LATER}{token}" for token in range(9)]
    old = [Snapshot(n, NOW - 9 * DAY + n, {QUERY: query}) for n, query in enumerate([*ids, "a"])]
    signs = replace(CALM, snapshots=old)
    assert expired(signs, POLICY, NOW) == set(range(9))
    assert carried(signs, POLICY, NOW) is None


def test_a_mark_that_holds_on_to_the_past_is_carried_on() -> None:
    first, second, last = past(9 * DAY, 8 * DAY, 7 * DAY, query="a")
    signs = replace(CALM, snapshots=[first, replace(second, marks={}), replace(last, marks={})], current=3)
    assert carried(signs, POLICY, NOW) == first
    assert due(signs, Memory(), POLICY, NOW) is Act.EXPIRE  # the second one first
    signs = replace(signs, snapshots=[first, replace(last, marks={})])
    assert due(signs, Memory(), POLICY, NOW) is Act.CARRY
    assert carried(signs, Policy(snapshot_days=30), NOW) is None
    assert carried(replace(signs, held=frozenset({1})), POLICY, NOW) is None  # a tag holds on to it in any case
    assert carried(replace(signs, current=1), POLICY, NOW) is None


def test_snapshots_are_expired_many_at_once_or_an_hour_late() -> None:
    few = past(*(1.9 * HOUR - second for second in range(5)), 0.5 * HOUR)
    signs = replace(CALM, snapshots=few, current=6)
    assert len(expired(signs, Policy(snapshot_days=0), NOW)) == 4
    assert due(signs, Memory(), Policy(snapshot_days=0), NOW) is None
    assert due(signs, Memory(), Policy(snapshot_days=0), NOW + HOUR) is Act.EXPIRE
    many = past(*(1.9 * HOUR - second for second in range(MANY_EXPIRED + 1)), 0.5 * HOUR)
    signs = replace(CALM, snapshots=many, current=len(many))
    assert due(signs, Memory(), Policy(snapshot_days=0), NOW) is Act.EXPIRE


def test_snapshots_are_looked_at_seldom() -> None:
    memory = Memory()
    assert memory.looks(1, NOW)
    assert not memory.looks(MANY_EXPIRED // 2, NOW + 1)
    assert memory.looks(MANY_EXPIRED // 2 + 1, NOW + 2)
    assert not memory.looks(MANY_EXPIRED // 2 + 2, NOW + 3)
    assert memory.looks(1, NOW + DAY)


def test_what_was_expired_is_not_to_grow_again_before_snapshots_are_looked_at() -> None:
    """Of 1,500 a look had found 1,300 to expire: the next one came with 1,550, or after ten minutes."""
    memory = Memory()
    assert memory.looks(1500, NOW)
    assert not memory.looks(200, NOW + 1)
    assert memory.looks(200 + MANY_EXPIRED // 2, NOW + 2)


def test_there_is_no_rest_before_the_first_step_nor_after_its_time() -> None:
    memory = Memory()
    assert memory.rested(NOW)
    memory.did(Act.COMPACT, CALM, NOW, 2.0, something=True)
    assert not memory.rested(NOW + 7.9) and memory.rested(NOW + 8)


def test_a_sink_without_the_settings_has_the_usual_policy() -> None:
    assert policy_of(SimpleNamespace()) == Policy(on=True, snapshot_days=1.0)
    assert policy_of(SimpleNamespace(maintenance=False, snapshot_days=7)) == Policy(on=False, snapshot_days=7.0)


CONFLICT = "org.apache.iceberg.exceptions.ValidationException: Missing required files to delete: a.parquet"


def test_a_conflict_is_told_from_other_failures() -> None:
    assert is_conflict(CONFLICT)
    assert is_conflict("x.CommitFailedException: Cannot commit")
    assert not is_conflict("org.apache.spark.SparkException: Job aborted")


def test_a_commit_that_met_another_is_done_again_a_few_times_and_other_failures_are_not() -> None:
    failures = [RuntimeError(CONFLICT)] * 4

    def commit() -> None:
        if failures:
            raise failures.pop()

    insisting(commit)
    assert not failures
    failures = [RuntimeError(CONFLICT)] * 5
    with pytest.raises(RuntimeError, match="Missing required"):
        insisting(commit)
    assert not failures
    failures = [RuntimeError("out of memory")] * 2
    with pytest.raises(RuntimeError, match="memory"):
        insisting(commit)
    assert len(failures) == 1
