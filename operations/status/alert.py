"""A word to whoever has no Prometheus: what is bad for a while, and when it is well again, is told.

It goes to the log of `run` always: who has nothing else would see no difference between an outage and a quiet night.
And to the webhook of ``policy.alert``, if the file has one. What is told is the judgement that `status` shows. It is
told by a thread of its own: a webhook that does not answer, or says no, is tried again, and never disturbs `run`.
What it has taken is noted: what only a new `run` cures is told to be well by that one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import requests

from cdc.pipeline import Alert, Pipeline
from cdc.saying import Say
from operations.freshness.keeper import Keeper
from operations.state.alarms import SOURCE, WAL, Told, forget_alarms, subject_of
from operations.state.folder import register_of
from operations.state.wal import read_weighed
from operations.status.facts import judged_apart
from operations.status.judgement import Judgement
from operations.status.wal import judge_wal

LOOK_SECONDS = 2.0
# Without a webhook nobody waits for the second: a look reads what every flow has told.
CALM_LOOK_SECONDS = 10.0
# For how long something must be bad before the log tells; a slow start, or a server's restart, passes.
LOG_AFTER_SECONDS = 60.0
REQUEST_SECONDS = 10.0
# Between two attempts to reach a webhook; what it was to be told waits, the oldest is dropped when it is too much.
AGAIN_SECONDS = 15.0
KEPT = 100
# States of a flow behind which a process is alive.
_AT_WORK = frozenset(("starting", "filling", "running", "retrying"))
_log = logging.getLogger(__name__)


@dataclass
class _Trouble:
    """Something that is bad."""

    since: float
    told: bool = False


class Alarms:
    """What is to be told, given how everything is from moment to moment. Asks nobody.

    Args:
        pipeline: its name.
        after_seconds: for how long something must be bad.
        before: since when a subject is bad of which an earlier process has told; asked once it is seen first.
    """

    def __init__(
        self, pipeline: str, after_seconds: float, before: Callable[[str], float | None] = lambda _: None
    ) -> None:
        self.pipeline, self.after_seconds, self._before = pipeline, after_seconds, before
        self._seen: frozenset[str] = frozenset()
        self._troubles: dict[str, _Trouble] = {}

    def step(self, now: float, found: Mapping[str, Judgement]) -> list[dict[str, Any]]:
        """What is news.

        Args:
            now: epoch seconds.
            found: how each subject is: a sink, the source, or the WAL that its slot keeps.

        Returns:
            messages, as docs/operations.md shows them. A sink that is not there any more needs none.
        """
        said = []
        for subject, judgement in found.items():
            if subject not in self._seen and (since := self._before(subject)) is not None:
                self._troubles[subject] = _Trouble(since, told=True)
            trouble = self._troubles.get(subject)
            if judgement.judgement == "starting" and trouble is not None and trouble.told:
                continue  # nobody knows yet whether that was the cure
            if not judgement.bad:
                if trouble is not None and trouble.told:
                    said.append(self._message("well", subject, judgement, trouble.since, now))
                self._troubles.pop(subject, None)
                continue
            if trouble is None:
                trouble = self._troubles[subject] = _Trouble(now)
            trouble.since = min(trouble.since, now)  # not after it: the clock was put back
            if not trouble.told and now - trouble.since >= self.after_seconds:
                trouble.told = True
                said.append(self._message("alarm", subject, judgement, trouble.since, now))
        self._troubles = {subject: one for subject, one in self._troubles.items() if subject in found}
        self._seen = frozenset(found)
        return said

    def _message(self, event: str, subject: str, judgement: Judgement, since: float, now: float) -> dict[str, Any]:
        why = f": {judgement.cause}" if judgement.cause else ""
        todo = f" ({judgement.remedy})" if judgement.remedy else ""
        return {
            "event": event,
            "pipeline": self.pipeline,
            "subject": subject,
            "judgement": judgement.judgement,
            "cause": judgement.cause,
            "remedy": judgement.remedy,
            "since": since,
            "at": now,
            # What chat programs show of a message.
            "text": f"{self.pipeline}, {subject}: {judgement.judgement}{why}{todo}",
        }


class Alerting:
    """A context manager: while it lasts, what is bad is told, and the webhook of the file, if it has one, too.

    Args:
        keeper: knows the pipeline, and which sinks this process runs.
        say: told what is bad; and when the webhook can't be reached, and when it can again.
        post: sends a message to an address; replaced in tests.
    """

    def __init__(self, keeper: Keeper, say: Say, post: Callable[[str, Mapping[str, Any]], None] | None = None) -> None:
        self.keeper, self.say, self.post = keeper, say, post or send
        self.alert: Alert | None = keeper.pipeline.policy.alert
        url = None if self.alert is None else self.alert.webhook.get_secret_value()
        self._told = None if url is None else Told(keeper.pipeline, url)
        self._sinks: frozenset[str] | None = None
        self._unsent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._again = 0.0
        self._failing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerting", daemon=True)

    def __enter__(self) -> Alerting:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()  # it may wait for the webhook; nobody waits for it

    def _run(self) -> None:
        logged = Alarms(self.keeper.pipeline.name, LOG_AFTER_SECONDS)
        sent = None
        if self.alert is not None and self._told is not None:
            sent = Alarms(self.keeper.pipeline.name, self.alert.after_seconds, self._told.since)
        while not self._stop.wait(CALM_LOOK_SECONDS if sent is None else LOOK_SECONDS):
            try:
                self._forget_gone(self.keeper.pipeline)
                found = self._look(self.keeper.pipeline)
                # Of the WAL the log has lines of its own, from the moment on.
                for message in logged.step(time.time(), {what: how for what, how in found.items() if what != WAL}):
                    self.say(_line(message))
                if self.alert is not None and sent is not None:
                    self._unsent.extend(sent.step(time.time(), found))
                    self._deliver(self.alert.webhook.get_secret_value())
            except Exception as error:  # what it would have told is in `status`, too
                _log.debug("alarms: %s", error)

    def _forget_gone(self, pipeline: Pipeline) -> None:
        """What was told of sinks that the file does not have any more, and of all of them where it has no webhook."""
        sinks = frozenset(pipeline.sinks)
        if sinks != self._sinks:
            self._sinks = sinks
            forget_alarms(pipeline, keep=() if self._told is None else {*map(subject_of, sinks), SOURCE, WAL})

    def _look(self, pipeline: Pipeline) -> dict[str, Judgement]:
        """Of this process's sinks; of the source and its WAL too, unless another process tells of them."""
        only = self.keeper.only
        source, sinks = judged_apart(pipeline, only)
        found = {subject_of(name): judgement for name, judgement in sinks.items()}
        if _tells_of_source(pipeline, only):
            found[SOURCE], found[WAL] = source, judge_wal(read_weighed(pipeline))
        return found

    def _deliver(self, url: str) -> None:
        if time.monotonic() < self._again:
            return
        while self._unsent:
            try:
                self.post(url, self._unsent[0])
            except (OSError, ValueError) as error:  # also REQUESTS_CA_BUNDLE of a file that is not there
                self._again = time.monotonic() + AGAIN_SECONDS
                if not self._failing:  # the address is a secret, and stands in the error's text
                    self.say(f"warning: policy.alert.webhook does not take an alarm ({_why(error)}); it is tried again")
                self._failing = True
                return
            taken = self._unsent.popleft()
            if self._told is not None:
                self._told.note(taken)
            if self._failing:
                self._failing = False
                self.say("policy.alert.webhook takes alarms again")


