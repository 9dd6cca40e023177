"""How long the overview takes, whole, over HTTP: a pipeline of three sinks with rows that change.

``python -m benchmarks.run page`` brings a pipeline of its own to the local stack. The server looks at its servers
meanwhile as it does for an open page.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psutil
import requests

from benchmarks.results import Measurement, quantile
from tests.support.local import ready
from tests.support.migrating import Migrating, Rows
from tests.support.serving import serving

COMMAND = "python -m benchmarks.run page"
PAGES = 500
MOST_SECONDS = 120.0


def measure() -> list[Measurement]:
    """Page after page over one connection, as a browser's."""
    with tempfile.TemporaryDirectory(prefix="headwater-page-") as folder:
        made = Migrating(ready(), Path(folder), views={"thing": {"root": "things"}})
        with made.running(), Rows(made.conninfo), serving(made.file, made.environment()) as url:
            _until_shown(url, len(made.sinks))
            before = _processor_seconds()
            took = _asked(url)
            used = (_processor_seconds() - before) / PAGES * 1_000
    figures = {"": quantile(took, 0.5), "/p99": quantile(took, 0.99), "/processor": used}
    return [
        Measurement("dashboard_page_ms" + name, round(value, 1), "ms", PAGES, command=COMMAND)
        for name, value in figures.items()
    ]


def _processor_seconds() -> float:
    """What the server has used, its looks at its servers included: the part of a page's time that is its own."""
    ours = psutil.Process().children()
    times = [one.cpu_times() for one in ours if "serve" in one.cmdline()]
    return sum(one.user + one.system for one in times)


def _until_shown(url: str, sinks: int) -> None:
    """Wait until all sinks are there and the batches of each."""
    until = time.monotonic() + MOST_SECONDS
    while True:
        seen = requests.get(f"{url}/v1/overview", timeout=10).json()["seen"] or {}
        batches = (seen.get("kept") or {"batches": {}})["batches"]
        if len(batches) == sinks and all(batches.values()):
            return
        assert time.monotonic() < until, seen
        time.sleep(0.5)


def _asked(url: str) -> list[float]:
    took = []
    with requests.Session() as session:
        for _ in range(PAGES):
            began = time.perf_counter()
            answer = session.get(url, timeout=10)
            took.append((time.perf_counter() - began) * 1_000)
            assert answer.status_code == 200 and "Operations by table" in answer.text
    return took
