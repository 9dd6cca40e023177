"""The warehouse's catalogue, described once and opened by three: Spark (JDBC catalogue), pyiceberg and DuckDB.

All three must agree on the catalogue's name, because it is part of a table's key in the catalogue database: a table
made by Spark under another name is invisible to pyiceberg. So everything here takes that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Iceberg's own metadata columns: a MERGE into a table with such a column fails oddly.
RESERVED_COLUMNS = frozenset({"_pos", "_file", "_partition", "_deleted", "_spec_id"})
# SQLite locks the whole file for a commit; a reader that met a commit must wait for it, not fail.
BUSY_MS = 30_000


def spark_properties(sink: Any) -> dict[str, str]:
    """Settings of the Iceberg catalogue as Spark takes them, without the ``spark.sql.catalog.<name>.`` prefix.

    Creates the folders of a local catalogue: SQLite does not.

    Args:
        sink: anything with ``catalog_uri`` and ``warehouse``, e.g. the pipeline's ``IcebergSink``.

    Raises:
        ConfigError: an address of a kind that is not known.
    """
    jdbc, login = _jdbc(_plain(sink.catalog_uri))
    _make_folders(sink)
    return {
        "type": "jdbc",
        "uri": jdbc,
        "jdbc.schema-version": "V1",
        "warehouse": location(_plain(sink.warehouse)),
        **({"jdbc.busy_timeout": str(BUSY_MS)} if jdbc.startswith("jdbc:sqlite:") else {}),
        **{f"jdbc.{key}": value for key, value in login.items()},
    }


def pyiceberg_properties(sink: Any) -> dict[str, str]:
    """The same catalogue as pyiceberg's ``SqlCatalog`` takes it.

    Raises:
        ConfigError: an address of a kind that is not known.
    """
    jdbc, login = _jdbc(_plain(sink.catalog_uri))
    if jdbc.startswith("jdbc:sqlite:"):
        uri = f"sqlite:///{jdbc.removeprefix('jdbc:sqlite:')}?timeout={BUSY_MS // 1000}"
    else:
        who = f"{quote(login['user'], safe='')}:{quote(login.get('password', ''), safe='')}@" if "user" in login else ""
        uri = f"postgresql+psycopg://{who}{jdbc.removeprefix('jdbc:postgresql://')}"
    return {"uri": uri, "warehouse": location(_plain(sink.warehouse))}


def location(warehouse: str) -> str:
    """The warehouse folder: a URI as it is, a path made absolute. A plain path rather than ``file:``, because Hadoop,
    pyiceberg and DuckDB each spell ``file:`` URIs differently and write theirs into the metadata."""
    if warehouse.startswith("file:"):
        return unquote(urlsplit(warehouse).path)
    if "://" in warehouse:
        return warehouse.rstrip("/")
    return str(Path(warehouse).expanduser().absolute())


def table_name(sink: Any, view: str) -> tuple[str, str]:
    """(namespace, table) of a view.

    Raises:
        ConfigError: a name that one of the engines would have to quote.
    """
    for name in (sink.namespace, view):
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} can't name an Iceberg namespace or table", fix="use letters, digits and '_'")
    return sink.namespace, view


@contextmanager
def open_catalog(sink: Any, catalog: str) -> Iterator[SqlCatalog]:
    """The catalogue through pyiceberg; closes its database connections at the end.

    Args:
        sink: as ``spark_properties``.
        catalog: the catalogue's name, the same as inside Spark.

    Raises:
        SinkUnavailable: the catalogue database does not answer (transient).
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.exc import OperationalError

    _make_folders(sink)
    try:
        opened = SqlCatalog(catalog, **pyiceberg_properties(sink))
    except OperationalError as error:
        raise SinkUnavailable(f"the Iceberg catalogue of {catalog} does not open: {error.orig}") from error
    try:
        yield opened
    finally:
        opened.close()


def load_table(catalog: SqlCatalog, sink: Any, view: str) -> Table:
    """A view's table at its newest snapshot.

    Raises:
        SinkRefused: there is no such table.
    """
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(table_name(sink, view))
    except NoSuchTableError as error:
        raise SinkRefused(
            f"no table {sink.namespace}.{view} in catalogue {catalog.name}",
            means="nothing has been written to it yet, or the catalogue has another name or place",
            fix="run the pipeline first; compare catalog_uri with the one it ran with",
        ) from error


def scan(sink: Any, catalog: str, view: str, columns: Sequence[str] = ("*",)) -> Iterator[pa.RecordBatch]:
    """A view's rows as Arrow batches, in bounded memory, deletes applied; all from one snapshot.

    Raises:
        SinkRefused: no such table. SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        table = load_table(opened, sink, view)
        yield from table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()


def count(sink: Any, catalog: str, view: str) -> int:
    """Rows of a view's table, counted without reading data files where their statistics suffice."""
    with open_catalog(sink, catalog) as opened:
        return load_table(opened, sink, view).scan().count()


def drop_table(sink: Any, catalog: str, view: str) -> None:
    """Remove a view's table with its files; nothing happens when there is none."""
    from pyiceberg.exceptions import NoSuchTableError

    with open_catalog(sink, catalog) as opened:
        try:
            opened.purge_table(table_name(sink, view))
        except NoSuchTableError:
            return


def metadata_location(sink: Any, catalog: str, view: str) -> str:
    """Path of the table's current metadata file: what DuckDB's ``iceberg_scan`` takes."""
    with open_catalog(sink, catalog) as opened:
        return load_table(opened, sink, view).metadata_location


def _plain(value: Any) -> str:
    """A setting as text, out of its wrapper if it is a secret."""
    return str(value.get_secret_value() if hasattr(value, "get_secret_value") else value)


def _jdbc(uri: str) -> tuple[str, dict[str, str]]:
    """(JDBC address without credentials, {user, password})."""
    rest = uri.removeprefix("jdbc:")
    scheme = rest.split(":", 1)[0] if re.match(r"[a-z+]+:", rest) else ""
    if scheme in ("", "sqlite", "file"):
        path = unquote(urlsplit(rest).path) if scheme == "file" else rest.removeprefix("sqlite:").removeprefix("///")
        return f"jdbc:sqlite:{Path(path.split('?')[0]).expanduser().absolute()}", {}
    if scheme.split("+")[0] in ("postgresql", "postgres"):
        parts = urlsplit(rest)
        options = dict(parse_qsl(parts.query))
        login = {
            "user": unquote(parts.username) if parts.username else options.pop("user", ""),
            "password": unquote(parts.password) if parts.password else options.pop("password", ""),
        }
        place = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
        query = "?" + "&".join(f"{key}={quote(value)}" for key, value in options.items()) if options else ""
        return f"jdbc:postgresql://{place}{query}", {key: value for key, value in login.items() if value}
    raise ConfigError(
        f"catalog_uri begins with {scheme}:, which is not a catalogue that is known here",
        fix="use a path (SQLite), or jdbc:postgresql://host:5432/database",
    )


def _make_folders(sink: Any) -> None:
    jdbc, _ = _jdbc(_plain(sink.catalog_uri))
    if jdbc.startswith("jdbc:sqlite:"):
        Path(jdbc.removeprefix("jdbc:sqlite:")).parent.mkdir(parents=True, exist_ok=True)
