"""A sink that is paused for a maintenance window: nothing is written to it until it is resumed.

    <state_dir>/<pipeline>/<sink>/paused.json       since when, by whom, why; gone when it is resumed
    <state_dir>/<pipeline>/<sink>/resumed           empty: made when it is; as old as that is long ago

The note is what counts, whichever process is alive: `run` lets the sink's generations go as it sees it, and one that
starts later does not take them. Imports nothing heavy: `run` looks at every step, `status` is asked often.
"""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from cdc.ages import ago
from cdc.errors import StateError
from cdc.journal import Line
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.state.alone import ERASING, is_held
from operations.state.folder import chosen_sinks, numbered_state_dir, refuse_not_begun, register_of, state_dir
from operations.state.history import history_folder, history_lease
from spark.disk.files import write_atomic
from spark.disk.lease import Lease
from spark.disk.notes import read_note

# How long whoever writes to the sink may take to let go: a task ends what it has begun, a merge its commit.
LET_GO_SECONDS = 60.0

# How long after that `run` may still be on its way to take a sink up: flows are planned and opened one after the
# other. As long as one that opens flows anew may be silent (spark/disk/status.py).
TAKEN_UP_SECONDS = 120.0

# Of a pause whose note can't be read, in place of who has made it.
UNKNOWN = "somebody whose note can't be read"

# How the reason of a pause begins that an erasure made, and takes back at its end (``operations.erase.warehouse``).
ERASURE = "headwater erase "


@dataclass(frozen=True)
class Pause:
    """Why a sink stands still.

    Attributes:
        since: epoch seconds; 0 if that is not known.
        by: user and machine.
        why: in that person's words; None if nothing was said.
    """

    since: float
    by: str
    why: str | None = None

    @property
    def words(self) -> str:
        """``since 2026-11-21 10:00:00 UTC by ann@host (new disks)``."""
        at = time.strftime("since %Y-%m-%d %H:%M:%S UTC ", time.gmtime(self.since)) if self.since else ""
        return f"{at}by {self.by}" + (f" ({self.why})" if self.why else "")

    @property
    def erasing(self) -> bool:
        """Whether an erasure made it: a sink that goes on meanwhile writes to the tables that are written anew."""
        return (self.why or "").startswith(ERASURE)


def paused(pipeline: Pipeline, sink: str) -> Pause | None:
    """The pause of a sink; None if it is not paused. For who writes the note anew: all others ask ``pause_of``.

    Raises:
        StateError: the note can't be read (terminal): better nothing is written than something into a sink that was
            to be left alone.
    """
    return read_note(
        _path(pipeline, sink),
        lambda note: Pause(float(note["since"]), str(note["by"]), note["why"]),
        f"`headwater pause FILE {sink}` or `headwater resume FILE {sink}`, as is meant: both write it anew",
        "nobody knows whether the sink is to be left alone",
    )


def pause_of(pipeline: Pipeline, sink: str) -> Pause | None:
    """The pause of a sink; None if it is not paused. One whose note can't be read is left alone as well: the others go
    on, and whoever is told of the pause is told why."""
    try:
        return paused(pipeline, sink)
    except StateError as error:
        return Pause(0.0, UNKNOWN, error.what)


def resumed_lately(pipeline: Pipeline, sink: str) -> bool:
    """Whether a sink was resumed so short a time ago that a `run` at work may not have taken it up yet: until then what
    its flows say is what they said when they were let go."""
    try:
        return ago(_resumed(pipeline, sink).stat().st_mtime, time.time()) <= TAKEN_UP_SECONDS
    except OSError:
        return False


def rests(pipeline: Pipeline, sink: str) -> bool:
    """Whether a sink is to be left alone: what follows it does nothing meanwhile, and nobody is alarmed of that."""
    return pause_of(pipeline, sink) is not None


def paused_sinks(pipeline: Pipeline, only: Sequence[str]) -> dict[str, Pause]:
    """Those of these sinks (none for all) that are paused."""
    found = {name: pause_of(pipeline, name) for name in chosen_sinks(pipeline, only)}
    return {name: pause for name, pause in found.items() if pause is not None}


def resume_before(pipeline: Pipeline, pause: Pause) -> float:
    """Until when (epoch seconds) the log remembers the deletes that a sink misses which was up to date when paused; 0
    if nobody knows."""
    return pause.since + pipeline.kafka.tombstone_retention_hours * 3600 if pause.since else 0.0


def is_left(pipeline: Pipeline, pause: Pause) -> bool:
    """Whether a pause is of an erasure that is at work no more: it was killed, or somebody did not let go in time."""
    return pause.erasing and not is_held(pipeline, ERASING)


def way_on(resumed: str) -> str:
    """What ends the pause of an erasure that is at work no more. Pure.

    Args:
        resumed: the command that resumes the sink.
    """
    return f"that erasure is at work no more: {resumed}, or any next `headwater erase --yes`"


