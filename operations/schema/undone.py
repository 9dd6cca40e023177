"""A change that waited for `headwater apply`, and was taken back before anybody said it: what stood goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from cdc.shapes import Shape
from operations.schema.case import Case
from operations.schema.decide import Verdict
from operations.schema.stopped import READ_ANEW
from operations.state.evolution import Evolution
from operations.state.frozen import read_frozen, release, thaw
from spark.disk.state import Generation

UNDONE = "a change was taken back"


def undone_tables(
    evolution: Evolution, shapes: Mapping[str, Shape], broken: Collection[str]
) -> dict[str, tuple[Shape, Shape]]:
    """Tables that are again as the sinks know them, of which something still waits for a word: (known, now). Pure.

    Args:
        evolution: how far the sinks have followed.
        shapes: of the tables as they are now.
        broken: tables whose changes are missing in their topics: they are mended first, by hand.
    """
    waiting = [name for name, todo in evolution.todo.items() if todo.waits and name not in broken]
    both = {name: (evolution.acted.get(name), shapes.get(name)) for name in waiting}
    return {name: (known, now) for name, (known, now) in both.items() if known and now and now.alike(known)}


def go_on(evolution: Evolution, table: str, found: Sequence[tuple[Generation, Case]]) -> Evolution:
    """Let what reads a table go on with it, as it is what it was; what was under way before it waited is still done.

    Args:
        evolution: how far the sink has followed.
        table: one of ``undone_tables``.
        found: each view that reads it, of each generation; their flows are to start again.

    Returns:
        what is left to do.

    Raises:
        DiskFull: no room (transient).
    """
    rebuild = False
    for generation in {one.number: one for one, _ in found}.values():
        mine = [case for one, case in found if one.number == generation.number]
        why = read_frozen(generation).refused.get(table)
        if why is None or any(case.decision.stops or case.whole.stops for case in mine):
            continue
        if READ_ANEW in why:  # records of the other key may be in its topic: as under `evolve`, it is built anew
            rebuild |= any(case.living for case in mine)
        elif all(case.whole.verdict is Verdict.NOTHING for case in mine):
            thaw(generation, table)
        else:  # it went on with the table as it was before it was stopped
            release(generation, table)
    todo = evolution.todo[table]
    left = replace(todo, what=(UNDONE,), rebuild=todo.rebuild or rebuild, waits=False, error=None)
    return evolution.having(table, left)
