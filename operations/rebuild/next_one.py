"""What `run` builds by itself: a sink's next generation, because its file or its tables have changed."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cdc.errors import HeadwaterError, StateError
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.generations.retire import retire
from operations.opened import same_log
from operations.rebuild.chosen import OTHER_LOG, Chosen
from operations.rebuild.rebuild import Rebuild
from operations.run.flow_lines import lines
from operations.run.patience import Stop
from operations.state.catalogue import source_catalogue
from operations.state.folder import register_of
from operations.state.frozen import read_frozen
from operations.state.verified import last_verified
from spark.disk.made_of import outdated

# Keys that are named of each view that differs; `verify` names more.
KEYS = 3
# Of each, so many columns.
COLUMNS = 3
# A key that is an empty text, as it is shown.
EMPTY = '""'


def build_next(say: Say, pipeline: Pipeline, file: Path, sink: str, *, again: bool = True) -> bool:
    """Fill a sink's next generation, and show it to readers if it equals Postgres: as ``rebuild --auto``.

    For a process of its own: asked to end, it stops where the next attempt goes on. One that was filled by an attempt
    that was broken off is compared, and not filled again. Of the generations that were replaced the newest stays, for
    `headwater rollback`: with a migration every week each older one would go on costing what the living one does.

    Args:
        say: told what happens, a line each.
        pipeline: the loaded file.
        file: its path.
        sink: the sink's name.
        again: whether a later attempt compares again what differs: then it is told by an error, which is kept until it
            is equal.

    Returns:
        whether it equals Postgres, and readers see it; what differs may only be late.

    Raises:
        StateError: it differs; it stays, and is compared by each attempt.
    """
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    register = register_of(pipeline, sink)
    for left in [one for one in register.entries() if one.own and one.stage == "retiring"]:  # cut in its middle
        retire(pipeline, sink, left.number, say)
    for begun in (register.newest("ready"), register.newest("filling")):
        # One that was filled of tables as they were would be shown, and the sink stay behind, or never be equal.
        if begun is not None and read_frozen(register.generation(begun.number)).tables:
            say(f"generation {begun.number} is of tables as they were: it is given up")
            retire(pipeline, sink, begun.number, say)
    rebuild = Rebuild(Chosen(pipeline, file, sink, say, own=True), 1.0, stop, partial(lines, say))
    ready = register.newest("ready")
    if ready is not None and ready.own and (unfit := _unfit(rebuild.chosen, ready.number)):
        say(f"generation {ready.number} {unfit}: it is given up")
        retire(pipeline, sink, ready.number, say)
        ready = None
    if _is_built(pipeline, sink):
        say(f"generation {register.living()}, which readers see, is what is wanted")
        _let_go_of_older(pipeline, sink, say)
        return True
    report = rebuild.run(auto=True)
    if report["equal"]:
        _let_go_of_older(pipeline, sink, say)
    elif again and not report["late"]:
        raise _kept(pipeline, file, sink, report["generation"])
    return bool(report["equal"])


def _kept(pipeline: Pipeline, file: Path, sink: str, number: int) -> StateError:
    """Why one that differs stays and no other one is built: what the log holds otherwise than Postgres, or a sink never
    takes (a key that is too long for it, a value that its mapping refuses), each one has, and hours of filling go."""
    of = f"--sink {sink} --generation {number}"
    return StateError(
        f"generation {number} differs from Postgres{_differing(pipeline, sink, number)}",
        means=f"readers see generation {register_of(pipeline, sink).living()} meanwhile. This one is kept up to date,"
        " compared again, and promoted by itself once it is equal; none is filled anew",
        fix=f"`headwater letters {file} list {of}` says what the sink has refused: mend those rows. What else differs"
        f" `headwater verify {file} {of} --repair` mends; where it does not, a snapshot has read a value otherwise than"
        " it is (a date before the year 1): an UPDATE of the row that holds it, in Postgres, mends it."
        f" `headwater promote {file} {sink}` shows the generation as it is; where `headwater retire {file} {sink}"
        f" --generation {number}` removes it, another one is filled",
    )


def _differing(pipeline: Pipeline, sink: str, number: int) -> str:
    """Some keys by which a generation differed when it was last compared, and in which columns; empty if something else
    was compared since."""
    found = [one for one in last_verified(pipeline)["sinks"] if (one["sink"], one["generation"]) == (sink, number)]
    views = [view for one in found for view in one["views"] if view["differences"]]
    told = []
    for view in views:
        keys = [(key, kind) for kind in ("missing", "extra", "changed") for key in view[kind]][:KEYS]
        more = view["differences"] - len(keys)
        named = ", ".join(f"{key or EMPTY} ({_columns(view, key) or kind})" for key, kind in keys)
        told.append(f"{view['view']}: {named}{f' and {more:,} more' if more > 0 else ''}")
    return f" ({'; '.join(told)})" if told else ""


def _columns(view: Mapping[str, Any], key: str) -> str:
    names = view["columns"].get(key, ())
    return ", ".join(names[:COLUMNS]) + ", …" * (len(names) > COLUMNS)


def _unfit(chosen: Chosen, ready: int) -> str | None:
    """Why one that is filled is not what is wanted: it would never be equal, and never go; None if it is."""
    if differs := outdated(chosen.pipeline, chosen.registry.generation(ready)):
        return f"was built from another file ({', '.join(differs[:3])})"
    return f"can't be gone on with: {OTHER_LOG}" if chosen.of_other_log(ready) else None


def _is_built(pipeline: Pipeline, sink: str) -> bool:
    """Whether readers see what the file says, of the tables as they are and of this log: a builder that was cut after
    it had promoted, or another one, has done it."""
    register = register_of(pipeline, sink)
    if register.newest("ready", "filling") is not None:
        return False
    living = register.generation(register.living())
    kept = read_frozen(living)
    if not living.started or kept.tables or kept.refused or outdated(pipeline, living):
        return False
    # Of a database or a topic that is gone it stands still for good, and somebody has sent for another one for that.
    return same_log(pipeline, source_catalogue(pipeline), living)


def _let_go_of_older(pipeline: Pipeline, sink: str, say: Say) -> None:
    for entry in register_of(pipeline, sink).previous()[:-1]:
        try:
            retire(pipeline, sink, entry.number, say)
        except HeadwaterError as error:  # what was built is shown all the same
            say(f"warning: {error.what}; `headwater retire FILE {sink} --generation {entry.number}` removes it")
