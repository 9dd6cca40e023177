"""A generation is shown once it has applied what readers see."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc.errors import StateError
from operations.generations.level import level
from spark.register import Promotion, Register
from spark.status import FlowStatus


def applied(register: Register, number: int, flow: str, offset: int | None, state: str = "running") -> None:
    folder = register.generation(number).flow_folder(flow)
    numbers = dict.fromkeys(("pid", "batch_id", "records", "written", "deleted", "stale", "rejected"), 0)
    more = dict.fromkeys(("position", "source_ts_ms", "batch_ms"), 0) | {"last_error": None, "topics": ["t"]}
    FlowStatus(flow=f"search/{flow}", state=state, at=1.0, **numbers, **more).write(folder)
    if offset is not None:
        (folder / "applied.json").write_text(
            json.dumps({"batch": 1, "offsets": {"t": {"0": offset}, "gone": {"0": 9}}})
        )


def test_it_is_waited_for_and_told_what_it_lacks(tmp_path: Path) -> None:
    register, pipeline = Register(tmp_path, "shop", "search"), SimpleNamespace()
    applied(register, 1, "main", 100)
    applied(register, 1, "card", 90)
    applied(register, 1, "let-go", 500, "finished")
    applied(register, 2, "main", 100)
    applied(register, 2, "card", None)
    steps = iter((70, 99, 100))
    now = SimpleNamespace(at=0.0)

    def sleep(seconds: float) -> None:
        now.at += seconds
        applied(register, 2, "card", next(steps))

    clock = SimpleNamespace(monotonic=lambda: now.at, sleep=sleep)
    assert level(pipeline, register, 1, 2, 0.0) == "100 records"  # it has told nothing yet
    assert level(pipeline, register, 1, 2, 0.15, clock=clock) == "1 records"
    assert level(pipeline, register, 1, 2, 10.0, clock=clock) is None


def test_what_was_cut_is_finished_or_taken_back_and_nothing_else(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    for _ in range(2):
        register.move(register.create("test").number, "ready")
    register.begin_promotion(2, 1)
    assert register.promotion() == Promotion(2, 1, moving=False)
    register.begin_promotion(3, 1)  # nobody was moved: another one may begin
    with pytest.raises(StateError, match="given up meanwhile"):
        register.move_readers(2)
    register.move_readers(3)
    assert register.promotion() == Promotion(3, 1)
    with pytest.raises(StateError, match="from generation 1 to 3"):
        register.begin_promotion(2, 1)
    register.begin_promotion(1, 3)
    assert register.promotion() == Promotion(1, 3)  # back: readers of some views are there still
