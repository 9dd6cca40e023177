"""Captures a database anew that is another one by now, and builds every sink again beside what readers see.

For what no place in the log leads over: an upgrade by pg_upgrade, a green copy, a restore of an older backup. Positions
of the two histories can't be compared, so topics are made anew and every table is read again; readers keep what they
have until each new generation was compared with Postgres. How far it is stands in a note in the state folder, so that
the same command goes on wherever it was killed.

Docs: docs/runbooks.md.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cdc.ages import at_least
from cdc.errors import ConnectError, LogGap, SlotLost, SourceChanged, SourceError, StateError
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.loading import read_pipeline
from cdc.saying import Say
from connectors.actions import Action
from connectors.apply import apply
from connectors.database.history import Moment, read_moment
from connectors.database.publication import by_owner, read_publication
from connectors.drop import deleted_for_good, drop, plan_drop_pipeline
from connectors.gaps.source_gaps import check_source
from connectors.only_copies import GONE, Holds
from connectors.plan_refusals import refuse_unfit
from connectors.postgres import Connection, connect
from connectors.servers import Servers, open_servers
from connectors.snapshots.snapshot import wait_snapshot
from operations.child_process import Apart
from operations.edits.build import build
from operations.edits.handing import noting
from operations.erase.note import Note
from operations.freshness.note import forget_source_note
from operations.generations.outdated import cost
from operations.generations.retire import retire
from operations.rowstore import refuse_no_store
from operations.run.source_watch import forget, memory, remembered
from operations.state.accepted import Text, hand_over, text_of
from operations.state.alone import alone
from operations.state.folder import followed_timelines, pipeline_folder, register_of, registers_of
from operations.state.history import bound_here, history_sinks
from operations.state.pausing import refuse_paused
from spark.disk.files import write_atomic
from spark.disk.made_of import as_defined
from spark.disk.notes import read_note

FILE, LOCK = "recapture.json", "recapture.lock"
STEP_SECONDS = 0.5
# What is known of the tables in the history that is left: its positions would be held against the next one's, and what
# was owed, asked for and let through there was so of tables that the next one may have otherwise.
TABLES = ("shapes.json", "catalogue.json", "owed.json", "asked.json", "allowed.json")


@dataclass(frozen=True)
class Recapture:
    """How far one is.

    Attributes:
        since: when it was begun (epoch seconds).
        system_identifier, timeline: of the database that it captures: of another one nothing is done yet.
        dropped: the old capture is removed.
        captured: every row is in the new topics.
        sinks: name -> whether its new generation equals Postgres, of those that were built.
        lost: topic -> what it was the only copy of, of those that it was forced to delete.
    """

    since: float
    system_identifier: str = ""
    timeline: int = 0
    dropped: bool = False
    captured: bool = False
    sinks: dict[str, bool] = field(default_factory=dict)
    lost: dict[str, Holds] = field(default_factory=dict)


def begun(pipeline: Pipeline) -> Recapture | None:
    """One of the database that is there now, and that has not come to its end; None if there is none.

    One that was ended by hand leaves its note, too: gone on with after the next upgrade, it would remove, capture and
    build nothing.

    Raises:
        StateError: its note can't be read (terminal).
        SourceError: Postgres does not answer (transient), or refuses.
    """
    fix = "remove it, then run the same command again"
    at = read_note(_path(pipeline), lambda note: Recapture(**note), fix)
    return at if at is not None and _goes_on(pipeline, at) else None


def _goes_on(pipeline: Pipeline, at: Recapture) -> bool:
    """Whether the database is the one that was begun with, and what was captured of it can be continued."""
    now = _moment(pipeline)
    followed = {at.timeline, now.timeline} <= followed_timelines(pipeline)
    if now.system_identifier != at.system_identifier or not (now.timeline == at.timeline or followed):
        return False
    seen = remembered(pipeline)
    if not at.captured or seen is None:
        return True
    try:
        check_source(pipeline, seen)  # `run` has been here since; an older copy has the same identifier
    except (SourceChanged, SlotLost, LogGap):
        return False
    return True


def forget_begun(pipeline: Pipeline) -> None:
    """What was begun goes on no more: the pipeline that it was begun with is dropped."""
    _path(pipeline).unlink(missing_ok=True)


def forget_tables(pipeline: Pipeline) -> None:
    """Forget what was known of the tables: their topics are gone, which were read by it."""
    folder = pipeline_folder(pipeline)
    for path in [*(folder / name for name in TABLES), *folder.glob("*/evolution.json")]:
        path.unlink(missing_ok=True)


def _moment(pipeline: Pipeline) -> Moment:
    with connect(pipeline.source) as connection:
        return read_moment(connection)


def costs(pipeline: Pipeline) -> list[str]:
    """What it will take and what is given up, a line each.

    Raises:
        SourceError: Postgres does not answer (transient), or refuses.
        KafkaError: Kafka does not answer (transient), or refuses.
    """
    said = [_history(pipeline), "topics, slot and connector are made anew, and every table is read again"]
    for sink in pipeline.sinks:
        if register_of(pipeline, sink).generation().started:
            found = cost(pipeline, sink)
            much = "" if not found["documents"] else f": about {found['documents']:,}, {found['minutes']:g} minutes"
            said.append(f"sink {sink} is built again beside what readers see{much}; older generations are removed")
    said += [f"the history of sink {sink} ends here: first {_ELSEWHERE}" for sink in _ending(pipeline)]
    if lost := deleted_for_good(pipeline):
        said += [f"topic {topic} is deleted: {GONE[holds]}" for topic, holds in lost.items()]
        said.append(
            "sinks that are made of these topics are built of what is read again, and compared with that: they lose it "
            "too, and are found equal. Without --force it is refused"
        )
    return [*said, "dead letters are forgotten, and write tokens that were given out before say nothing any more"]


# Of a history that can't go on. Afterwards it would have the sink filled a second time.
_ELSEWHERE = (
    "give the sink another `namespace` in the file, where its history begins anew (its tables are there then, too; the "
    "old history stays readable where it is), or take `history` out"
)


def _ending(pipeline: Pipeline) -> list[str]:
    return [sink for sink in history_sinks(pipeline) if bound_here(pipeline, sink)]


def _refuse_ending(pipeline: Pipeline) -> None:
    if ending := _ending(pipeline):
        raise StateError(
            f"the history of sink {', '.join(ending)} can't go on with a database that is captured anew",
            means="in one table the two could not be told apart; nothing was changed",
            fix=f"{_ELSEWHERE}; then the same again",
        )


def _refuse_lost(lost: dict[str, Holds]) -> None:
    """Refuse what nobody has asked for by name: the sinks, which are the other copy, are built again of the new log."""
    if lost:
        raise StateError(
            "topics would be deleted that are the only copy of what they hold: "
            + "; ".join(f"{topic}: {GONE[holds]}" for topic, holds in lost.items()),
            means="sinks that are made of them would be built without it, and found equal; nothing was changed",
            fix="copy those topics to others first, if what is in them is needed; then the same with --force",
        )


def _refuse_rows_left(pipeline: Pipeline) -> None:
    """Each generation is removed in the end, and one whose rows can't be is refused then: after all of the work."""
    for register in registers_of(pipeline, ()).values():
        for generation in [register.generation(entry.number) for entry in register.entries()]:
            refuse_no_store(as_defined(pipeline, generation), generation)


