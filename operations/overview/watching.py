"""Looks at a pipeline in the background, so that a page shows at once the newest that is known, and how old that is.

Servers that are away take seconds to say so. Nobody who asks for a page waits for them: one thread does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.ages import at_least
from cdc.errors import HeadwaterError
from cdc.log.ends import LogEnds
from cdc.pipeline import Pipeline
from operations.freshness.waits import Waits
from operations.overview.builds import builds
from operations.overview.changes import Rates
from operations.overview.history import EVERY_SECONDS, History, age_of, sample_of
from operations.overview.kept import kept_report
from operations.overview.tables import tables_report
from operations.status.sinks import status_report

# Between two looks while somebody has a page open: what breaks is to be seen there within five seconds.
LOOKED_AT_SECONDS = 1.5
# A page asks again within this time as long as it is open.
OPEN_SECONDS = 15.0
_log = logging.getLogger(__name__)

# What is asked; each may fail, and be slow, by itself.
Asked = Callable[[Pipeline], Any]


@dataclass(frozen=True)
class Seen:
    """A pipeline at one moment.

    Attributes:
        number: grows with every look at the status.
        at: when the look at the status ended (epoch seconds); 0 before the first.
        seconds: how long it took.
        status: as ``headwater status --json``; None if that failed.
        generations: see ``builds``; None if that failed.
        tables: see ``tables_report``; None if that failed.
        kept: see ``kept_report``; None if that failed.
        changes: table -> ``inserted``, ``updated``, ``deleted`` in rows a second.
        freshness: sink -> ``as_of`` (epoch seconds), ``age`` (seconds), ``reason``.
        rates: sink -> ``log``, ``read``, ``written`` in records a second.
        errors: which part failed, and why.
    """

    number: int
    at: float
    seconds: float
    status: dict[str, Any] | None = None
    generations: dict[str, list[dict[str, Any]]] | None = None
    tables: list[dict[str, Any]] | None = None
    kept: dict[str, Any] | None = None
    changes: dict[str, dict[str, float | None]] = field(default_factory=dict)
    freshness: dict[str, dict[str, Any]] = field(default_factory=dict)
    rates: dict[str, dict[str, float | None]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def to_dict(self, now: float) -> dict[str, Any]:
        """The shape of ``GET /v1/overview``."""
        return {
            "at": self.at,
            "age": round(at_least(self.at, now), 3) if self.at else None,
            "seconds": round(self.seconds, 3),
            "status": self.status,
            "generations": self.generations,
            "tables": self.tables,
            "kept": self.kept,
            "changes": self.changes,
            "freshness": self.freshness,
            "rates": self.rates,
            "errors": self.errors,
        }


def _tables(pipeline: Pipeline) -> Any:
    log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
    try:
        return tables_report(pipeline, log)
    finally:
        log.close()


# `status` first: what the others say stands beside it.
ASKED: Mapping[str, Asked] = {
    "status": status_report,
    "generations": builds,
    "tables": _tables,
    "kept": kept_report,
}


class Watching:
    """Looks at one pipeline again and again, from ``start`` to ``close``; a thread a question.

    Args:
        pipeline: gives the file as it is now.
        waits: gives who knows how old what readers see is.
        asked: what is asked; replaced in tests.
    """

    def __init__(
        self, pipeline: Callable[[], Pipeline], waits: Callable[[], Waits], asked: Mapping[str, Asked] = ASKED
    ) -> None:
        self._pipeline, self._waits, self._questions = pipeline, waits, asked
        self._histories: dict[str, History] = {}
        self._changes = Rates()
        self._newest: Seen | None = None
        self._looked = float("-inf")
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._news = {name: threading.Event() for name in asked}
        self._started = False

    def start(self) -> None:
        """Begin. Idempotent."""
        if not self._started:
            self._started = True
            for name in self._questions:
                threading.Thread(target=self._run, args=(name,), name=f"watching {name}", daemon=True).start()

    def close(self) -> None:
        """End; a look that waits for a server that is away is not waited for."""
        self._stop.set()
        self._hurry()

    @property
    def newest(self) -> Seen | None:
        """What was seen last; None before the first look has ended. Whoever asks has a page open."""
        before, self._looked = self._looked, time.monotonic()
        if self._looked - before > OPEN_SECONDS:
            self._hurry()
        return self._newest

    @property
    def number(self) -> int:
        """Grows with every look at the status."""
        return 0 if self._newest is None else self._newest.number

    def history(self, sink: str) -> History:
        """The last hour of a sink."""
        return self._histories.setdefault(sink, History())

    def look(self, *names: str) -> Seen:
        """Look now, in this thread, and remember it.

        Args:
            names: of questions; all if there are none.
        """
        for name in names or self._questions:
            began, pipeline = time.monotonic(), self._pipeline()
            value, error = None, None
            try:
                value = self._questions[name](pipeline)
            except HeadwaterError as raised:
                error = str(raised)
            except Exception as raised:  # a defect, or a folder that was taken away: the rest is shown all the same
                _log.debug("a look at %s failed", name, exc_info=True, extra={"pipeline": pipeline.name})
                error = f"{type(raised).__name__}: {raised}"
            more = self._beside(pipeline, value) if name == "status" else {}
            if name == "tables":
                more = {"changes": {} if value is None else self._changes.add(time.time(), value)}
            self._note(name, value, error, time.monotonic() - began, more)
        assert self._newest is not None
        return self._newest

    def _beside(self, pipeline: Pipeline, status: Mapping[str, Any] | None) -> dict[str, Any]:
        """What is worked out whenever the sinks were looked at: how old what readers see is, and rates."""
        freshness = {sink: self._fresh(sink) for sink in pipeline.sinks}
        for sink in (status or {"sinks": []})["sinks"]:
            age = age_of(sink, freshness[sink["sink"]]["age"])
            self.history(sink["sink"]).add(sample_of(sink, age, time.time()))
        return {"freshness": freshness, "rates": {sink: self.history(sink).rates() for sink in pipeline.sinks}}

    def _note(self, name: str, value: Any, error: str | None, seconds: float, more: Mapping[str, Any]) -> None:
        with self._lock:
            before = self._newest or Seen(0, 0.0, 0.0)
            errors = {key: why for key, why in before.errors.items() if key != name}
            if error is not None:
                errors[name] = error
            # What is not known any more is not shown as if it was: the error stands in its place.
            # Only a look at the status is news: who reads a page must not lose the line for each of the others.
            number = before.number + (name == "status")
            self._newest = replace(before, number=number, errors=errors, **{name: value}, **more)
            if name == "status":
                self._newest = replace(self._newest, at=time.time(), seconds=seconds)

    def _fresh(self, sink: str) -> dict[str, Any]:
        try:
            as_of, reach = self._waits().as_of(sink, urge=self._open())
        except Exception as error:  # a state folder that is half written, a sink that is being dropped
            return {"as_of": None, "age": None, "reason": str(error)}
        age = None if as_of is None else round(at_least(as_of, time.time()), 3)
        return {"as_of": as_of, "age": age, "reason": None if reach is None else reach.reason}

    def _open(self) -> bool:
        return time.monotonic() - self._looked < OPEN_SECONDS

    def _hurry(self) -> None:
        for news in self._news.values():
            news.set()

    def _run(self, name: str) -> None:
        while not self._stop.is_set():
            self._news[name].clear()
            try:
                self.look(name)
            except Exception:  # who watches must not go blind for good
                _log.exception("a look at %s failed", name, extra={"pipeline": self._pipeline().name})
            self._news[name].wait(LOOKED_AT_SECONDS if self._open() else EVERY_SECONDS)
