"""A plugin for dbt-duckdb: the tables of a Headwater warehouse as views in the schema ``warehouse``.

Each view is fixed on the snapshot that its table has as dbt connects, so all models and tests of one run read the same
rows. DuckDB reads the files itself: what a model filters by reaches them. Copy this file: it needs no Headwater.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
from dbt.adapters.duckdb.plugins import BasePlugin
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

# A table that a rebuild is filling, or that was left behind: readers' tables bear the view's name alone.
ASIDE = re.compile(r"__g\d+$")
# Cuts with names are properties of the tables of history.
CUT = "headwater.cut."


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
        found = dict(self._tables(load_catalog(self._catalog, **self._opened_with)))
        if not found:
            raise RuntimeError(f"catalogue {self._catalog} has no tables in {self._namespace}: has the pipeline run?")
        for name, table in found.items():
            place = table.metadata_location.removeprefix("file://").replace("'", "''")
            conn.execute(f"CREATE OR REPLACE VIEW warehouse.\"{name}\" AS FROM iceberg_scan('{place}')")
            conn.execute("INSERT INTO warehouse._hw_tables VALUES (?, ?)", [name, str(table.metadata.table_uuid)])
            for key, text in table.properties.items():
                if key.startswith(CUT):
                    said = json.loads(text)
                    row = [name, key.removeprefix(CUT), said["cut"], said["lsn"]]
                    conn.execute("INSERT INTO warehouse._hw_cuts VALUES (?, ?, ?, ?)", row)

    def _tables(self, catalog: Catalog) -> Iterator[tuple[str, Table]]:
        for *_, name in catalog.list_tables(self._namespace):
            if not ASIDE.search(name):
                try:
                    yield name, catalog.load_table((self._namespace, name))
                except NoSuchTableError:  # one of Spark's views, or a table that was dropped this moment
                    continue


def _extension(name: str) -> Path:
    """Its file, in its package from PyPI: DuckDB's own way would be to download it."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    folder = Path(found.origin).parent if found and found.origin else Path()
    path = folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise RuntimeError(f"pip install duckdb-extension-{name}=={duckdb.__version__}")
    return path
