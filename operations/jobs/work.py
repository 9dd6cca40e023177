"""What each kind of job does: the verb of the same name, with its refusals and its words.

What takes long, or may start Spark, is done in a process of its own, which reads the pipeline file as the verb does.
What a job leaves behind is read by whoever may read: so none of them tells what rows hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from cdc.errors import ConfigError, StateError
from cdc.pipeline import Pipeline, load
from cdc.saying import Say
from operations.child_process import Apart
from operations.generations.lag import refuse_far_behind
from operations.generations.promote import candidate, promote
from operations.generations.retire import retire
from operations.jobs.job import Job
from operations.losses.steps import rebuild
from operations.state.letters import refuse_more_letters
from operations.state.pausing import pause, refuse_paused, resume

# Between two looks at a process of its own.
LOOK_SECONDS = 0.3
# As `verify --wait`.
WAIT_SECONDS = 10.0


def work(job: Job, pipeline: Pipeline, say: Say, stop: Event) -> dict[str, Any]:
    """Do a job.

    Args:
        job: what.
        pipeline: as the file says now.
        say: told a line now and then.
        stop: set when the server is told to end.

    Returns:
        in the shape of the verb's ``--json``.

    Raises:
        HeadwaterError: as the verb.
    """
    if job.verb in _STEPS:
        asked = {**job.asked, "generation": job.generation}
        return _apart(_STEPS[job.verb], pipeline, (job.sink, asked), say, stop)
    assert job.sink is not None  # refuse_unfit
    if job.verb == "rebuild":
        refuse_paused(pipeline, [job.sink], "nothing is filled")
        _apart(rebuild_step, pipeline, (job.sink,), say, stop)
        return {"sink": job.sink, "stage": "ready"}
    if job.verb == "pause":
        found, changed = pause(pipeline, job.sink, job.why, say)
        return {"paused": True, "changed": changed, "since": found.since}
    if job.verb == "resume":
        return {"paused": False, "changed": resume(pipeline, job.sink) is not None}
    return _generation(job, pipeline, job.sink, say)


def _generation(job: Job, pipeline: Pipeline, sink: str, say: Say) -> dict[str, Any]:
    """What is done with one generation; the choice is the verb's where none was named."""
    if job.verb == "retire":
        # One that readers see is refused by its name, and not as if it was not there.
        named = () if job.generation is None else ("ready", "filling", "living")
        entry = candidate(pipeline, sink, job.generation, "previous", "retiring", *named)
        return retire(pipeline, sink, entry.number, say)
    stages = ("previous",) if job.verb == "rollback" else ("ready", "previous", "living")
    entry = candidate(pipeline, sink, job.generation, *stages)
    if job.verb == "promote":
        refuse_far_behind(pipeline, sink, entry.number)
    refuse_more_letters(pipeline, sink, entry.number)
    return promote(pipeline, sink, entry.number, say)


def _apart(
    step: Callable[..., Any], pipeline: Pipeline, arguments: tuple[Any, ...], say: Say, stop: Event
) -> dict[str, Any]:
    if pipeline.file is None:
        raise ConfigError("the pipeline has no file", fix="serve it from one")
    with Apart(step, Path(pipeline.file), *arguments) as process:

        def wait() -> None:
            if stop.wait(LOOK_SECONDS) and not process.ended():
                raise StateError("the server was stopped", means="what is done stays", fix="the same again goes on")

        process.follow(say, wait)
        result: dict[str, Any] = process.result()
        return result


# -- in a process of their own -----------------------------------------------------------------------------------------


def rebuild_step(say: Say, file: Path, sink: str) -> None:
    """As ``headwater rebuild``."""
    rebuild(say, load(file), file, sink, None)


