"""Columns that `policy.schema: ignore` has left out, once the file says `evolve`: the change is what came since."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cdc.catalogue import Catalogue, Table
from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.shapes import Shape
from operations.schema.case import Case, cases
from operations.schema.decide import ALL_ROWS, Verdict
from operations.state.evolution import Evolution
from operations.state.folder import register_of
from operations.state.frozen import Frozen, read_frozen
from operations.state.shapes import known_shapes
from spark.disk.state import Generation

# A table that was left as it was: the shape of then, and what following it means for each view of a generation.
Left = tuple[Shape, list[tuple[Generation, Case]]]


def left_out(
    pipeline: Pipeline,
    sink: str,
    catalogue: Catalogue,
    evolution: Evolution,
    shapes: Mapping[str, Shape],
    beside: Collection[str] = (),
) -> dict[str, Left]:
    """Tables that generations of a sink go on with as they were although they could follow, or another one could.

    Not those of a generation that was replaced because it can't hold what came: it stays as it was, also where readers
    were taken back to it.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        catalogue: the tables as they are.
        evolution: how far the sink has followed.
        shapes: the tables as they are.
        beside: tables that are left alone: they have changed once more, or are to be mended first.
    """
    if pipeline.policy.schema_ != "evolve":
        return {}
    register, found = register_of(pipeline, sink), dict[str, Left]()
    idle = shapes.keys() & evolution.acted.keys() - evolution.todo.keys() - {*beside}
    for generation in map(register.generation, register.written()):
        frozen = _frozen(generation)
        for table in sorted(idle & frozen.tables.keys() - frozen.refused.keys()):
            known = _then(pipeline, frozen.tables[table], evolution.acted[table])
            mine = _cases(pipeline, generation, catalogue, {table: (known, shapes[table])})
            most = max((case.decision.verdict for _, case in mine), default=Verdict.NOTHING)
            newest = generation.number == register.living() == register.last()
            if most in (Verdict.IN_PLACE, Verdict.READ_AGAIN):
                mine = [(one, _read(case)) for one, case in mine]
            elif most is not Verdict.NEW_GENERATION or not newest:
                continue
            before, others = found.get(table, (known, []))
            found[table] = before, [*others, *mine]
    return found


def _frozen(generation: Generation) -> Frozen:
    try:
        return read_frozen(generation)
    except HeadwaterError:
        return Frozen()  # whoever opens it refuses it, and the others go on


def _cases(
    pipeline: Pipeline, generation: Generation, catalogue: Catalogue, changed: Mapping[str, tuple[Shape, Shape]]
) -> list[tuple[Generation, Case]]:
    try:
        every = list(cases(pipeline, generation.sink, catalogue, changed))
    except HeadwaterError:
        return []  # so here
    return [(one, case) for one, case in every if one.number == generation.number]


def _then(pipeline: Pipeline, table: Table, acted: Shape) -> Shape:
    """The shape of a table as it was."""
    same = [shape for shape in known_shapes(pipeline).tables.get(table.qualified, ()) if shape.table == table]
    return same[-1] if same else replace(acted, table=table)


def _read(case: Case) -> Case:
    """All rows are read again: what was written since then was read without what was left out."""
    if case.decision.verdict is Verdict.NOTHING:
        return case
    return replace(case, decision=replace(case.decision, verdict=Verdict.READ_AGAIN, read=ALL_ROWS))
