"""What of each topic's records must fit the tables as they were seen last, before anything is believed of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from cdc.catalogue import Catalogue, Table
from cdc.records.debezium_json import Fit
from cdc.shapes import Shape, Shapes
from cdc.types import supported
from cdc.used import used_columns
from operations.state.frozen import Frozen
from spark.reading.spec import FlowSpec


def fits_of(spec: FlowSpec, catalogue: Catalogue, frozen: Frozen, *, values: bool) -> dict[str, Fit]:
    """What of each topic's records must fit. Pure.

    Of a table that the generation goes on with as it was names tell nothing, and values only that it has changed again:
    they are read as the database had them when it was looked at last.

    Args:
        spec: of the flows.
        catalogue: the source's tables as the generation knows them.
        frozen: those that it goes on with as they were.
        values: whether values that do not fit speak of a table that was changed.
    """
    fits = {}
    for topic in spec.topics if catalogue.lsn or catalogue.unseen else ():
        table = catalogue.tables[spec.tables[topic].qualified]
        fit = Fit(catalogue.lsn, values=values, unseen=catalogue.unseen)
        if table.qualified not in frozen.tables:
            used = _used(spec, topic, table)
            fit = replace(fit, used=used, all_columns=used >= {column.name for column in supported(table).columns})
        fits[topic] = fit
    return fits


def read_since(spec: FlowSpec, shapes: Shapes) -> dict[str, Table]:
    """The tables of a flow, each with the place in the log at which it was last read again for the flow's views.

    ``Table.since`` counts what nobody needed as well: such values are owed (``operations.state.shapes.owe``), and no
    newer record of a row follows. A record that is given up for them would be lost without a word. Pure.

    Args:
        spec: of the flows.
        shapes: all that the tables have had.
    """
    return {
        topic: replace(table, since=_since(table, shapes.tables.get(table.qualified, ()), _used(spec, topic, table)))
        for topic, table in spec.tables.items()
    }


def _used(spec: FlowSpec, topic: str, table: Table) -> frozenset[str]:
    names = spec.topics.get(topic, ())
    return frozenset().union(*(used_columns(spec.views[name], table.qualified) for name in names))


def _since(table: Table, shapes: Sequence[Shape], used: Collection[str]) -> int:
    numbers = {column.ordinal for column in table.columns if column.name in used}
    found = (
        new.since for old, new in pairwise(shapes) if new.oid == shapes[-1].oid and numbers & new.unlogged_since(old)
    )
    return max((since for since in found if since <= table.since), default=0)