def verify_step(say: Say, file: Path, sink: str | None, asked: Mapping[str, Any], *, repair: bool = False) -> Any:
    """As ``headwater verify --json``."""
    from operations.run.machines import alone
    from operations.verify.report import verified
    from operations.verify.verifier import Asked

    only = () if sink is None else (sink,)
    wait, seed = asked.get("wait"), asked.get("seed")
    wanted = Asked(
        only,
        WAIT_SECONDS if wait is None else wait,
        repair,
        asked.get("sample"),
        int(time.time()) if seed is None else seed,
        asked["generation"],
    )
    return verified(alone(load(file), None), wanted, say)


def repair_step(say: Say, file: Path, sink: str | None, asked: Mapping[str, Any]) -> Any:
    """As ``headwater verify --repair --json``."""
    return verify_step(say, file, sink, asked, repair=True)


def resnapshot_step(say: Say, file: Path, _sink: None, asked: Mapping[str, Any]) -> Any:
    """As ``headwater resnapshot --json``: asked for, and waited for. Cut, it goes on by itself."""
    from connectors.resnapshot import Wish, resnapshot
    from connectors.snapshots.progress import Progress
    from connectors.snapshots.snapshot import wait_snapshot
    from operations.generations.kept_views import with_kept_views
    from operations.pace import Pace

    pipeline = load(file)
    sweep = asked.get("sweep")
    wish = Wish(tuple(asked.get("tables") or ()), asked.get("where"), sweep=sweep is None or bool(sweep))
    tables = resnapshot(with_kept_views(pipeline), wish, say)
    reading, looking = Pace(say, "rows read again"), dict[str, Pace]()

    def show(now: Progress) -> None:
        mine = [one for one in now.tables if one.table in tables]
        # One after the other is swept; those that were before stay told, in front of it.
        if swept := [one for one in mine if one.sweeping]:
            at = swept[-1]
            if at.table not in looking:
                looking[at.table] = Pace(say, f"records of {at.table} looked at for missed deletes")
            looking[at.table].at(at.rows, at.total or 0)
            return
        # Of rows under a condition, or of a large table, nobody knows how many they are; nor then how many are all.
        totals = [one.total for one in mine if one.total is not None]
        reading.at(sum(one.rows for one in mine), sum(totals) if len(totals) == len(mine) else 0)

    progress = wait_snapshot(pipeline, show, only=tables)
    found = {at.table: {"rows": at.rows, "swept": at.swept, "done": at.done} for at in progress.tables}
    told = {table: found.get(table, {"rows": None, "swept": None, "done": False}) for table in tables}
    return {"pipeline": pipeline.name, "where": wish.condition, "tables": told}


def replay_step(say: Say, file: Path, sink: str | None, asked: Mapping[str, Any]) -> Any:
    """As ``headwater letters replay --json``."""
    from operations.letters.replay import replay_letters
    from operations.run.machines import alone

    return replay_letters(alone(load(file), None), _wanted(sink, asked), say=say)


def drop_letters_step(_say: Say, file: Path, sink: str | None, asked: Mapping[str, Any]) -> Any:
    """As ``headwater letters drop --json``."""
    from operations.letters.dropping import drop_letters

    return drop_letters(load(file), _wanted(sink, asked))


def _wanted(sink: str | None, asked: Mapping[str, Any]) -> Any:
    from operations.letters.wanted import Wanted, moment

    since = asked.get("since")
    return Wanted(
        sinks=() if sink is None else (sink,),
        views=tuple(asked.get("views") or ()),
        tables=tuple(asked.get("tables") or ()),
        keys=tuple(asked.get("keys") or ()),
        cause=asked.get("cause"),
        since=None if since is None else moment(since),
        generation=asked["generation"],
        whole=True,  # a job is of who may operate, and tells how many they were
    )


_STEPS: Mapping[str, Callable[..., Any]] = {
    "verify": verify_step,
    "repair": repair_step,
    "resnapshot": resnapshot_step,
    "replay-letters": replay_step,
    "drop-letters": drop_letters_step,
}