def _history(pipeline: Pipeline) -> str:
    now = _moment(pipeline)
    # Of two databases of one cluster the identifier is the same: which one is meant is told by its name only.
    where = f"{pipeline.source.address} (database {pipeline.source.database})"
    try:
        known = json.loads(memory(pipeline).read_text())["system_identifier"]
    except (FileNotFoundError, ValueError, KeyError):
        return f"{where} has the system identifier {now.system_identifier}"
    if known == now.system_identifier:
        return f"{where} is the Postgres cluster that was captured, by its system identifier"
    return f"{where} has the system identifier {now.system_identifier}; what was captured had {known}"


def recapture(pipeline: Pipeline, file: Path, say: Say, *, force: bool = False) -> dict[str, Any]:
    """Do it, or go on with it.

    Args:
        pipeline: the loaded file.
        file: its path.
        say: told what happens, a line each.
        force: also if events, or former versions of rows, are lost by it.

    Returns:
        the shape of ``--json``: ``equal`` is whether every new generation equals Postgres, and readers see it;
        ``differs`` the generation that was built and does not; ``lost`` what was forced.

    Raises:
        StateError: another one is at work, or a sink is paused, or a process runs one, or a sink's history would end in
            the namespace that the file names, or events or versions would be lost and it is not forced (terminal;
            nothing was changed).
        ConfigError: a generation has rows in a row store, and the file has none (terminal; nothing was changed).
        SourceChanged, SourceError: what the file names is not what was captured, as another database of the same
            cluster is; or its publication is another role's, or a table can't be captured (terminal; nothing was
            changed).
        HeadwaterError: a server refused, or does not answer: the same command goes on.
    """
    busy = StateError(
        f"another recapture of pipeline {pipeline.name} is at work",
        means="this one would remove what that one captures; it has changed nothing",
        fix="wait until that one has ended; then the same command goes on, if anything is left to do",
    )
    with alone(pipeline, LOCK, busy):
        return _recapture(pipeline, file, say, force=force)


def _recapture(pipeline: Pipeline, file: Path, say: Say, *, force: bool) -> dict[str, Any]:
    refuse_paused(pipeline, list(pipeline.sinks), "nothing was changed")
    _refuse_running(pipeline)
    erasing = StateError(
        f"an erasure of pipeline {pipeline.name} is at work, or an `apply`",
        means="this would remove topics under it; nothing was changed",
        fix="run it again when that one has ended",
    )
    with Note(pipeline).alone(erasing):
        at, data = _made_anew(pipeline, file, say, force=force)
    if not at.captured:
        say("every table is read again")
        if not wait_snapshot(pipeline).done:
            raise ConnectError("the snapshot did not come to its end", fix="run the same command again")
        at = _note(pipeline, replace(at, captured=True))
    for sink, register in registers_of(pipeline, ()).items():
        if not at.sinks.get(sink) and register.generation().started:
            at = _note(
                pipeline, replace(at, sinks={**at.sinks, sink: _build(pipeline, text_of(file, data), sink, say)})
            )
    sinks = [_told(pipeline, sink, good) for sink, good in at.sinks.items() if sink in pipeline.sinks]
    equal = all(one["equal"] for one in sinks)
    if equal:
        forget_begun(pipeline)
    seconds = round(at_least(at.since, time.time()), 1)
    lost = [{"topic": topic, "holds": holds} for topic, holds in sorted(at.lost.items())]
    return {"pipeline": pipeline.name, "equal": equal, "sinks": sinks, "lost": lost, "seconds": seconds}


