"""From tables that have changed to what every generation does about it: decided, written down, and told.

Nothing is done to a server here: what has to be is left as ``Todo`` for who works it off (``evolving.py``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError, HeadwaterError
from cdc.pipeline import Pipeline
from cdc.resolve.views import resolve_views, view_tables
from cdc.shapes import Shape
from cdc.used import used_columns
from operations.opened import going_on
from operations.schema.case import Case, cases, taken_later, with_former_names
from operations.schema.changed import Changed, also, needs_capture
from operations.schema.decide import ALL_ROWS, Verdict, combined, other_key, together
from operations.schema.joining import lacking
from operations.schema.left_out import left_out
from operations.schema.mapped import note_mapped
from operations.schema.stopped import freeze_as_decided, stands_with, views_named
from operations.schema.undone import go_on, undone_tables
from operations.state.evolution import Evolution, Todo
from operations.state.folder import register_of
from operations.state.frozen import freeze, known_to, thaw
from operations.state.shapes import owe
from spark.disk.state import Generation


@dataclass
class Acted:
    """What came of it.

    Attributes:
        evolution: how far the sinks have followed now.
        retake: (sink, generation) whose flows start again, with the new shape.
        said: a line for each thing that was decided.
    """

    evolution: Evolution
    retake: set[tuple[str, int]] = field(default_factory=set)
    said: list[str] = field(default_factory=list)


def told_of_names(shapes: Mapping[str, Shape], catalogue: Catalogue) -> dict[str, Shape]:
    """Shapes that know which of their names other columns bore. Pure.

    Args:
        shapes: of the tables as they are now.
        catalogue: the same, with what is known of their columns' names.
    """
    tables = catalogue.tables
    return {name: one.told(tables[name]) if name in tables else one for name, one in shapes.items()}


def changed_tables(
    evolution: Evolution, shapes: Mapping[str, Shape], broken: Collection[str]
) -> dict[str, tuple[Shape, Shape]]:
    """Tables whose shape is another than that which the sinks were brought to: (known, now). Pure.

    Args:
        evolution: how far the sinks have followed.
        shapes: of the tables as they are now, as ``told_of_names``.
        broken: tables whose changes are missing in their topics: they are mended first, by hand. Not so for one with
            another key, of which the generations that are there can take nothing in any case.
    """
    found = {}
    for name, now in shapes.items():
        known = evolution.acted.get(name)
        if known is None or now.alike(known):
            continue
        if name not in broken or other_key(known, now):
            found[name] = known, now
    return found


def noted(evolution: Evolution, shapes: Mapping[str, Shape], left: Collection[str] = ()) -> Evolution:
    """The same, knowing tables that are new, but for those that are left for later; and what of a shape concerns nobody
    (files, defaults). Pure."""
    acted = dict(evolution.acted)
    for name, now in shapes.items():
        known = acted.get(name)
        if known is None:
            acted |= {} if name in left else {name: now}
        elif now.alike(known):
            acted[name] = replace(now, since=known.since)
    return evolution if acted == evolution.acted else replace(evolution, acted=acted)


def owed_to(
    pipeline: Pipeline, sink: str, catalogue: Catalogue, owed: Mapping[str, Collection[int]]
) -> dict[str, list[str]]:
    """Columns that a sink's views need, as they are kept or as the file says, and that have values which no log has:
    table -> names.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        catalogue: the tables as they are, with their columns' former names.
        owed: table -> numbers of such columns, of those that were not read again.
    """
    found: dict[str, list[str]] = {}
    # What the file says is built next: it is filled of the log, so what no log has is to be read before.
    kept = [(pipeline, catalogue)] if owed else []
    for generation in register_of(pipeline, sink).begun() if owed else ():
        own = known_to(pipeline, generation, catalogue)
        kept.append((going_on(pipeline, generation, own), own))
    for defined, own in kept:
        try:
            views = resolve_views(defined, own, sink)
        except ConfigError:
            continue  # it is not run
        for view in views:
            for table in view_tables(view).keys() & owed.keys() & catalogue.tables.keys():
                used = used_columns(view, table)
                columns = catalogue.tables[table].columns
                names = [one.name for one in columns if one.ordinal in owed[table] and one.name in used]
                found[table] = [*found.get(table, []), *(name for name in names if name not in found.get(table, []))]
    return {table: names for table, names in found.items() if names}


def act(
    pipeline: Pipeline,
    sink: str,
    catalogue: Catalogue,
    shapes: Mapping[str, Shape],
    evolution: Evolution,
    broken: Collection[str] = (),
    beside: Collection[str] = (),
) -> Acted:
    """Decide, and write down what concerns single generations; the rest is in what is returned.

    Done again after a crash in its middle, it comes to the same.

    Args:
        pipeline: the loaded file.
        sink: for which one.
        catalogue: the tables as they are, with their columns' former names.
        shapes: the same as shapes.
        evolution: how far it has followed.
        broken: see ``changed_tables``.
        beside: the other sinks of this process: what one of them reads, and this one does not, is left to that one.
    """
    shapes = told_of_names(shapes, catalogue)
    unasked = {name for name in shapes if not _asked_for(pipeline, evolution, name)}
    come = shapes.keys() - evolution.acted.keys() - unasked if evolution.acted else set[str]()
    evolution = noted(evolution, shapes, unasked if evolution.acted else ())
    changed = changed_tables(evolution, shapes, broken)
    ahead = _ahead(pipeline, sink, evolution, shapes, {*changed, *broken})
    changed |= {table: (evolution.acted[table], shapes[table]) for table in ahead}
    out = Acted(evolution)
    _joining(out, come, lacking(pipeline, sink, catalogue) & shapes.keys() - unasked - {*broken})
    _taken_back(pipeline, sink, catalogue, out, undone_tables(evolution, shapes, {*ahead, *broken}))
    for table, (known, mine) in left_out(pipeline, sink, catalogue, evolution, shapes, {*changed, *broken}).items():
        was = with_former_names(known, catalogue.tables[table])
        _taken_up(pipeline, out, Changed.of(was, known, shapes[table], mine), let=True)
    if not changed:
        return out
    found = list(cases(pipeline, sink, catalogue, changed))
    for table, (known, now) in changed.items():
        mine = [(generation, case) for generation, case in found if case.table == table]
        if not mine and _left_to(pipeline, sink, beside, catalogue, table):
            out.evolution = replace(out.evolution, acted={**out.evolution.acted, table: now})
            continue
        then = ahead.get(table, known)
        _table(pipeline, out, with_former_names(then, catalogue.tables[table]), then, now, mine)
    return out


def _ahead(
    pipeline: Pipeline, sink: str, evolution: Evolution, shapes: Mapping[str, Shape], beside: Collection[str]
) -> dict[str, Shape]:
    """Tables that are what the sink was brought to, and that a generation took in another shape between: altered, and
    altered back."""
    found: dict[str, Shape] = {}
    for generation in register_of(pipeline, sink).begun():
        with suppress(HeadwaterError):  # whoever opens it refuses it, and the others go on
            found |= taken_later(pipeline, generation, evolution.acted)
    return {
        table: taken
        for table, taken in found.items()
        if table in shapes and table not in beside and not shapes[table].alike(taken)
    }


def _asked_for(pipeline: Pipeline, evolution: Evolution, table: str) -> bool:
    """Whether a table that comes is taken up: one of a schema that is captured whole, which nobody has named, waits for
    `headwater apply` where every change does. Pure."""
    named = pipeline.policy.schema_ == "evolve" or table in pipeline.source.tables
    return named or table in evolution.allowed


def _joining(out: Acted, come: Collection[str], lacked: Collection[str]) -> None:
    """Tables are captured that are new, or that a sink of all tables comes to keep; then it takes them up."""
    for table in sorted({*come, *lacked}):
        under_way = out.evolution.todo.get(table)
        if under_way is not None and (under_way.new or under_way.show):
            continue
        new = table in come
        words = "the table is new" if new else "the sink comes to keep it"
        todo = under_way or Todo((), time.time())
        todo = replace(todo, what=(*todo.what, words), capture=True, new=True)
        out.evolution = out.evolution.having(table, todo)
        out.said.append(f"table {table} is new, and captured from now on" if new else f"table {table}: {words}")


def _taken_back(
    pipeline: Pipeline, sink: str, catalogue: Catalogue, out: Acted, undone: Mapping[str, tuple[Shape, Shape]]
) -> None:
    """What stood for a change that is none any more starts again: nobody has anything left to let through."""
    found = list(cases(pipeline, sink, catalogue, undone)) if undone else []
    for table in undone:
        mine = [(generation, case) for generation, case in found if case.table == table]
        out.evolution = go_on(out.evolution, table, mine)
        out.retake |= {*_halted(mine)}
        out.said.append(f"table {table} is what it was again: what waited for `headwater apply` goes on")


def _left_to(pipeline: Pipeline, sink: str, beside: Collection[str], catalogue: Catalogue, table: str) -> bool:
    """Whether a sink has nothing to do with a table that another one reads. Where none does, each goes on to have it
    captured as it should be: it is, for whoever comes to read it. Pure."""

    def reads(name: str, doubtful: bool) -> bool:
        try:
            return any(table in view_tables(view) for view in resolve_views(pipeline, catalogue, name))
        except ConfigError:
            return doubtful

    return not reads(sink, True) and any(reads(name, False) for name in beside if name != sink)


def _table(
    pipeline: Pipeline, out: Acted, was: Table, known: Shape, now: Shape, found: Sequence[tuple[Generation, Case]]
) -> None:
    one, policy = Changed.of(was, known, now, found), pipeline.policy.schema_
    allowed = out.evolution.allowed.get(was.qualified)
    let = policy == "evolve" or (allowed is not None and allowed.same_as(now))
    if let or not one.concerned:
        _taken_up(pipeline, out, one, let=let)
    elif policy == "ignore" and all(change.kind == "added" for change in one.changes):
        _left(out, one)
    else:
        _waits(pipeline, out, one)


def _waits(pipeline: Pipeline, out: Acted, one: Changed) -> None:
    """What reads the table stands still until somebody has said `headwater apply`."""
    table, policy = one.was.qualified, pipeline.policy.schema_
    waiting = replace(one.todo(out.evolution), what=one.what, waits=True)
    if out.evolution.todo.get(table) != waiting:
        out.said.append(f"{one.title}: policy.schema is {policy}, so what reads it waits for `headwater apply`")
    out.evolution = out.evolution.having(table, waiting)
    freeze_as_decided(pipeline, [(generation, case) for generation, case in one.found if case.decision.stops])


def _left(out: Acted, one: Changed) -> None:
    """Columns that were added are ignored: what reads the table goes on with it as it was."""
    for generation, case in one.found:
        if case.decision.verdict > Verdict.NOTHING:
            freeze(generation, case.was)
    acted, todo = one.acted(out.evolution)
    out.evolution = acted.having(one.was.qualified, todo)
    out.said.append(f"{one.title}: left as it was (policy.schema: ignore)")


def _taken_up(pipeline: Pipeline, out: Acted, one: Changed, *, let: bool) -> None:
    """Flows go by the table as it is, where their targets can hold it; what else has to be done for it is noted."""
    table, found, concerned = one.was.qualified, one.found, one.concerned
    acted, todo = one.acted(out.evolution)
    for generation, case in found:
        note_mapped(generation, case.view, case.mapped)
    again = freeze_as_decided(pipeline, found)
    thawed = _thaw(table, found) if let else set[tuple[str, int]]()
    out.retake |= {(case.sink, case.generation) for case in concerned} | thawed | again
    built = again - thawed  # what was stopped until now can't go on; what comes next can
    out.retake |= {*_halted(found)} if todo.waits else set()
    read = together([case.decision for case in concerned if case.decision.verdict is not Verdict.REFUSE])
    if thawed:
        read = ALL_ROWS
    unlogged = [change.new.ordinal for change in one.changes if change.unlogged and change.new is not None]
    if unlogged and read != ALL_ROWS:
        owe(pipeline, table, unlogged)
    todo = replace(
        todo,
        what=also(todo, one.what),
        at=time.time(),
        read=combined([rows for rows in (todo.read, read) if rows is not None]),
        rebuild=todo.rebuild
        or any(case.living and case.decision.verdict is Verdict.NEW_GENERATION for case in concerned)
        or any(case.living and (case.sink, case.generation) in built for _, case in found),
        capture=todo.capture or needs_capture(pipeline, one.known, one.now, one.changes),
        waits=False,
        error=None,
    )
    out.evolution = acted.having(table, todo)
    out.said.append(one.title)
    out.said += [_told(case, concerned) for case in concerned]


def _told(case: Case, concerned: Sequence[Case]) -> str:
    """What was decided for a view, as a line."""
    stand, verdict = stands_with(case, concerned), case.decision.verdict
    words, said = verdict.words, case.decision.why if verdict is Verdict.REFUSE else case.decision.asks
    if stand:
        words = f"stands with {views_named(stand)}"
    elif verdict is Verdict.NEW_GENERATION and not case.living:  # it is built in place of the one that readers see
        words = "stops" if case.decision.stops else "goes on with the table as it was"
    why = f" ({'; '.join(said)})" if said else ""
    return f"  sink {case.sink}, generation {case.generation}, view {case.view}: {words}{why}"


def _thaw(table: str, found: Sequence[tuple[Generation, Case]]) -> set[tuple[str, int]]:
    """Let generations that went on with the table as it was go by it again, where their targets can hold it: all of
    what has happened to it since, not only the last change."""
    most: dict[int, Verdict] = {}
    for generation, case in found:
        most[generation.number] = max(most.get(generation.number, Verdict.NOTHING), case.whole.verdict)
    return {
        (case.sink, case.generation)
        for generation, case in found
        if most[generation.number] <= Verdict.READ_AGAIN and thaw(generation, table)
    }


def _halted(found: Sequence[tuple[Generation, Case]]) -> Iterator[tuple[str, int]]:
    for _, case in found:
        yield case.sink, case.generation
