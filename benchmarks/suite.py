"""How long the whole test suite takes: `make test` in a clean clone of the commit, on servers of its own.

Downloads are warm: what is measured is installing, starting, testing. Only by its name (``python -m benchmarks.run
suite``): it takes a quarter of an hour, and the machine for itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import Measurement

ROOT = Path(__file__).parents[1]
# Beside a stack that somebody works with.
PORT_BASE = "29000"
LAST_LINE = re.compile(r"^suite: ([\d,]+) tests in", re.MULTILINE)
COMMAND = "python -m benchmarks.run suite"


def measure() -> list[Measurement]:
    """Clone, test, tell; a suite that fails has no time."""
    with tempfile.TemporaryDirectory(prefix="headwater-suite-") as folder:
        clone = Path(folder) / "headwater"
        _call(["git", "clone", "-q", str(ROOT), str(clone)], ROOT)
        began = time.monotonic()
        try:
            done = _call(["make", "test"], clone)
            minutes = (time.monotonic() - began) / 60
        finally:
            _call([str(clone / ".venv/bin/headwater"), "down"], clone)
    said = LAST_LINE.findall(done.stdout)
    if done.returncode or not said:
        raise SystemExit(f"make test ended with {done.returncode} after {minutes:.1f} min:\n{done.stdout[-4000:]}")
    tests = int(said[-1].replace(",", ""))
    return [
        Measurement("suite_minutes", round(minutes, 2), "min", tests, command=COMMAND),
        Measurement("suite_tests", tests, "tests", tests, command=COMMAND),
    ]


def _call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it there, on servers of that folder's own and by its own interpreter, not by that in which this runs."""
    environment = {**os.environ, "HEADWATER_HOME": str(folder / ".headwater"), "HEADWATER_PORT_BASE": PORT_BASE}
    ours = Path(sys.executable).parent
    places = [place for place in os.environ["PATH"].split(os.pathsep) if Path(place) != ours]
    environment["PATH"] = os.pathsep.join(places)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
