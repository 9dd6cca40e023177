"""``python -m tests``: the whole suite, in two stages. `make test` is this.

First everything that minds its own business, three files side by side: tests make databases, topics, indexes and keys
of their own on the one stack, and much of their time is waiting. Then, one by one, what must be ``alone``: tests that
kill the servers of the others, or that hold the clock against a promise.

``python -m tests --again`` runs what failed the last time, as pytest's ``--last-failed`` does: one by one, in one
process, because what failed beside others on a machine that is short of time is to have that time.

``python -m tests --seconds`` notes what the proofs that take turns took in the last run (tests/support/sampling.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support import sampling

ROOT = Path(__file__).parents[1]
WORKERS = 3
SIDE_BY_SIDE = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not slow and not alone")
ALONE = ("-m", "alone and not slow")
AGAIN = ("-m", "not slow", "--last-failed", "--last-failed-no-failures", "none")
NOTHING_TO_RUN = 5
FILES_TOLD = 25


def stage(name: str, *options: str) -> tuple[int, int]:
    """Run pytest.

    Returns:
        its exit code, and how many tests ran.
    """
    report = ROOT / ".pytest_cache" / f"{name}.xml"
    report.unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "--durations=40", "--durations-min=5", f"--junitxml={report}", *options]
    environment = {**os.environ, sampling.VARIABLE: os.environ.get(sampling.VARIABLE) or sampling.commit()}
    code = subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    _slowest(report)
    return code, _ran(report)


def _slowest(report: Path) -> None:
    """Print which files have taken longest: where a suite that has become slow is to be mended."""
    if not report.exists():
        return
    seconds: Counter[str] = Counter()
    for case in ET.parse(report).getroot().iter("testcase"):
        seconds[str(case.get("classname"))] += float(case.get("time", 0))
    for file, took in seconds.most_common(FILES_TOLD):
        print(f"{took:8.0f} s  {file}")
    print(f"{seconds.total():8.0f} s  in all, setups included", flush=True)


def _ran(report: Path) -> int:
    """Tests of a report that were not skipped; 0 if pytest came to none."""
    if not report.exists():
        return 0
    suites = ET.parse(report).getroot().iter("testsuite")
    return sum(int(suite.get("tests", 0)) - int(suite.get("skipped", 0)) for suite in suites)


def measured() -> Iterator[tuple[str, float]]:
    """Group and seconds of each proof of the last run that takes turns. One that runs alone costs all workers' time."""
    for name, times in (("side-by-side", 1), ("alone", WORKERS)):
        report = ROOT / ".pytest_cache" / f"{name}.xml"
        for case in ET.parse(report).getroot().iter("testcase") if report.exists() else ():
            for word in case.iter("property") if case.find("skipped") is None else ():
                if word.get("name") == sampling.GROUP:
                    yield str(word.get("value")), float(case.get("time", 0)) * times


def main(arguments: list[str]) -> int:
    """Both stages, the second also when the first has failed, or what failed; what came of it as an exit code."""
    assert arguments in ([], ["--again"], ["--seconds"]), "usage: python -m tests [--again | --seconds]"
    if arguments == ["--seconds"]:
        known = sampling.note(measured())
        print(f"{len(known)} groups take {sum(known.values()):,} s; a run takes {sampling.SECONDS:,} s of them")
        return 0
    began = time.monotonic()
    # Begun in the background by a shell, this process ignores Ctrl-C, and so would those that tests send one to.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stages = {"again": AGAIN} if arguments else {"side-by-side": SIDE_BY_SIDE, "alone": ALONE}
    found = [stage(name, *options) for name, options in stages.items()]
    ran = sum(count for _, count in found)
    print(f"suite: {ran:,} tests in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    return verdict(found)


def verdict(found: list[tuple[int, int]]) -> int:
    """The exit code of stages, given theirs and how many tests ran: one that failed fails, and so does no test."""
    bad = [code for code, _ in found if code not in (0, NOTHING_TO_RUN)]
    return bad[0] if bad else int(sum(count for _, count in found) == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
