"""Erases a row from a warehouse: its sink is paused, whoever writes to it lets go, and its tables are written anew.

A rewriting beside the writer would lose to each of its merges. The pause is the operators' own (``headwater pause``),
with a reason that says whose it is: who is killed here leaves the sink paused, and the next erasure lets it go on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from cdc.errors import EraseUnfinished, StateError, TagsHold
from cdc.pipeline import Pipeline
from operations.erase.note import Note
from operations.erase.places import Place
from operations.erase.readers import Build, histories_of
from operations.erase.subject import Subject
from operations.erase.tables import Held, history_name, tables_of, warehouses
from operations.run.session import open_spark
from operations.state.folder import register_of
from operations.state.history import history_folder, history_lease
from operations.state.pausing import (
    ERASURE,
    LET_GO_SECONDS,
    pause,
    pause_of,
    paused,
    paused_sinks,
    refuse_paused,
    resume,
)
from sinks.iceberg.catalogue import catalog_name, find_table
from spark.disk.lease import STOP_IT
from spark.warehouse.brief import shortened
from spark.warehouse.erasing import forget_rows, remove_left, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of the note: tables that are written anew, and since when.
TABLES, SINCE = "tables", "since"
# Of a table's place, where one that was killed may have left files, and another table has its own in the same folder.
UNTOLD = (
    "an erasure of it was killed, and another table has its files in the same folder: whose those are that no snapshot "
    "names can't be told; look there, and remove by hand those that neither table names"
)


# Of a tag that was set while an erasure worked.
WHILE = (
    "it was set meanwhile: this sink's tables are as they were, what came before them (topics, other sinks) is erased"
)


def reason(subject: Subject) -> str:
    """Of a pause that is ours: a person's is another one's."""
    return f"{ERASURE}{subject.digest[:12]}"


def go_on(pipeline: Pipeline) -> None:
    """Let sinks go on that an erasure has left paused, of whichever row: whoever holds the lock knows that none is at
    work. Before anything is refused, for who is refused may never do the same again.

    Args:
        pipeline: the loaded file.
    """
    for sink, found in paused_sinks(pipeline, ()).items():
        if found.erasing:
            resume(pipeline, sink)


def refuse_paused_before(subject: Subject, builds: Sequence[Build]) -> None:
    """Refuse sinks that somebody has paused.

    Raises:
        StateError: one is (terminal).
    """
    for sink in sorted({*warehouses(subject, builds), *(build.opened.sink for build in builds)}):
        if paused(subject.pipeline, sink) is not None:
            refuse_paused(subject.pipeline, [sink], "nothing was erased")


def refuse_paused_since(subject: Subject, sinks: Collection[str]) -> None:
    """Leave sinks alone that somebody has paused since ``refuse_paused_before``: the topic's compaction takes minutes.

    Raises:
        EraseUnfinished: one is (transient).
    """
    for sink in sinks:
        found = pause_of(subject.pipeline, sink)
        if found is not None and found.why != reason(subject):
            raise EraseUnfinished(
                f"sink {sink} is paused {found.words}",
                means="it is to be left alone; what was erased by now is erased, and this sink and others may still "
                "hold the row",
                fix=f"`headwater resume {subject.pipeline.file or 'FILE'} {sink}`; then the same again goes on",
            )


def refuse_tags(held: Sequence[Held], *, move: bool, so: str = "nothing was erased") -> None:
    """Refuse what tags keep, unless they may be moved; and what branches keep.

    Args:
        held: what was found.
        move: tags may be moved.
        so: what was done by now, in words.

    Raises:
        TagsHold: so they do (terminal).
    """
    branches = [f"{name} of {one.name}" for one in held for name in one.there.branches]
    if branches:
        raise TagsHold(
            f"branches hold the row: {', '.join(branches)}",
            means=f"what was committed to them is somebody's; {so}",
            fix="drop them: ALTER TABLE … DROP BRANCH …",
        )
    kept = [f"{name} of {one.name}" for one in held for name in one.there.tags]
    if kept and not move:
        raise TagsHold(
            f"tags keep snapshots that hold the row: {', '.join(kept)}",
            means=f"their files stay as long as the tags; {so}",
            fix="--tags move leads them to the table without the row (a cut of history shows the same as before, less "
            "that row); or take them back: `headwater as-of FILE --drop NAME`, of one that is no cut "
            "ALTER TABLE … DROP TAG …",
        )


def erase_tables(subject: Subject, builds: Sequence[Build], *, move_tags: bool) -> list[Place]:
    """Erase the row from every warehouse; what is there then. Killed half-way, do it again.

    Args:
        subject: the row.
        builds: every generation that may hold it.
        move_tags: tags that keep it may be moved.

    Raises:
        TagsHold: a tag or a branch that keeps it was set since that was looked for first (terminal).
        EraseUnfinished: somebody has paused a sink since (transient): nothing was written to it.
        StateError: a process does not let go of a sink, which stays paused until the next erasure, of
            whichever row, or somebody resumes it.
        Exception: as Spark wraps what Iceberg says; what was done is done, and the sink goes on.
    """
    sinks = warehouses(subject, builds)
    found: list[Place] = []
    if not sinks:
        return found
    subject.say("starting Spark, which writes the warehouse's files anew")
    spark = open_spark(subject.pipeline, sinks, "erase")
    try:
        for sink in sinks:
            with _alone(subject, sink):
                tables = tables_of(subject, builds, [sink])
                refuse_tags(tables, move=move_tags, so=WHILE)
                untold = _erase(subject, tables, spark)
                found += [_with_left(one.place, untold) for one in tables_of(subject, builds, [sink])]
    finally:
        spark.stop()
    return found


@contextmanager
def _alone(subject: Subject, sink: str) -> Iterator[None]:
    """Nobody writes to a sink for the time of a block, but for who asks nobody."""
    pipeline = subject.pipeline
    subject.say(f"pausing sink {sink}")
    pause(pipeline, sink, reason(subject), subject.say)
    refuse_paused_since(subject, [sink])  # a pause that stands stays whose it is
    with ExitStack() as held:
        register = register_of(pipeline, sink)
        for entry in register.entries():
            generation = register.generation(entry.number)
            if generation.folder.exists():
                generation.lock(STOP_IT)
                held.callback(generation.unlock)
        folder = history_folder(pipeline, sink)
        if sink in histories_of(subject):
            lease = history_lease(folder, sink)
            waiting = retry_if_exception_type(StateError)
            Retrying(stop=stop_after_delay(LET_GO_SECONDS), wait=wait_fixed(0.2), retry=waiting, reraise=True)(
                lease.take
            )
            held.callback(lease.release)
        try:
            yield
        finally:
            # Who writes to it takes it as soon as it is let go. What a person has paused meanwhile is that person's.
            found = pause_of(pipeline, sink)
            if found is not None and found.why == reason(subject):
                resume(pipeline, sink)


def end_untold(subject: Subject, places: Sequence[Place]) -> None:
    """Forget that one was killed where files may be left of it: the certificate says so, and nobody can do more."""
    note = Note(subject.pipeline)
    for place in places:
        if place.note == UNTOLD:
            note.end(TABLES, f"{place.sink}: {place.name}")


def _with_left(place: Place, untold: Collection[str]) -> Place:
    return replace(place, hidden=place.hidden + 1, note=UNTOLD) if place.name in untold else place


def _erase(subject: Subject, tables: Collection[Held], spark: SparkSession) -> set[str]:
    """Write a sink's tables anew; names of those of which files may be left that can't be told from another table's."""
    note, untold = Note(subject.pipeline), set[str]()
    for one in tables:
        name = history_name(one) if one.build is None else _place(one)
        files = bool(one.there.rows or one.there.hidden or one.there.unsure)
        noted, began = f"{one.sink}: {one.name}", time.time()
        killed = note.begin(TABLES, noted, {SINCE: f"{began:.3f}"})
        try:
            forget_rows(spark, name, one.rows)
            done = rewrite(spark, name, one.there.tags, files=files)
            if killed is not None:
                left = remove_left(spark, name, float(killed[SINCE] or 0), began)
                if left is None:
                    untold.add(one.name)
                else:
                    done += f", {left} files removed that one which was killed has left"
        except Exception as error:  # Spark wraps what Java says in many types
            raise EraseUnfinished(
                f"table {one.name} could not be written anew: {shortened(str(error))}",
                means="it is whole, and may still hold the row; other tables may be done",
                fix="the same again goes on; a compaction of somebody else's that came between is no harm",
            ) from error
        if one.name not in untold:  # it is told to whoever does this again, until a certificate says so
            note.end(TABLES, noted)
        subject.say(f"{one.name}: {done}")
    return untold


def _place(one: Held) -> str:
    """Where a generation's table is just now."""
    assert one.build is not None
    build = one.build.opened
    namespace, table = find_table(build.part, catalog_name(one.sink), one.view, build.number, build.owner)
    return f"`{catalog_name(one.sink)}`.`{namespace}`.`{table}`"
