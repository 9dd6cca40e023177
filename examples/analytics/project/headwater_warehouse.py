"""A plugin for dbt-duckdb: the tables of a Headwater warehouse as views in the schema ``warehouse``.

Each view is fixed on the snapshot that its table has as dbt connects, so all models and tests of one run read the same
rows. DuckDB reads the files itself: what a model filters by reaches them. Copy this file: it needs no Headwater.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.events.logging import AdapterLogger
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, IcebergType, IntegerType, LongType, StringType

# A table that a rebuild is filling, or that was left behind: readers' tables bear the view's name alone.
ASIDE = re.compile(r"__g\d+$")
# Cuts with names are properties of the tables of history.
CUT = "headwater.cut."
# And so are the columns that the source's table has.
OWN = "headwater.columns"
# Digits that an integer may have.
DIGITS = {IntegerType(): 10, LongType(): 19}
# A catalogue in SQLite: its file. (One that is a URI itself may be anything.)
FILE = re.compile(r"sqlite(?:\+\w+)?:///(?!file:)([^?]+)")


class Plugin(BasePlugin):
    """Settings: ``catalog`` (hw_ and the sink's name), ``uri``, ``namespace``; others go to pyiceberg as they are."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Keep the settings: dbt makes plugins when it does not connect, too."""
        theirs = set(self.creds.settings or {}) if self.creds else set()
        self._opened_with = {name: value for name, value in plugin_config.items() if name not in theirs}
        self._catalog = str(self._opened_with.pop("catalog"))
        self._namespace = str(self._opened_with.pop("namespace"))

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        """Make the views, and two tables: ``_hw_cuts``, which cuts with names there are of which table, and
        ``_hw_tables``, which table a name leads to: one that was begun anew under its name is another one."""
        for name in ("avro", "iceberg"):
            conn.execute(f"LOAD '{_extension(name)}'")
        conn.execute("SET TimeZone = 'UTC'")
        conn.execute("CREATE SCHEMA IF NOT EXISTS warehouse")
        conn.execute(
            "CREATE OR REPLACE TABLE warehouse._hw_cuts (history VARCHAR, name VARCHAR, cut BIGINT, lsn VARCHAR)"
        )
        conn.execute("CREATE OR REPLACE TABLE warehouse._hw_tables (name VARCHAR, uuid VARCHAR)")
        found = self._found()
        for name, table in found.items():
            place = table.metadata_location.removeprefix("file://").replace("'", "''")
            rows = f"SELECT *{_united(table)} FROM iceberg_scan('{place}')"  # noqa: S608 (names are quoted)
            conn.execute(f'CREATE OR REPLACE VIEW warehouse."{name}" AS {rows}')
            conn.execute("INSERT INTO warehouse._hw_tables VALUES (?, ?)", [name, str(table.metadata.table_uuid)])
            for key, text in table.properties.items():
                if key.startswith(CUT):
                    said = json.loads(text)
                    row = [name, key.removeprefix(CUT), said["cut"], said["lsn"]]
                    conn.execute("INSERT INTO warehouse._hw_cuts VALUES (?, ?, ?, ?)", row)

    def _found(self) -> dict[str, Table]:
        """Name -> table; dbt tells a RuntimeError in a line, and others with all that Python was in."""
        file = FILE.match(str(self._opened_with.get("uri", "")))
        if file and not _is_catalogue(file[1]):
            raise RuntimeError(f"there is no catalogue in {file[1]}: is that its path, and has the pipeline run?")
        # What reads a catalogue makes none: pyiceberg would.
        catalog = load_catalog(self._catalog, **{"init_catalog_tables": "false", **self._opened_with})
        try:
            found = dict(self._tables(catalog))
        except NoSuchNamespaceError:
            found = {}
        if not found:
            raise RuntimeError(
                f"catalogue {self._catalog} has no tables in {self._namespace}: are these its names, and has the "
                "pipeline run?"
            )
        return found

    def _tables(self, catalog: Catalog) -> Iterator[tuple[str, Table]]:
        for *_, name in catalog.list_tables(self._namespace):
            if not ASIDE.search(name):
                try:
                    yield name, catalog.load_table((self._namespace, name))
                except NoSuchTableError:  # one of Spark's views, or a table that was dropped this moment
                    continue


def _united(table: Table) -> str:
    """What makes columns of history whole again whose type was changed, if the former type can be cast to the present
    one without loss: in ``price`` is what was written since, and what was before is in ``price__decimal_12_4``. Of each
    row one of them has a value at the most. Where it can't be cast a warning says so."""
    now, parts = {field.name: field for field in table.schema().fields}, []
    for name, asides in _aside(table).items():
        known = [one for one in asides if _holds(now[name].field_type, now[one].field_type)]
        if other := ", ".join(one for one in asides if one not in known):
            AdapterLogger("Headwater").warning(
                f"{table.name()[-1]}.{name} is null where it was written under a former type: that is in {other}"
            )
        if known:
            kind = "VARCHAR" if now[name].field_type == StringType() else str(now[name].field_type)
            values = ", ".join(f"CAST({_quoted(one)} AS {kind})" for one in known)
            parts.append(f"coalesce({_quoted(name)}, {values}) AS {_quoted(name)}")
    return f" REPLACE ({', '.join(parts)})" if parts else ""


def _aside(table: Table) -> dict[str, list[str]]:
    """Column -> those that were put aside when it got another type: Iceberg's former schemas say how they were called.
    (Where somebody has removed schemas, the present names alone: one too many is better than none.)"""
    own, schemas = json.loads(table.properties.get(OWN, "{}")), table.schemas()
    names, columns = dict[int, set[str]](), [field.name for field in table.schema().fields]
    for schema in schemas.values():
        for field in schema.fields:
            names.setdefault(field.field_id, set()).add(field.name)
    whole, found = sorted(schemas) == list(range(len(schemas))), dict[str, list[str]]()
    for field in table.schema().fields:
        for was in columns if field.name not in own else ():
            named = field.name.startswith(f"{was}__") and not field.name.startswith(f"{was}__dropped")
            if named and (was in names[field.field_id] or not whole):
                found.setdefault(was, []).append(field.name)
    return found


def _holds(now: IcebergType, former: IcebergType) -> bool:
    """Whether each value of a former type is one of the present type, with all its digits."""
    if isinstance(now, DecimalType):
        scale = former.scale if isinstance(former, DecimalType) else 0
        whole = former.precision - scale if isinstance(former, DecimalType) else DIGITS.get(former, 99)
        return now.scale >= scale and now.precision - now.scale >= whole
    if now == StringType():
        return former in DIGITS or isinstance(former, DecimalType)
    return now == DoubleType() and former == IntegerType()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_catalogue(file: str) -> bool:
    """Whether a file is a catalogue in SQLite, which would make a file that is not there."""
    try:
        with closing(sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=ro", uri=True)) as opened:
            return opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchone() is not None
    except sqlite3.DatabaseError:
        return False


def _extension(name: str) -> Path:
    """Its file, in its package from PyPI: DuckDB's own way would be to download it."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    folder = Path(found.origin).parent if found and found.origin else Path()
    path = folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise RuntimeError(f"pip install duckdb-extension-{name}=={duckdb.__version__}")
    return path
