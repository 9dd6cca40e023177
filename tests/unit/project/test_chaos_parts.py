"""The parts of `make chaos` that need no server: schedules, advice, the verdict."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from benchmarks import results
from tests.chaos import __main__ as chaos
from tests.chaos.__main__ import Outcome
from tests.chaos.judge import Verdict, compare
from tests.chaos.runner import advice_in
from tests.chaos.steps import DECK, LINKS, MODES, RUNNER, SERVERS, Step, chosen, first, schedule


def test_a_seed_gives_the_same_steps_and_another_seed_others() -> None:
    assert first(7, 100) == first(7, 100) != first(8, 100)


def test_every_fault_is_dealt_before_one_comes_again() -> None:
    dealt = [(step.kind, step.target, step.detail) for step in first(3, len(DECK))]
    assert sorted(dealt) == sorted((card.kind, card.target, card.detail) for card in DECK)
    wanted = {(kind, target, "") for kind in ("kill", "freeze") for target in (*RUNNER, *SERVERS)}
    wanted |= {("cut", link, mode) for link in LINKS for mode in MODES}
    assert wanted <= set(dealt)


def test_steps_can_be_done_again_from_what_was_printed() -> None:
    steps = first(5, 2 * len(DECK))
    again = list(chosen(",".join(map(str, steps)), seed=9))
    assert [(one.kind, one.target, one.detail, one.seconds) for one in again] == [
        (one.kind, one.target, one.detail, one.seconds) for one in steps
    ]


@pytest.mark.parametrize("text", ["", "kill", "kill:the-cat:5", "cut:kafka:deaf:5", "lose:redis-store:hope"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no such step"):
        Step.parse(text)


def test_without_steps_the_seed_s_own_go_on_without_end() -> None:
    assert list(itertools.islice(chosen("", 4), 90)) == list(itertools.islice(schedule(4), 90))


@pytest.mark.parametrize(
    ("refusal", "commands"),
    [
        ("gone\n  what to do: `headwater rebuild FILE cache --auto` fills it", [["rebuild", "cache", "--auto"]]),
        ("`headwater rebuild FILE SINK`", [["rebuild", "cache", "--auto"]]),
        (
            "`headwater apply FILE --wait` (its rows are read again), then `headwater rebuild FILE cache --auto`",
            [["apply", "--wait"], ["rebuild", "cache", "--auto"]],
        ),
        (
            "point engine.state_dir at it, or `headwater drop FILE --sink cache` and `headwater run FILE`",
            [["drop", "--sink", "cache", "--yes"]],
        ),
        ("`headwater rebuild FILE cache`; or `headwater drop FILE --topics`", [["rebuild", "cache", "--auto"]]),
        ("`headwater resnapshot FILE --all`", [["resnapshot", "--all", "--wait"]]),
        ("look at `headwater status FILE`", []),
    ],
)
def test_advice_is_read_from_a_refusal(refusal: str, commands: list[list[str]]) -> None:
    assert advice_in(refusal, "cache") == commands


def test_differences_are_counted_by_what_they_are() -> None:
    verdict = Verdict()
    compare(verdict, "here", {"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 5})
    assert (verdict.wrong, verdict.ghosts, verdict.rows) == (2, 1, 3)
    assert verdict.words == ["here: 1 missing: a", "here: 1 extra: d", "here: 1 changed: c"]


@pytest.mark.parametrize(
    ("outcome", "well"),
    [
        (Outcome(1, 20, worst_recovery_s=179.0), True),
        (Outcome(1, 20, worst_recovery_s=180.0), False),
        (Outcome(1, 20, verdict=Verdict(wrong=1)), False),
        (Outcome(1, 20, verdict=Verdict(ghosts=1)), False),
        (Outcome(1, 20, error="it broke"), False),
        (Outcome(1, 20, faults=[{"step": "kill:run", "recovery_s": None}]), False),
    ],
)
def test_all_must_be_well(outcome: Outcome, *, well: bool) -> None:
    assert outcome.well is well
    assert outcome.line().startswith(f"CHAOS {'OK' if well else 'FAILED'} seed=1 minutes=20 faults=")


def test_the_figures_are_merged_into_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "latest.json"
    results.write([results.Measurement("other", 1.0, "s", 1)], path)
    monkeypatch.setattr(chaos, "write", lambda measurements: results.write(measurements, path))
    chaos.record(Outcome(2, 20, faults=[{"step": "kill:run", "recovery_s": 9.0}], worst_recovery_s=9.0))
    kept = {entry["name"]: entry["value"] for entry in json.loads(path.read_text())}
    assert kept == {"other": 1.0, "chaos_wrong_rows": 0.0, "chaos_faults": 1.0, "chaos_recovery_worst_s": 9.0}
