"""Frontiers that were seen before: which of them may be trusted, and for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import BeyondFrontier
from operations.as_of import frontier as module
from operations.as_of.frontier import FrontierWatch
from operations.as_of.seen import APART_US, KEPT, Frontier, Seen

SNAPSHOT = 7


def seen(folder: Path, *topics: str, snapshot: int = SNAPSHOT) -> Seen:
    return Seen(folder, topics or ("a", "b"), snapshot)


def frontier(number: int) -> Frontier:
    return Frontier(100 * number, APART_US * number)


def ends(number: int) -> dict[str, dict[int, int]]:
    return {"a": {0: number, 1: number}, "b": {0: 10 * number}}


def test_one_counts_once_history_has_come_to_where_the_log_ended_then(tmp_path: Path) -> None:
    """History is always behind the log's end, and past where that was before."""
    for number in (1, 2, 3):
        seen(tmp_path).note(frontier(number), ends(number))
    mine = seen(tmp_path)
    assert mine.find(lambda one: one.after >= 150, ends(2)) == frontier(2)
    assert mine.find(lambda one: one.after >= 50, ends(2)) == frontier(1)
    assert mine.find(lambda one: one.after >= 250, ends(2)) is None, "history has not come there"
    assert mine.find(lambda one: one.after >= 150, ends(2) | {"b": {0: 19}}) is None, "nor in each topic"
    assert mine.find(lambda one: one.after >= 150, {"a": ends(2)["a"]}) is None


def test_one_of_other_topics_or_of_a_former_snapshot_does_not_count(tmp_path: Path) -> None:
    seen(tmp_path).note(frontier(1), ends(1))
    assert seen(tmp_path, "a", "b", "new").find(lambda _: True, ends(9)) is None
    assert seen(tmp_path, snapshot=8).find(lambda _: True, ends(9)) is None
    assert seen(tmp_path, "a").find(lambda _: True, ends(9)) == frontier(1)
    seen(tmp_path, snapshot=8).note(frontier(4), ends(4))
    assert seen(tmp_path).find(lambda _: True, ends(9)) is None, "those of before are forgotten"


def test_asking_again_and_again_keeps_the_older_ones(tmp_path: Path) -> None:
    for number in range(3 * KEPT):
        seen(tmp_path).note(Frontier(number, number * (APART_US // 2)), ends(number))
    known = [one.after for one, _ in seen(tmp_path)._read()]
    assert len(known) == KEPT
    assert known == list(range(3 * KEPT - 2 * KEPT, 3 * KEPT, 2))


def test_a_file_that_is_no_file_of_ours_is_none(tmp_path: Path) -> None:
    for text in (
        "",
        "[]",
        '{"snapshot_lsn": 7}',
        '{"snapshot_lsn": 7, "seen": [1]}',
        '{"snapshot_lsn": 7, "seen": null}',
    ):
        (tmp_path / "frontiers.json").write_text(text)
        assert seen(tmp_path).find(lambda _: True, ends(9)) is None
        seen(tmp_path).note(frontier(1), ends(1))
        assert seen(tmp_path).find(lambda _: True, ends(1)) == frontier(1)


class Log:
    """One in which the marker of a transaction is missing yet: who reads what is committed sees less of it."""

    def describe(self, topics: Sequence[str]) -> dict[str, Any]:
        return {topic: SimpleNamespace(name=topic, partitions=1) for topic in topics}

    def ends(self, counts: Mapping[str, int], *, written: bool = False) -> dict[str, dict[int, int]]:
        return {topic: {0: 9 if written else 7} for topic in counts}


def test_a_cut_waits_for_all_that_is_written_and_not_for_what_a_reader_sees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another partition of the same transaction may wait for its marker: the cut would tear it."""
    watch = FrontierWatch.__new__(FrontierWatch)
    watch._kafka, watch._topics, watch._folder, watch._whole = cast(Any, Log()), ["t"], tmp_path, False
    for applied, whole in ((7, False), (9, True)):
        monkeypatch.setattr(module, "applied_offsets", lambda _folder, applied=applied: {"t": {0: applied}})
        if whole:
            assert watch._applied(frontier(1), "it", 0.0, print) == frontier(1)
        else:
            with pytest.raises(BeyondFrontier):
                watch._applied(frontier(1), "it", 0.0, print)


def test_history_that_is_ahead_of_the_log_is_not_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The log has become shorter: what comes in the lost places is in no history, and a cut said that it was."""
    watch = FrontierWatch.__new__(FrontierWatch)
    watch._kafka, watch._topics, watch._folder, watch._whole = cast(Any, Log()), ["t"], tmp_path, False
    monkeypatch.setattr(module, "applied_offsets", lambda _folder: {"t": {0: 10}, "let go": {0: 99}})
    with pytest.raises(BeyondFrontier, match="the log ends before what history has read"):
        watch._applied(frontier(1), "it", 0.0, print)
