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
    from sqlalchemy import Update

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# SQLite locks the whole file for a commit; a reader that met a commit must wait for it, not fail.
BUSY_MS = 30_000
# The table's property that says which generation it is.
GENERATION = "headwater.generation"
# And which holder of its lease has claimed it last. Spark shows stars for a property with "token" in its name.
LEASE = "headwater.lease"
# A swap that meets a commit is tried again; a commit takes longer than a swap.
SWAP_TRIES = 50


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
        # A table that was loaded, and whose properties were looked at, must be the very one that the next statement
        # writes to: a promotion in between may have given its name to another. So it is only ever loaded anew by
        # `refreshTable`; what then commits to another table's row fails, by its UUID.
        "cache-enabled": "true",
        "cache.expiration-interval-ms": "-1",
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


def table_name(sink: Any, view: str, generation: int = 1) -> tuple[str, str]:
    """(namespace, table) under which a generation of a view is made. Where it is later, ``find_table`` says: a
    promotion changes the names.

    Raises:
        ConfigError: a name that one of the engines would have to quote.
    """
    for name in (sink.namespace, view):
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} can't name an Iceberg namespace or table", fix="use letters, digits and '_'")
    return sink.namespace, view if generation == 1 else f"{view}__g{generation}"


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


def generation_of(table: Table) -> int:
    """Which generation a table is; one from before there were generations counts as the first."""
    return int(table.properties.get(GENERATION, "1"))


def load_table(catalog: SqlCatalog, sink: Any, view: str, generation: int | None = None) -> Table:
    """A view's table at its newest snapshot.

    Args:
        catalog: opened by ``open_catalog``.
        sink: as ``spark_properties``.
        view: the view's name.
        generation: which; the one that readers see if None.

    Raises:
        SinkRefused: there is no such table.
    """
    from pyiceberg.exceptions import NoSuchTableError

    namespace, shown = table_name(sink, view)
    places = [shown] if generation is None else [shown, f"{view}__g{generation}"]
    for name in places * 2:  # twice: a promotion between two looks may have swapped the names
        try:
            table = catalog.load_table((namespace, name))
        except NoSuchTableError:
            continue
        if generation is None or generation_of(table) == generation:
            return table
    which = "" if generation is None else f" of generation {generation}"
    raise SinkRefused(
        f"no table {sink.namespace}.{view}{which} in catalogue {catalog.name}",
        means="nothing has been written to it yet, or the catalogue has another name or place",
        fix="run the pipeline first; compare catalog_uri with the one it ran with",
    )


def find_table(sink: Any, catalog: str, view: str, generation: int) -> tuple[str, str]:
    """(namespace, table) where a generation of a view is just now: under the view's name if readers see it, else under
    its own. A promotion may swap them at any time; a commit that was begun on the other one fails then.

    Raises:
        SinkRefused: there is none. SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        namespace, name = load_table(opened, sink, view, generation).name()[-2:]
        return namespace, name


def living(sink: Any, catalog: str, view: str) -> int | None:
    """The generation that readers see; None if there is no table.

    Raises:
        SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        try:
            return generation_of(load_table(opened, sink, view))
        except SinkRefused:
            return None