def _tells_of_source(pipeline: Pipeline, only: Collection[str]) -> bool:
    """Whether what is of all sinks is told here: by one of several processes, the one that has the first of the file's
    sinks, by name, that any of them has. One that is paused shows none, so that two may tell then; never nobody."""
    for sink in sorted(pipeline.sinks):  # their files may have them in different orders
        if not only or sink in only:
            return True
        if _is_run(pipeline, sink):
            return False
    return True


def _is_run(pipeline: Pipeline, sink: str) -> bool:
    """Whether another process is at work on a sink, or waits to be."""
    try:
        generation = register_of(pipeline, sink).generation()
        return generation.lease.held_by_other() or not _AT_WORK.isdisjoint(generation.states().values())
    except Exception as error:  # a file of the state folder may hold anything after a restore
        _log.debug("whether sink %s is run can't be read: %s", sink, error)
        return False


def _line(message: Mapping[str, Any]) -> str:
    """A message as a line of the log, which knows the pipeline's name."""
    text = str(message["text"]).partition(", ")[2]
    return f"warning: {text}" if message["event"] == "alarm" else text


def send(url: str, message: Mapping[str, Any]) -> None:
    """Post a message as JSON.

    Raises:
        requests.RequestException: no answer, or another one than 2xx: also a redirect, which is not followed.
    """
    answer = requests.post(url, json=message, timeout=REQUEST_SECONDS, allow_redirects=False)
    if not 200 <= answer.status_code < 300:
        raise requests.HTTPError(f"status {answer.status_code}", response=answer)


def _why(error: Exception) -> str:
    answer = getattr(error, "response", None)
    if answer is None:
        return type(error).__name__
    moved = ", and redirects are not followed: give it the address that this one leads to"
    return f"it answers {answer.status_code}" + (moved if 300 <= answer.status_code < 400 else "")
