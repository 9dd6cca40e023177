"""What is written of upkeep was measured by the run that writes it, of as many batches as its name and `n` say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import upkeep, upkeep_work
from benchmarks.upkeep_work import ENGINES, Progress
from cdc.errors import StackError

FOUND = {
    "ratios": [dict.fromkeys(ENGINES, 1.1)],
    "merge_s": 0.5,
    "merges_s": 3.0,
    "upkeep_s": 1.0,
    "longest_s": 2.0,
}


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int, bool]]:
    done = list[tuple[Path, int, bool]]()

    def work(folder: Path, batches: int, *, on: bool) -> dict[str, Any]:
        done.append((folder, batches, on))
        return FOUND

    monkeypatch.delenv("HEADWATER_UPKEEP_FOLDER", raising=False)
    monkeypatch.setattr(upkeep, "_work", work)
    return done


def begun(folder: Path, batches: int, done: int) -> None:
    Progress(batches, merges=[1.0] * done, upkeeps=[0.5] * done, ratios=[dict.fromkeys(ENGINES, 1.0)]).note(folder)


def test_what_was_broken_off_goes_on(tmp_path: Path) -> None:
    assert Progress.of(tmp_path, 220) == Progress(220)
    begun(tmp_path, 220, 150)
    assert len(Progress.of(tmp_path, 220).merges) == 150


def test_a_finished_folder_has_nothing_to_measure(tmp_path: Path) -> None:
    begun(tmp_path, 220, 220)
    with pytest.raises(StackError, match="has had all of its 220 batches") as caught:
        Progress.of(tmp_path, 220)
    assert str(tmp_path) in caught.value.what and "HEADWATER_UPKEEP_FOLDER" in caught.value.fix


def test_a_folder_of_another_count_is_not_gone_on_with(tmp_path: Path) -> None:
    begun(tmp_path, 220, 150)
    with pytest.raises(StackError, match="was begun for 220 batches, and 10,000 are asked for"):
        Progress.of(tmp_path, 10_000)
    begun(tmp_path, 10_000, 10_000)
    with pytest.raises(StackError, match="was begun for 10,000 batches, and 220 are asked for"):
        Progress.of(tmp_path, 220)
    noted = asdict(Progress(1, merges=[1.0]))
    del noted["batches"]  # as it was written before the count was
    (tmp_path / "progress.json").write_text(json.dumps(noted))
    with pytest.raises(StackError, match="an unknown number of batches"):
        Progress.of(tmp_path, 220)


def test_the_count_is_noted_before_the_first_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(Exception): ...

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(upkeep_work, "Work", killed)
    with pytest.raises(Killed):
        upkeep_work.main(tmp_path, 220, "3", on=True)
    with pytest.raises(StackError, match="begun for 220"):
        upkeep_work.main(tmp_path, 10_000, "3", on=True)


def test_a_refused_folder_costs_no_time(
    tmp_path: Path, worked: list[tuple[Path, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_UPKEEP_FOLDER", str(tmp_path))
    begun(tmp_path, 10_000, 10_000)
    for measure in (upkeep.measure, upkeep.measure_all):
        with pytest.raises(StackError, match=str(tmp_path)):
            measure()
    assert worked == []


def test_hours_of_work_come_last(
    tmp_path: Path, worked: list[tuple[Path, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_UPKEEP_FOLDER", str(tmp_path))
    upkeep.measure_all()
    (other, *without), kept = worked
    assert (without, kept) == ([upkeep.UNMAINTAINED, False], (tmp_path, 10_000, True))
    assert other != tmp_path


@pytest.mark.usefixtures("worked")
def test_few_batches_do_not_stand_where_ten_thousand_were_measured() -> None:
    few, all_ = ({one.name: one for one in found} for found in (upkeep.measure(220), upkeep.measure_all()))
    assert not set(few) & set(all_)
    assert few["warehouse_read_after_batches_ratio"].n == 220
    assert all_["warehouse_read_after_10k_batches_ratio"].n == all_["warehouse_upkeep_share"].n == 10_000