def paused_lines(pipeline: Pipeline, found: Mapping[str, Pause]) -> list[str]:
    """What `run` says of sinks that it leaves alone, a line each."""
    return [
        Line(f"sink {name} is paused {pause.words}: {_way(pipeline, name, pause)}", sink=name)
        for name, pause in found.items()
    ]


def _way(pipeline: Pipeline, sink: str, pause: Pause, file: str = "FILE") -> str:
    resumed = f"`headwater resume {file} {sink}`"
    if is_left(pipeline, pause):
        return way_on(resumed)
    if pause.erasing:  # resumed now it would write into tables that are written anew
        return "it goes on when that erasure has ended"
    return resumed


def refuse_paused(pipeline: Pipeline, sinks: Sequence[str], what: str) -> None:
    """Refuse to do something with sinks that are to be left alone.

    Args:
        pipeline: the loaded file.
        sinks: none for all.
        what: is not done, as a clause: ``nothing was promoted``.

    Raises:
        StateError: one of them is paused (terminal).
    """
    found = paused_sinks(pipeline, sinks)
    if found:
        names = "; ".join(f"sink {name} is paused {pause.words}" for name, pause in found.items())
        sink, first = next(iter(found.items()))
        way = _way(pipeline, sink, first, str(pipeline.file or "FILE"))
        raise StateError(names, means=f"it is to be left alone: {what}", fix=f"{way}; then the same again")


def pause(pipeline: Pipeline, sink: str, why: str | None, say: Say) -> tuple[Pause, bool]:
    """Pause a sink, and wait until whoever writes to it has let go. Idempotent.

    Returns:
        the pause, and whether it is a new one: one that stands goes on as it was begun, but for an erasure's, which
        ends with the erasure: a person's takes its place.

    Raises:
        ConfigError: there is no such sink (terminal).
        StateError: a process has not let go within a minute; the note stays, so that the same again waits for it. Or
            somebody has resumed the sink meanwhile. Or no `run` has this state folder (nothing was noted then).
    """
    chosen_sinks(pipeline, [sink])
    refuse_not_begun(pipeline, "no `run` looks for a pause there, so the sink would be written to; nothing was noted")
    try:
        known = paused(pipeline, sink)
    except StateError:
        known = None
    now = Pause(time.time(), f"{_user()}@{socket.gethostname()}", why)
    new = known is None or _ends_before(known, now)
    if new:
        numbered_state_dir(pipeline)
        path = _path(pipeline, sink)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(now)))
    _wait_for_holders(pipeline, sink, say)
    stands = pause_of(pipeline, sink)
    if stands is None or _ends_before(stands, now):  # an erasure may have looked at the note just before it was written
        raise StateError(
            f"sink {sink} is not paused: it was resumed, or an erasure has begun with it, while it was waited for",
            means="it may be written to",
            fix="`headwater pause` again, if it is still to be left alone",
        )
    return stands, new


def _ends_before(known: Pause, now: Pause) -> bool:
    """Whether a pause is an erasure's, which would end with that under a person who wants another one."""
    return known.erasing and not now.erasing


def resume(pipeline: Pipeline, sink: str) -> Pause | None:
    """Let a sink go on; the pause that has ended, None if there was none. Idempotent.

    Raises:
        ConfigError: there is no such sink (terminal).
    """
    chosen_sinks(pipeline, [sink])
    try:
        known = paused(pipeline, sink)
    except StateError:
        known = Pause(time.time(), UNKNOWN)
    if known is not None:  # before the pause ends: nobody must find neither
        _resumed(pipeline, sink).touch()
    _path(pipeline, sink).unlink(missing_ok=True)
    return known


def _wait_for_holders(pipeline: Pipeline, sink: str, say: Say) -> None:
    """Until no process has a generation of the sink, or its history; each is taken for a moment: one that was frozen is
    fenced then."""
    register = register_of(pipeline, sink)
    for entry in register.entries():
        generation = register.generation(entry.number)
        if generation.folder.exists():  # else it was never run
            _wait_for(sink, f"generation {entry.number}", generation.lease, say)
    folder = history_folder(pipeline, sink)
    if folder.exists():  # whether the file keeps it still or not: a `run` that goes by another one writes it
        _wait_for(sink, "its history", history_lease(folder, sink), say)


def _wait_for(sink: str, what: str, lease: Lease, say: Say) -> None:
    holder = lease.holder()
    if lease.busy() and holder is not None:
        say(f"waiting until process {holder.pid} has let go of {what}")
    held = retry_if_exception_type(StateError)
    try:
        Retrying(stop=stop_after_delay(LET_GO_SECONDS), wait=wait_fixed(0.2), retry=held, reraise=True)(lease.take)
    except StateError as error:
        raise StateError(
            f"sink {sink} is paused, but {what} is still held: {error.what}",
            means="that process may still write to it",
            fix="the same again waits for it once more; or end that process",
        ) from error
    lease.release()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's number without a name
        return "somebody"


def _path(pipeline: Pipeline, sink: str) -> Path:
    return state_dir(pipeline) / pipeline.name / sink / "paused.json"


def _resumed(pipeline: Pipeline, sink: str) -> Path:
    return _path(pipeline, sink).with_name("resumed")
