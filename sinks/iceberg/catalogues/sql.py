"""A catalogue in a SQL database: Spark's JdbcCatalog and pyiceberg's SqlCatalog on the same tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from sinks.iceberg.catalogues.postgres import JAVA_LIMITS, addresses
from sinks.iceberg.place import Place
from sinks.iceberg.storage import check_folder, location

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table
    from sqlalchemy import Engine, Update

# SQLite locks the whole file for a commit; a reader that met a commit must wait for it, not fail.
BUSY_MS = 30_000
# Two tables are made in a new catalogue, and somebody else may be the first with each.
TRIES = 3
_SQLITE = "jdbc:sqlite:"


class SqlCatalogue:
    """SQLite (a path) or Postgres (a JDBC address).

    Args:
        place: of the warehouse.

    Raises:
        ConfigError: an address of a kind that is not known, or one that not all clients can be told.
    """

    gap_seconds = 0.0

    def __init__(self, place: Place) -> None:
        self._jdbc, self._python, self._login = _jdbc(place.catalog_uri)
        self._warehouse = location(place.warehouse)

    def spark_properties(self) -> dict[str, str]:
        """See ``kinds.Catalogue``. Creates the folders of a local catalogue: SQLite does not."""
        self._make_folders()
        limits = {"busy_timeout": str(BUSY_MS)} if self._file() else JAVA_LIMITS
        return {
            "type": "jdbc",
            "uri": self._jdbc,
            "jdbc.schema-version": "V1",
            "warehouse": self._warehouse,
            **{f"jdbc.{key}": value for key, value in (self._login | limits).items()},
        }

    def pyiceberg_properties(self) -> dict[str, str]:
        """See ``kinds.Catalogue``."""
        uri = f"sqlite:///{self._file()}?timeout={BUSY_MS // 1000}" if self._file() else self._python
        return {"uri": uri, "warehouse": self._warehouse}

    @contextmanager
    def open(self, name: str, properties: dict[str, str]) -> Iterator[SqlCatalog]:
        """See ``kinds.Catalogue``."""
        self._make_folders()
        opened = self._opened(name, properties)
        try:
            yield opened
        finally:
            opened.close()

    @staticmethod
    def _opened(name: str, properties: dict[str, str]) -> SqlCatalog:
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy.exc import DatabaseError

        tries = TRIES
        while True:
            try:
                return SqlCatalog(name, **properties)
            except (DatabaseError, ValueError) as error:
                # A new one gets its tables from whoever opens it; of several at once all but one find them there.
                tries -= 1
                if tries and "already exists" in str(error):
                    continue
                raise _closed(error, f" of {name}") from error

    def swap(self, opened: SqlCatalog, seen: Table, built: Table, aside: str) -> bool:
        """See ``kinds.Catalogue``: one transaction of the database swaps the two names' metadata locations, so that
        every reader, of whatever kind, sees the one or the other."""
        from sqlalchemy.exc import IntegrityError, OperationalError

        try:
            with opened.engine.begin() as transaction:
                for change in (_put(opened, built, seen, seen.name()[-1]), _put(opened, seen, built, aside)):
                    if transaction.execute(change).rowcount != 1:
                        transaction.rollback()
                        return False
        except IntegrityError as error:
            raise taken(opened.name, aside) from error
        except OperationalError as error:
            raise SinkUnavailable(
                f"the Iceberg catalogue of {opened.name}: {error.orig}", fix="promote again"
            ) from error
        return True

    def begun(self, properties: dict[str, str]) -> bool:
        """See ``kinds.Catalogue``. SQLite makes a file of each address that it is given."""
        from pyiceberg.catalog.sql import IcebergTables
        from sqlalchemy import create_engine, inspect
        from sqlalchemy.exc import DatabaseError

        if (file := self._file()) and not Path(file).exists():
            return False
        try:
            with _disposed(create_engine(properties["uri"])) as engine:
                return inspect(engine).has_table(IcebergTables.__tablename__)
        except (DatabaseError, ValueError) as error:
            raise _closed(error) from error

    def check(self, name: str, properties: dict[str, str]) -> None:
        """See ``kinds.Catalogue``. pyiceberg would make its tables, so it is not asked."""
        from sqlalchemy import create_engine
        from sqlalchemy.exc import DatabaseError

        if (file := self._file()) and not Path(file).exists():
            check_folder(Path(file).parent)
            return
        try:
            with _disposed(create_engine(properties["uri"])) as engine:
                engine.connect().close()
        except (DatabaseError, ValueError) as error:
            if re.search(r"authentication failed|does not exist|permission denied", str(error)):
                said = f"the Iceberg catalogue of {name} does not open: {getattr(error, 'orig', error)}"
                raise SinkRefused(said, fix="see `catalog_uri`") from error
            raise _closed(error, f" of {name}") from error

    def _file(self) -> str:
        """Of SQLite; empty for a server."""
        return self._jdbc.removeprefix(_SQLITE) if self._jdbc.startswith(_SQLITE) else ""

    def _make_folders(self) -> None:
        if self._file():
            Path(self._file()).parent.mkdir(parents=True, exist_ok=True)


def taken(catalog: str, aside: str) -> SinkRefused:
    """The error of a promotion whose name for the old generation's table is another table's."""
    return SinkRefused(
        f"there is a table {aside} already in catalogue {catalog}",
        means="the old generation's table can't be put aside under that name; nothing was changed",
        fix=f"rename or drop the table {aside}, if it is not wanted; then promote again",
    )


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


@contextmanager
def _disposed(engine: Engine) -> Iterator[Engine]:
    """An engine, whose connections are closed at the end."""
    try:
        yield engine
    finally:
        engine.dispose()


def _closed(error: Exception, whose: str = "") -> SinkRefused | SinkUnavailable:
    """The error of a catalogue that does not open: what a client is told wrongly stays wrong, the rest may pass."""
    from sqlalchemy.exc import ProgrammingError

    kind = SinkRefused if isinstance(error, ProgrammingError | ValueError) else SinkUnavailable
    said = getattr(error, "orig", error)
    return kind(f"the Iceberg catalogue{whose} does not open: {said}", fix="see `catalog_uri`")


def _jdbc(uri: str) -> tuple[str, str, dict[str, str]]:
    """(JDBC address without credentials, SQLAlchemy's of a server with them, {user, password})."""
    rest = uri.removeprefix("jdbc:")
    scheme = rest.split(":", 1)[0] if re.match(r"[a-z+]+:", rest) else ""
    if scheme in ("", "sqlite", "file"):
        path = unquote(urlsplit(rest).path) if scheme == "file" else rest.removeprefix("sqlite:").removeprefix("///")
        return f"{_SQLITE}{Path(path.split('?')[0]).expanduser().absolute()}", "", {}
    if scheme.split("+")[0] in ("postgresql", "postgres"):
        return addresses(rest)
    raise ConfigError(
        f"catalog_uri begins with {scheme}:, which is not a catalogue that is known here",
        fix="use a path (SQLite), jdbc:postgresql://host:5432/database, or https://host of a REST catalogue",
    )