def _made_anew(pipeline: Pipeline, file: Path, say: Say, *, force: bool) -> tuple[Recapture, bytes]:
    """Slot, topics and connector as the file says, in place of those of before; nobody erases meanwhile.

    Returns:
        how far it is, and the file.
    """
    _refuse_rows_left(pipeline)
    at = begun(pipeline) or _from_the_beginning(pipeline)
    if not at.dropped:
        _refuse_ending(pipeline)
        with open_servers(pipeline) as servers:
            _refuse_publication(pipeline, servers.setup)
            refuse_unfit(servers, anew=True)  # as `apply` will: it only warns of some tables while they are captured
        plan_drop_pipeline(pipeline, topics=True)  # refuses what may not be dropped, while all is there still
        lost = deleted_for_good(pipeline)
        if not force:
            _refuse_lost(lost)
        at = replace(at, lost={**at.lost, **lost})  # of one that was killed while it dropped some are gone by now
    _note(pipeline, at)
    if not at.dropped:
        _leave(pipeline, say)
        at = _note(pipeline, replace(at, dropped=True))
    data = read_pipeline(file)
    if not at.captured:
        with suppress(StateError):  # the next erasure says so, and that `apply` is the way out
            Note(pipeline).forget_topics()  # of a killed one: they are gone, and others get their names
        apply(
            loads(data, str(file)),
            lambda action: say(f"{action.kind} {action.name}: {action.detail}"),
            begins=noting(pipeline),
        )
        hand_over(pipeline, text_of(file, data))
    return at, data


def _refuse_publication(pipeline: Pipeline, setup: Connection) -> None:
    """Refuse a publication of another role: `drop` leaves it, our tables go out of it as they are dropped, and `apply`
    could not put the new ones in. One of all tables takes them by itself."""
    name = pipeline.source.publication
    actual, version = read_publication(setup, name), setup.info.server_version
    if actual is None or actual.owned or (actual.whole_database and actual.right_options):
        return
    raise SourceError(
        f"publication {name} belongs to {actual.owner}: what is captured anew could not be put into it",
        means="nothing was changed",
        fix=by_owner(actual, name, version),
    )


def _from_the_beginning(pipeline: Pipeline) -> Recapture:
    now = _moment(pipeline)
    return Recapture(time.time(), now.system_identifier, now.timeline)


def _told(pipeline: Pipeline, sink: str, equal: bool) -> dict[str, Any]:
    register = register_of(pipeline, sink)
    ready = None if equal else register.newest("ready")
    differs = None if ready is None else ready.number
    return {"sink": sink, "generation": register.living(), "equal": equal, "differs": differs}


def _refuse_running(pipeline: Pipeline) -> None:
    for sink, register in registers_of(pipeline, ()).items():
        for number in register.written():
            if register.generation(number).lease.held_by_other():
                raise StateError(
                    f"sink {sink} is run by another process",
                    means="it would go on with the capture that is left; nothing was changed",
                    fix="stop `headwater run` first",
                )


def _leave(pipeline: Pipeline, say: Say) -> None:
    """Remove the old capture, what is known of its history, and all generations that readers do not see."""

    def retired(_: Servers) -> None:
        for sink, register in registers_of(pipeline, ()).items():
            for entry in register.entries():
                if entry.stage != "living":
                    retire(pipeline, sink, entry.number, say)
        say("removing slot, topics and connector of the database that was captured")

    # By `drop`, which waits first for who applies or drops: nothing is removed before that one has ended.
    first = Action("state", pipeline.name, "remove all generations that readers do not see", "present", None, retired)
    drop(pipeline, topics=True, first=[first])
    forget(pipeline)
    forget_source_note(pipeline)
    forget_tables(pipeline)


def _build(pipeline: Pipeline, taken: Text, sink: str, say: Say) -> bool:
    """A sink's new generation, in a process of its own; the one that it replaces is of no use any more."""
    with Apart(build, taken, sink, None) as child:
        child.follow(say, lambda: time.sleep(STEP_SECONDS))
        equal = child.result()
    if equal:
        for entry in register_of(pipeline, sink).previous():
            retire(pipeline, sink, entry.number, say)
    return equal


def _path(pipeline: Pipeline) -> Path:
    return pipeline_folder(pipeline) / FILE


def _note(pipeline: Pipeline, at: Recapture) -> Recapture:
    write_atomic(_path(pipeline), json.dumps(asdict(at)))
    return at
