"""Documents of random joined views as rows of a table: what is read back is what the document says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc.join.columns import arrow_columns, document_columns
from cdc.join.document import Shape
from cdc.join.view import JoinedView
from cdc.types.arrow import arrow_of_spark
from sinks.iceberg.rows import VERSION_COLUMN, held_rows
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner, Made
from spark.join.table_stage import COLUMNS, table_batch, table_entries
from spark.join.task import Task
from spark.reading.expressions import PREFIX
from spark.warehouse.keys import key_names
from tests.property.test_join_truth import world_of
from truth.columns import comparable_expected, comparable_row
from truth.digest import digest
from truth.values import canonical

SEEDS = range(120)


def made_of(seed: int) -> tuple[Joiner, list[Made]]:
    """The documents of a random view, as an engine makes them of the whole log."""
    world = world_of(seed)
    joiner, task = Joiner(world.view, MemoryStore()), Task(0, 1)
    made: dict[str, Made] = {}
    for part, records in sorted(world.log.items()):
        for change in range(0, len(records), 7):
            changes = world.changes(world.read(part, change, change + 7))
            for piece in joiner.process(changes, task, refuse):
                made |= {one.key: one for one in piece}
    return joiner, list(made.values())


def refuse(*_: object) -> None:
    raise AssertionError("nothing is refused")


def as_table(view: JoinedView, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Entries as rows of the table; deletes are none."""
    batch = batch.filter(pa.compute.is_valid(batch.column(PREFIX + "document")))
    struct = batch.column(COLUMNS)
    names = [field.name for field in struct.type]
    version = batch.column(PREFIX + "version")
    return pa.RecordBatch.from_arrays([*struct.flatten(), version], names=[*names, VERSION_COLUMN])


def test_a_row_of_the_table_is_the_document() -> None:
    compared = 0
    for seed in SEEDS:
        joiner, made = made_of(seed)
        view = joiner.view
        entries, unfit = table_entries(joiner, made)
        assert not unfit
        rows = as_table(view, table_batch(view, entries))
        wanted = {entry.id: entry for entry in entries if entry.document is not None}
        held = {one.key: one for one in held_rows(rows, key_names(view))}
        assert held.keys() == wanted.keys(), f"seed {seed}"
        for key, entry in wanted.items():
            (row,) = held[key].document
            document = comparable_expected(view, entry.document or b"")
            got = comparable_row(view, row)
            assert canonical(got) == canonical(document), f"seed {seed}, {key}"
            assert digest(got) == digest(document)
            assert held[key].version == entry.version
        compared += len(wanted)
    assert compared > 300


def test_the_types_that_spark_is_told_are_those_that_arrow_has() -> None:
    for seed in SEEDS:
        view = world_of(seed).view
        struct = arrow_columns(view)
        assert [name for name, _ in document_columns(view)] == [field.name for field in struct]
        for (_, kind), field in zip(document_columns(view), struct, strict=True):
            if "struct<" not in kind:
                assert arrow_of_spark(kind) == field.type


def test_a_value_without_a_place_is_one_document_s_fault() -> None:
    """A sum that no 64 bits hold: its document is refused and what was there goes, the others stay."""
    for seed in SEEDS:
        joiner, made = made_of(seed)
        counts = [item for item in joiner.view.tree.aggregates if item.function == "count"]
        there = [one for one in made if one.part is not None]
        if counts and len(there) > 1:
            break
    else:
        pytest.fail("no such view among them")
    at = joiner.view.tree.aggregates.index(counts[0])
    assert there[0].part is not None
    there[0].part.aggregates[at] = 2**63
    entries, unfit = table_entries(joiner, there)
    assert [entry.document is None for entry in entries] == [True] + [False] * (len(there) - 1)
    ((entry, why),) = unfit
    assert entry.document is not None and "no place in the table's columns" in why
    assert table_batch(joiner.view, entries).num_rows == len(there)


def test_shared_parts_are_made_once() -> None:
    joiner, made = next((j, m) for j, m in map(made_of, SEEDS) if any(one.part and one.part.refs for one in m))
    part = next(one.part for one in made if one.part)
    shape: Shape = joiner.assembler.shape
    assert shape.columns(part) is shape.columns(part)
