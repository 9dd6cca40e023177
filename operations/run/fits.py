"""What of each topic's records must fit the tables as they were seen last, before anything is believed of them."""

from __future__ import annotations

from cdc.catalogue import Catalogue
from cdc.records.debezium_json import Fit
from cdc.types import supported
from cdc.used import used_columns
from operations.kept_shapes import Frozen
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
    for topic, names in spec.topics.items():
        table = catalogue.tables[spec.tables[topic].qualified]
        if catalogue.lsn and table.qualified in frozen.tables:
            fits[topic] = Fit(catalogue.lsn, values=values)
        elif catalogue.lsn:
            used = frozenset().union(*(used_columns(spec.views[name], table.qualified) for name in names))
            whole = used >= {column.name for column in supported(table).columns}
            fits[topic] = Fit(catalogue.lsn, used, whole, values)
    return fits