def claimed(sink: Any, catalog: str, view: str, generation: int) -> int | None:
    """The newest lease token that has claimed a generation's table; None if there is no table, or if none has.

    Raises:
        SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        try:
            token = load_table(opened, sink, view, generation).properties.get(LEASE)
        except SinkRefused:
            return None
    return None if token is None else int(token)


def promote_table(sink: Any, catalog: str, view: str, new: int, old: int) -> None:
    """Make a generation the one that readers of the view's table see. Idempotent; back again is the same call.

    One transaction of the catalogue's database swaps the two names' metadata locations, so that every reader, of
    whatever kind, sees the one or the other. A commit that is under way on either compares the location that it began
    with, finds another table's, and fails.

    Args:
        sink: as ``spark_properties``.
        catalog: the catalogue's name, the same as inside Spark.
        view: the view's name.
        new: what is to be seen.
        old: what is seen now (or ``new`` already).

    Raises:
        SinkRefused: one of them is not there, or readers see a third.
        SinkUnavailable: the catalogue does not open, or writers commit without a pause (transient).
    """
    with open_catalog(sink, catalog) as opened:
        for _ in range(SWAP_TRIES):
            if not opened.table_exists(table_name(sink, view)):  # a view that the old generation did not have
                opened.rename_table(load_table(opened, sink, view, new).name()[-2:], table_name(sink, view))
                return
            seen = load_table(opened, sink, view)
            if generation_of(seen) == new:
                return
            if generation_of(seen) != old:
                raise SinkRefused(
                    f"readers of {sink.namespace}.{view} see generation {generation_of(seen)}, not {old}",
                    means="someone else has promoted; nothing was changed",
                    fix="`headwater generations FILE` says what is known; then promote again",
                )
            if _swap(opened, seen, load_table(opened, sink, view, new), f"{view}__g{old}"):
                return
    raise SinkUnavailable(f"tables of {sink.namespace}.{view} are committed to all the time", fix="promote again")


def _swap(catalog: SqlCatalog, seen: Table, built: Table, aside: str) -> bool:
    """Give ``built`` the name of ``seen``, and that the name ``aside``; False, and nothing is changed, if a commit has
    come between."""
    from sqlalchemy.exc import IntegrityError, OperationalError

    try:
        with catalog.engine.begin() as transaction:
            for change in (_put(catalog, built, seen, seen.name()[-1]), _put(catalog, seen, built, aside)):
                if transaction.execute(change).rowcount != 1:
                    transaction.rollback()
                    return False
    except IntegrityError as error:
        raise SinkRefused(
            f"there is a table {aside} already in catalogue {catalog.name}",
            means="the old generation's table can't be put aside under that name; nothing was changed",
            fix=f"rename or drop the table {aside}, if it is not wanted; then promote again",
        ) from error
    except OperationalError as error:
        raise SinkUnavailable(f"the Iceberg catalogue of {catalog.name}: {error.orig}", fix="promote again") from error
    return True


def _put(catalog: SqlCatalog, table: Table, place: Table, name: str) -> Update:
    """Lead the row of ``place`` to ``table``, under ``name``; no row changes if ``place`` was committed to since we
    loaded it."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import update

    namespace, place_name = place.name()[-2:]
    log = table.metadata.metadata_log
    return (
        update(IcebergTables)
        .where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == place_name,
            IcebergTables.metadata_location == place.metadata_location,
        )
        .values(
            table_name=name,
            metadata_location=table.metadata_location,
            previous_metadata_location=log[-1].metadata_file if log else None,
        )
    )


def scan(
    sink: Any, catalog: str, view: str, columns: Sequence[str] = ("*",), generation: int | None = None
) -> Iterator[pa.RecordBatch]:
    """A view's rows as Arrow batches, in bounded memory, deletes applied; all from one snapshot.

    Raises:
        SinkRefused: no such table. SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        table = load_table(opened, sink, view, generation)
        yield from table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()


def count(sink: Any, catalog: str, view: str, generation: int | None = None) -> int:
    """Rows of a view's table, counted without reading data files where their statistics suffice."""
    with open_catalog(sink, catalog) as opened:
        return load_table(opened, sink, view, generation).scan().count()


def drop_table(sink: Any, catalog: str, view: str, generation: int | None = None) -> None:
    """Remove a view's table with its files; nothing happens when there is none."""
    with open_catalog(sink, catalog) as opened:
        try:
            table = load_table(opened, sink, view, generation)
        except SinkRefused:
            return
        opened.purge_table(table.name()[-2:])


def metadata_location(sink: Any, catalog: str, view: str, generation: int | None = None) -> str:
    """Path of the table's current metadata file: what DuckDB's ``iceberg_scan`` takes."""
    with open_catalog(sink, catalog) as opened:
        return load_table(opened, sink, view, generation).metadata_location


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


def catalog_name(sink: str) -> str:
    """The Iceberg catalogue's name inside Spark."""
    return f"hw_{sink}"
