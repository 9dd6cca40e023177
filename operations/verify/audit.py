"""``headwater verify --every``: an audit that never ends, its result a metric.

The file is in Prometheus's text format, replaced in one step each time, for a node exporter's textfile collector.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdc.errors import ConfigError, HeadwaterError
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.metrics.audit import Totals, metrics, views_of
from operations.state.folder import state_dir
from operations.verify.report import standing_still, verified
from operations.verify.verifier import Asked
from spark.disk.files import write_atomic


class _Ended(Exception):
    """Somebody asked the audit to stop while it waited for a sink."""


def audit(pipeline: Pipeline, asked: Asked, every: float, stop: threading.Event, say: Say) -> None:
    """Verify until it is told to stop.

    Args:
        pipeline: the loaded file.
        asked: what to verify; each time another sample.
        every: seconds from the end of one verification to the start of the next.
        stop: set when it is to end; looked at while it waits for a sink, too.
        say: told a line for each verification.

    Raises:
        ConfigError: what is asked can't be done (no such sink), as the first verification shows.
    """
    totals = Totals(every)
    path = metric_file(pipeline)
    while not stop.is_set():
        started = time.monotonic()
        try:
            report = verified(pipeline, replace(asked, seed=asked.seed + totals.runs), on_pause=_ender(stop))
        except _Ended:
            break
        except (HeadwaterError, OSError) as error:  # a server that is down comes back, and so does room on a disk
            if isinstance(error, ConfigError) and not totals.runs:
                raise
            # Later it is not what was asked: a table was altered, and is followed, or the file is mended for it.
            totals.errors += 1
            say(f"{_clock()} could not verify: {_what(error)}")
        else:
            totals.take(report)
            say(line(report))
        totals.runs += 1
        totals.seconds = time.monotonic() - started
        try:
            write_atomic(path, metrics(pipeline.name, totals))
        except (HeadwaterError, OSError) as error:
            say(f"{_clock()} could not write the metrics: {_what(error)}")
        stop.wait(every)
    with suppress(OSError):  # nobody who looks for it takes it for what is so now
        path.unlink(missing_ok=True)


def metric_file(pipeline: Pipeline) -> Path:
    """Where the result is."""
    return state_dir(pipeline) / pipeline.name / "verify.prom"


def _ender(stop: threading.Event) -> Callable[[], None]:
    def on_pause() -> None:
        if stop.is_set():
            raise _Ended

    return on_pause


def _what(error: HeadwaterError | OSError) -> str:
    return error.what if isinstance(error, HeadwaterError) else str(error)


def line(report: Mapping[str, Any]) -> str:
    """One run in one line."""
    rows = sum(view["expected"] for _, view in views_of(report))
    wrong = [f"{labels['sink']}/{labels['view']} {v['differences']:,} differ" for labels, v in views_of(report)
             if v["differences"]]  # fmt: skip
    wrong += [f"{sink['sink']} could not be verified" for sink in report["sinks"] if sink.get("error")]
    verdict = ", ".join(wrong) or ("equal" if report["equal"] else "nothing was compared")
    what = "rows of a sample" if report["sample"] else "rows"
    still = f"; standing still: {left}" if (left := standing_still(report)) else ""
    return f"{_clock()} {rows:,} {what} in {report['seconds']:.1f} s: {verdict}{still}"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
