"""What a changed table means for each view of each generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from cdc.resolve.views import view_tables
from cdc.shapes import Shape
from operations.schema.after import after, resolved
from operations.schema.decide import Decision, decide, mapped_after
from operations.schema.mapped import Fields, read_mapped
from operations.state.folder import register_of
from operations.state.frozen import known_to, read_frozen
from operations.state.shapes import known_shapes
from spark.disk.made_of import as_defined, shapes_taken
from spark.disk.state import Generation


@dataclass(frozen=True)
class Case:
    """One view of one generation, and what a changed table means for it.

    Attributes:
        sink: whose.
        generation: which one.
        living: it is the one that readers see.
        view: the view's name.
        was: the changed table, as the generation goes by it unless it goes on with an older one.
        decision: what the change means.
        whole: what everything means that the generation has not followed so far: more than the last change, where it
            goes on with the table as it was before others.
        mapped: the fields that the view's index has afterwards, if the generation follows.
    """

    sink: str
    generation: int
    living: bool
    view: str
    was: Table
    decision: Decision
    whole: Decision
    mapped: Fields = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The changed table."""
        return self.was.qualified


def cases(
    pipeline: Pipeline, sink: str, catalogue: Catalogue, changed: Mapping[str, tuple[Shape, Shape]]
) -> Iterator[tuple[Generation, Case]]:
    """Every view of every generation of a sink that is kept up to date or filled, for each changed table that it reads.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        catalogue: the tables as they are, with their columns' former names.
        changed: table -> the shape that the sink was brought to, and that which it has.
    """
    register = register_of(pipeline, sink)
    living = register.living()
    for generation in register.begun():
        number = generation.number
        mine = _as_taken(pipeline, generation, changed)
        old = {name: with_former_names(known, catalogue.tables[name]) for name, (known, _) in mine.items()}
        before = replace(catalogue, tables={**catalogue.tables, **old})
        defined = as_defined(pipeline, generation)
        frozen, mapped = read_frozen(generation), read_mapped(generation)
        own = known_to(pipeline, generation, before)
        for name in view_names(defined, sink, generation):
            was = resolved(defined, own, name)
            if isinstance(was, ConfigError):
                continue  # it was not run before
            tables = sorted(view_tables(was).keys() & changed.keys())
            for table, now in after(defined, own, catalogue, name, tables).items():
                (known, new), fields = mine[table], mapped.get(name, {})
                decision = whole = decide(known, new, was, now, defined.sinks[sink], fields)
                if table in frozen.tables:
                    first = replace(known, table=frozen.tables[table])
                    whole = decide(first, new, was, now, defined.sinks[sink], fields)
                left = mapped_after(decision, was, now, defined.sinks[sink], fields)
                yield (
                    generation,
                    Case(sink, number, number == living, name, old[table], decision, whole, left),
                )


def _as_taken(
    pipeline: Pipeline, generation: Generation, changed: Mapping[str, tuple[Shape, Shape]]
) -> Mapping[str, tuple[Shape, Shape]]:
    """The same for one generation: it goes by the tables that it took, if they are newer."""
    own = taken_later(pipeline, generation, {name: known for name, (known, _) in changed.items()})
    return {name: (own.get(name, known), now) for name, (known, now) in changed.items()} if own else changed


def taken_later(pipeline: Pipeline, generation: Generation, acted: Mapping[str, Shape]) -> dict[str, Shape]:
    """Tables that a generation took in a newer shape than its sink was brought to: it was made while nobody followed
    the tables, or while a change waited for a word.

    Args:
        pipeline: the loaded file.
        generation: one that has written.
        acted: table -> the shape that the sink was brought to.
    """
    taken = shapes_taken(generation)
    newer = [name for name, known in acted.items() if taken.get(name, 0) > known.since]
    shapes = known_shapes(pipeline).tables if newer else {}
    found = {name: [one for one in shapes.get(name, ()) if one.since == taken[name]] for name in newer}
    return {name: same[-1] for name, same in found.items() if same}


def with_former_names(known: Shape, now: Table) -> Table:
    """A table as it was, knowing what its columns had been called before: views may name them so. Pure.

    Args:
        known: the shape that it had.
        now: as it is, with the former names that lead to its columns.
    """
    by_number = {column.ordinal: column.name for column in known.table.columns}
    found = set[tuple[str, str]]()
    for former, present in now.renamed:
        name = by_number.get(now.by_name[present].ordinal)
        if name is not None and former not in known.table.by_name:
            found.add((former, name))
    return replace(known.table, renamed=tuple(sorted(found)))


def view_names(pipeline: Pipeline, sink: str, generation: Generation) -> list[str]:
    """The views that a generation keeps; of a sink of tables, the tables."""
    part = pipeline.sinks[sink]
    return list(part.view_names) or generation.views()
