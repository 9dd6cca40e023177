"""The SQL that reads each table as of a cut, for Spark, DuckDB and pyiceberg."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc.masking import looks_secret, mask_text
from cdc.pipeline import Pipeline
from cdc.records.history import AFTER, OURS, as_of_sql, versions_sql
from operations.query.duck import scan_of
from sinks.iceberg.catalogue import catalog_name, pyiceberg_properties
from sinks.iceberg.history import floats_of, key_of

if TYPE_CHECKING:
    from operations.as_of.cut import Cut


def statements(pipeline: Pipeline, cut: Cut) -> dict[str, dict[str, str]]:
    """Table -> engine -> what reads it as of the cut; DuckDB's versions as well, for which Spark has a view."""
    catalog = catalog_name(cut.sink)
    properties = pyiceberg_properties(pipeline.sinks[cut.sink])
    opened = shown(properties)
    found = {}
    for name, table in cut.tables.items():
        columns = [field.name for field in table.schema().fields if not field.name.startswith(OURS)]
        key, floats, (namespace, there) = key_of(table), floats_of(table), table.name()[-2:]
        files = scan_of(table.metadata_location)
        as_of = partial(as_of_sql, columns, key, cut=cut.cut, floats=floats)
        found[name] = {
            "spark": as_of(f"`{catalog}`.`{namespace}`.`{there}`", mark="`"),
            "duckdb": as_of(files),
            "pyiceberg": python_text(opened, catalog, f"{namespace}.{there}", as_of("history"), cut.cut),
            "duckdb_versions": versions_sql(columns, key, files, floats=floats),
        }
    return found


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """What a catalogue is opened with, to be printed; keys and tokens are in the environment of who runs it. Pure."""
    return {name: mask_text(str(value)) for name, value in properties.items() if not looks_secret(name)}


def python_text(opened: Mapping[str, Any], catalog: str, table: str, sql: str, cut: int) -> str:
    """Python that reads a table as of a cut by pyiceberg. Pure.

    Args:
        opened: what the catalogue is opened with.
        catalog: its name.
        table: the history, ``namespace.name``.
        sql: what reads ``history`` as of the cut.
        cut: packed.
    """
    return (
        "import duckdb\n"
        "from pyiceberg.catalog import load_catalog\n"
        f"catalog = load_catalog({catalog!r}, **{opened!r})\n"
        f"history = catalog.load_table({table!r}).scan(row_filter='{AFTER} < {cut}').to_arrow()\n"
        f"rows = duckdb.sql({sql!r}).to_arrow_table()"
    )
