"""Who reads a table's topic: every generation of every sink, and histories; and whether they have read far enough."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cdc.errors import Behind, HeadwaterError
from cdc.join.view import JoinedView
from cdc.log.ends import Offsets, reached
from cdc.resolve.views import resolve_views, view_tables
from cdc.view import View
from operations.erase.subject import Subject
from operations.opened import Opened, going_on
from operations.state.folder import register_of
from operations.state.frozen import known_to
from operations.state.history import STREAM, history_folder, history_lease, history_sinks, root_tables, topics_read
from sinks.rowstore.redis import RedisRowStore
from spark.disk.applied import applied_offsets
from spark.disk.register import Registered
from spark.disk.status import FlowStatus
from spark.flow import flow_name

LOOK_SECONDS, SAY_SECONDS = 0.5, 5.0
# A row store that does not answer is told, not waited for.
PATIENCE = {"give_up_seconds": 5.0, "request_timeout_seconds": 5.0}


@dataclass(frozen=True)
class Build:
    """A generation that shows the table.

    Attributes:
        entry: what the register says of it.
        opened: the generation, looked at.
        views: those of its views that take rows of the table.
    """

    entry: Registered
    opened: Opened
    views: tuple[View, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"sink {self.opened.sink}, generation {self.opened.number}"


def builds_of(subject: Subject) -> list[Build]:
    """Every generation that has ever run and takes rows of the table.

    Raises:
        ConfigError: a generation's views do not fit the source's tables (terminal).
        StateError: a register can't be read (terminal).
    """
    found = []
    for sink in subject.pipeline.sinks:
        register = register_of(subject.pipeline, sink)
        for entry in register.entries():
            generation = register.generation(entry.number)
            if not generation.started:
                continue  # nothing was written
            catalogue = known_to(subject.pipeline, generation, subject.catalogue)
            defined = going_on(subject.pipeline, generation, catalogue)
            views = resolve_views(defined, catalogue, sink)
            mine = tuple(view for view in views if subject.name in view_tables(view))
            holder = generation.lease.holder()
            if mine:
                opened = Opened(defined, generation, views, holder.token if holder else 0)
                found.append(Build(entry, opened, mine))
    return found


def histories_of(subject: Subject) -> list[str]:
    """Sinks that keep the table's history, and have begun to; also those that kept it, and go on reading its topic."""
    pipeline, topic = subject.pipeline, subject.pipeline.topic(subject.name)
    return [
        sink
        for sink in history_sinks(pipeline)
        if topic in topics_read(pipeline, sink)
        or (subject.name in root_tables(pipeline, subject.catalogue, sink) and history_folder(pipeline, sink).exists())
    ]


@dataclass(frozen=True)
class _Reader:
    """A checkpoint that must have come far enough."""

    name: str
    folder: Path
    alive: bool
    fix: str
    failed: bool = False


class Late(NamedTuple):
    """Who has not read as far as he must.

    Attributes:
        who: for people.
        fix: what to do.
        coming: he runs and has not failed: an erasure waits for him.
    """

    who: str
    fix: str
    coming: bool


_RUN = "let `headwater run FILE` run"


def _readers(subject: Subject, builds: Sequence[Build]) -> list[_Reader]:
    found = []
    for build in builds:
        opened = build.opened
        alive = opened.generation.lease.busy()
        idle = build.entry.stage in ("previous", "ready", "retiring")
        retire = f"`headwater retire FILE {opened.sink} --generation {opened.number}`"
        for flow in sorted({flow_name(view, separate=opened.warehouse) for view in build.views}):
            at = opened.generation.flow_folder(flow)
            status = FlowStatus.read(at) if alive else None
            failed = status is not None and status.state == "failed"
            if failed:
                # It runs, and will not come there: waiting is no way.
                name, fix = ", which has failed", retire if idle else "`headwater status FILE` says what to do about it"
            else:
                name, fix = "", f"{retire}, or {_RUN}" if idle and not alive else _RUN
            if build.entry.stage == "filling" and not alive:
                # `run` takes up what is ready: only the same rebuild goes on with one that is half filled.
                fix = f"`headwater rebuild FILE {opened.sink}` goes on with it, or {retire}"
            found.append(_Reader(f"{build.name}, flow {flow}{name}", at, alive, fix, failed))
    for sink in histories_of(subject):
        folder = history_folder(subject.pipeline, sink)
        alive = history_lease(folder, sink).busy()
        found.append(_Reader(f"history of sink {sink}", folder / STREAM, alive, _RUN))
    return found


def behind(subject: Subject, builds: Sequence[Build], goal: Offsets) -> list[Late]:
    """Who has not read up to these ends of the topic; documents that a fan-out has left are told."""
    found = []
    for reader in _readers(subject, builds):
        if not reached(applied_offsets(reader.folder), goal):
            who = reader.name + ("" if reader.alive else ", which nobody runs")
            found.append(Late(who, reader.fix, reader.alive and not reader.failed))
    for build in builds:
        for view in build.views:
            if isinstance(view, JoinedView) and (left := _waiting(build, view)):
                who = f"{build.name}: {left} documents of view {view.name} wait to be made"
                found.append(Late(who, "wait for them", build.opened.generation.lease.busy()))
    return found


def _waiting(build: Build, view: View) -> int | str:
    store = RedisRowStore(build.opened.row_store(view, **PATIENCE))
    try:
        return store.waiting()
    except HeadwaterError as error:
        return f"nobody knows how many ({error.what})"
    finally:
        store.close()


def await_readers(
    subject: Subject, builds: Sequence[Build], goal: Offsets, seconds: float, so: str = "nothing was erased"
) -> None:
    """Wait until all have read up to these ends; ``so``: what was done by now, in words.

    Raises:
        Behind: some have not, by then (transient).
    """
    until, told = time.monotonic() + seconds, time.monotonic() + 2.0
    while late := behind(subject, builds, goal):
        if time.monotonic() > until:
            raise Behind(
                f"the log's newest records of {subject.name} have not been applied by: "
                + "; ".join(one.who for one in late),
                means=f"what they have not read could not be erased there; {so}",
                fix="; ".join(dict.fromkeys(one.fix for one in late)) + "; or wait longer (--wait)",
            )
        if time.monotonic() > told:
            subject.say(f"waiting for {late[0].who}")
            told = time.monotonic() + SAY_SECONDS
        time.sleep(LOOK_SECONDS)
