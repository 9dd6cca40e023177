"""`make chaos`: a shop and a bank under load while everything breaks; at the end every row of every sink against SQL.

CHAOS_SEED decides the order of the faults and what the writers write, CHAOS_MINUTES how long faults go on, CHAOS_RATE
how many transactions a second are tried. CHAOS_STEPS names steps instead ("kill:kafka:5,held:redis-store:20"), as they
are printed. CHAOS_RECORD=no leaves benchmarks/results/latest.json as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import Measurement, write
from tests.chaos import steps
from tests.chaos.faults import Faults
from tests.chaos.judge import Verdict, judge
from tests.chaos.load import Load
from tests.chaos.recovery import RECOVERED_SECONDS, Recovery
from tests.chaos.runner import Runner
from tests.chaos.world import World, home, settle_environment

# The first fill, and the last catching up, on a machine with two cores.
START_SECONDS = SETTLE_SECONDS = 420.0
REFUSED_TIMES = 4
# Transactions a second; all of it, eight flows, every server and the wires between them, runs on two cores.
RATE = 40.0


@dataclass
class Outcome:
    """One run.

    Attributes:
        faults: each step, when it began, how long its flows took to be back (None: they did not come back), and the
            commands that were called for it because a refusal named them.
        advice: commands that refusals named, and that were followed.
        ends: each end of `run`.
        restarts: why flows were started again, as their status has it at the end.
        tx: transactions that the writers committed.
        worst_recovery_s: of the faults that mend themselves; ``worst_advised_s`` of those that took a person's command,
            as when a row store has lost everything: its sinks are rebuilt.
        log_offsets, log_records: how far the compacted topics have come, and what the cleaner has left of them.
    """

    seed: int
    minutes: float
    faults: list[dict[str, Any]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    restarts: dict[str, list[str]] = field(default_factory=dict)
    tx: int = 0
    log_offsets: int = 0
    log_records: int = 0
    worst_recovery_s: float = 0.0
    worst_advised_s: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    error: str | None = None

    @property
    def well(self) -> bool:
        """Whether all that is promised was kept."""
        lost = any(fault["recovery_s"] is None for fault in self.faults)
        wrong = self.verdict.wrong or self.verdict.ghosts
        return not (self.error or lost or wrong or self.worst_recovery_s >= RECOVERED_SECONDS)

    def line(self) -> str:
        """The last line."""
        return (
            f"CHAOS {'OK' if self.well else 'FAILED'} seed={self.seed} minutes={self.minutes:g} "
            f"faults={len(self.faults)} tx={self.tx} wrong={self.verdict.wrong} ghosts={self.verdict.ghosts} "
            f"worst_recovery_s={self.worst_recovery_s:.0f} worst_advised_s={self.worst_advised_s:.0f}"
        )


class Chaos:
    """One run from an empty stack to the verdict."""

    def __init__(self, seed: int, minutes: float, rate: float, only: str) -> None:
        from tests.support.local import ready

        self.began = time.monotonic()
        self.outcome = Outcome(seed, minutes)
        self.rate, self.only = rate, only
        folder = home() / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _empty_stack()
        self.world = World(ready(), folder)
        self.say("servers up")
        self.runner = Runner(self.world, self.say)
        self.recovery = Recovery(self.world, self.runner, self.say)
        self.faults = Faults(self.world, self.runner, self.say)

    def say(self, line: str) -> None:
        """A line with the time since the beginning."""
        print(f"{time.monotonic() - self.began:7.1f}  {line}", flush=True)

    def go(self) -> Outcome:
        """All of it; what goes wrong is in the outcome."""
        load = None
        try:
            self.world.prepare()
            self.say("captured")
            self.runner.start()
            self._until("filled", self.recovery.settled, START_SECONDS)
            info = self.world.conninfo, self.world.bank_conninfo
            load = Load(*info, self.outcome.seed, self.rate)
            load.start()
            began = time.monotonic()
            self._break_things()
            if self.only:
                self.outcome.minutes = round((time.monotonic() - began) / 60, 1)
            self.faults.nothing_broken()
            self.outcome.tx, load = load.stop(), None
            self.say(f"the writers have stopped after {self.outcome.tx:,} transactions")
            self._until("caught up", self.recovery.settled, SETTLE_SECONDS)
            self.outcome.log_offsets, self.outcome.log_records = self.world.log_left()
            self.say(
                f"{self.outcome.log_records:,} records are left of {self.outcome.log_offsets:,} offsets of the log"
            )
            self.outcome.restarts = self.recovery.restarts()
            judge(self.world, self.outcome.verdict)
        except Exception as error:
            traceback.print_exc()
            self.outcome.error = f"{type(error).__name__}: {error}"[:2000]
        finally:
            self.faults.nothing_broken()
            if load is not None:
                load.stop()
            self.runner.stop()
            self.world.close()
            if not os.environ.get("CHAOS_KEEP"):
                self.world.stack.down()  # type: ignore[attr-defined]
        self.outcome.advice, self.outcome.ends = self.runner.advice, self.runner.ends
        return self.outcome

    def _break_things(self) -> None:
        until = time.monotonic() + self.outcome.minutes * 60
        for number, step in enumerate(steps.chosen(self.only, self.outcome.seed), 1):
            time.sleep(step.pause)
            if time.monotonic() > until and not self.only:
                return
            self.say(f"{number:3d} {step}")
            done: dict[str, Any] = {"step": str(step), "at_s": round(time.monotonic() - self.began, 1)}
            self.outcome.faults.append(done | {"recovery_s": None})
            followed = len(self.runner.advice)
            self.faults.do(step)
            took = self.recovery.wait()
            advised = self.runner.advice[followed:]
            self.outcome.faults[-1] |= {"recovery_s": took, "advised": advised}
            if took is None:
                raise AssertionError(f"the flows did not come back after step {number}, {step}")
            if advised:
                self.outcome.worst_advised_s = max(self.outcome.worst_advised_s, took)
            else:
                self.outcome.worst_recovery_s = max(self.outcome.worst_recovery_s, took)
            self.say(f"      back after {took:.1f} s")

    def _until(self, what: str, true: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < until, f"not {what} after {seconds:.0f} s: {self.recovery.behind(0)}"
            refused = self.runner.refusals
            assert len(refused) < REFUSED_TIMES, f"run does not start: {refused[-1]}"
            time.sleep(2)
        self.say(what)


def _empty_stack() -> None:
    """Stop and empty the servers of an earlier run."""
    from deploy.local.stack import LocalStack

    stack = LocalStack()
    stack.down()
    stack.wipe()


def record(outcome: Outcome) -> None:
    """The three figures that readers of benchmarks look for."""
    command = f"CHAOS_MINUTES={outcome.minutes:g} CHAOS_SEED={outcome.seed} make chaos"
    figures = (
        ("chaos_wrong_rows", float(outcome.verdict.wrong + outcome.verdict.ghosts), "rows", outcome.verdict.rows),
        ("chaos_faults", float(len(outcome.faults)), "faults", len(outcome.faults)),
        ("chaos_recovery_worst_s", outcome.worst_recovery_s, "s", len(outcome.faults)),
    )
    write([Measurement(name, value, unit, n, command=command) for name, value, unit, n in figures])


def main() -> int:
    """Run, print, write; exit code 1 unless all is well."""
    seed, minutes = int(os.environ.get("CHAOS_SEED") or 1), float(os.environ.get("CHAOS_MINUTES") or 20)
    settle_environment()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit("ended by SIGTERM"))
    rate, only = float(os.environ.get("CHAOS_RATE") or RATE), os.environ.get("CHAOS_STEPS") or ""
    outcome = Chaos(seed, minutes, rate, only).go()
    result = Path(os.environ.get("CHAOS_RESULT") or home() / f"result-{seed}.json")
    result.write_text(json.dumps({**asdict(outcome), "ok": outcome.well}, indent=1) + "\n")
    if os.environ.get("CHAOS_RECORD") != "no" and outcome.error is None:
        record(outcome)
    for word in [*outcome.verdict.words, *([outcome.error] if outcome.error else [])]:
        print(word)
    if not outcome.well:
        done = ",".join(fault["step"] for fault in outcome.faults)
        print(f"again: CHAOS_MINUTES={minutes:g} CHAOS_SEED={seed} make chaos")
        print(f"the same steps: CHAOS_STEPS={done} CHAOS_SEED={seed} make chaos")
    print(f"details: {result}")
    print(outcome.line(), flush=True)
    return 0 if outcome.well else 1


if __name__ == "__main__":
    sys.exit(main())
