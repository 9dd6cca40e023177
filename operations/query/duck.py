"""DuckDB inside this process: it reads the warehouse's files, and nothing else of this machine or any other."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError, QueryTooLarge, SinkUnavailable
from operations.query.statement import refused
from operations.query.values import plain_rows

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

THREADS, MEMORY = 2, "1GB"
# Rows that are taken over from DuckDB at once.
PIECE = 2_048
# Where one of its threads meets an error, the others are interrupted, and now and then that is all that is told: the
# statement is run again until it says why.
ATTEMPTS = 4
_EXTENSIONS = ("avro", "iceberg")
# Applies a long deletion vector to the data files after it as well (tests/integration/test_sink_iceberg.py).
WRONG = ("1.5.5",)


@dataclass(frozen=True)
class Rows:
    """What a statement gave.

    Attributes:
        columns: name and type, as DuckDB calls it.
        rows: plain values, as documents have them.
        truncated: there are more.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    truncated: bool


class Duck:
    """One DuckDB in memory; not for two threads at once.

    Args:
        folders: that it may read: the warehouses'.

    Raises:
        ConfigError: DuckDB or one of its extensions is not installed.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self.connection = _opened()
        run = self.connection.execute
        # The order counts: what is read later is refused by what is set here, and then nothing can be set any more.
        run("SET TimeZone = 'UTC'")
        run("SET temp_directory = ''")
        run("SET python_enable_replacements = false")
        listed = ", ".join(_literal(folder.rstrip("/") + "/") for folder in folders)
        run(f"SET allowed_directories = [{listed}]")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def close(self) -> None:
        """Give its memory back."""
        self.connection.close()

    def run(self, text: str, limit: int, seconds: float, tables: str = "") -> Rows:
        """Run a statement that was found to read.

        Args:
            text: the statement.
            limit: rows to give at the most.
            seconds: how long it may take.
            tables: the names that there are, for messages.

        Raises:
            QueryRefused: the SQL is wrong, or its values fail it (terminal).
            QueryTooLarge: it takes more time or memory than it may (terminal).
            SinkUnavailable: a file went away while it was read (transient).
        """
        late = threading.Event()

        def interrupt() -> None:
            late.set()
            self.connection.interrupt()

        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            with _explained(seconds, tables):
                return self._asked(text, limit, late)
        finally:
            timer.cancel()
            timer.join()

    def _asked(self, text: str, limit: int, late: threading.Event) -> Rows:
        import duckdb

        for _ in range(ATTEMPTS - 1):
            try:
                return self._read(text, limit)
            except duckdb.InterruptException:
                if late.is_set():
                    raise
        return self._read(text, limit)

    def _read(self, text: str, limit: int) -> Rows:
        with _later():
            done = self.connection.execute(text)
            columns = [(str(one[0]), str(one[1])) for one in done.description]
            rows = list[Sequence[Any]]()
            for batch in done.to_arrow_reader(PIECE):
                rows += plain_rows(batch.slice(0, limit + 1 - len(rows)))
                if len(rows) > limit:
                    break
        return Rows(columns, rows[:limit], len(rows) > limit)

    def view(self, schema: str, name: str, select: str) -> None:
        """Make a view; an empty schema is the one in which names are looked for.

        Raises:
            SinkUnavailable: a file of the table is not there any more (transient).
        """
        place = f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)
        with _explained(0.0, name):
            if schema:
                self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
            self.connection.execute(f"CREATE OR REPLACE VIEW {place} AS {select}")

    def put(self, name: str, table: pa.Table) -> None:
        """Let a table in memory be read under a name."""
        self.connection.register(name, table)

    def forget(self, put: Sequence[str]) -> None:
        """Drop all views, and let go of what was put."""
        made = self.connection.execute("SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal")
        for schema, name in made.fetchall():
            if name not in put:
                self.connection.execute(f"DROP VIEW {quoted(schema)}.{quoted(name)}")
        for name in put:
            self.connection.unregister(name)


@contextmanager
def _explained(seconds: float, tables: str) -> Iterator[None]:
    """What DuckDB raises, as errors of ours; arguments and errors as ``Duck.run``."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException as error:
        raise QueryTooLarge(
            f"the query took longer than {seconds:g} s", fix="narrow it (WHERE, LIMIT), or give it a larger --timeout"
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise QueryTooLarge(
            f"the query needs more than {MEMORY} of memory",
            fix="narrow it; what must be sorted or grouped whole is for an engine of its own (docs/sinks.md)",
        ) from error
    except duckdb.IOException as error:
        raise SinkUnavailable(
            f"a file of the warehouse can't be read: {str(error).splitlines()[0]}",
            means="the table may have been maintained or made anew meanwhile",
            fix="run the same query again",
        ) from error
    except duckdb.Error as error:
        raise refused(error, tables) from error


# What DuckDB's errors are called in front of their texts, where that decides what becomes of them.
_CALLED = {
    "INTERRUPT Error": "InterruptException",
    "Out of Memory Error": "OutOfMemoryException",
    "IO Error": "IOException",
    "Permission Error": "PermissionException",
}


@contextmanager
def _later() -> Iterator[None]:
    """What fails behind the first rows comes through Arrow, which tells of DuckDB's error nothing but the text."""
    import duckdb

    try:
        yield
    except OSError as error:
        kind = getattr(duckdb, _CALLED.get(str(error).split(":", 1)[0], "Error"))
        raise kind(str(error)) from error


def quoted(name: str) -> str:
    """A name as DuckDB's SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def scan_of(metadata_location: str) -> str:
    """The rows of an Iceberg table as one of its metadata files says: those of one snapshot."""
    return f"iceberg_scan({_literal(metadata_location)})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _opened() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise _missing("duckdb") from error
    if duckdb.__version__ in WRONG:
        raise ConfigError(
            f"DuckDB {duckdb.__version__} reads tables with deletion vectors wrongly",
            means="rows would be missing, and deleted ones there, without a word (docs/sinks.md)",
            fix="pip install 'headwater[query]', which brings one that reads them rightly",
        )
    connection = duckdb.connect(config={"threads": THREADS, "memory_limit": MEMORY})
    for name in _EXTENSIONS:
        connection.execute(f"LOAD {_literal(str(_extension(name, duckdb.__version__)))}")
    return connection


def _extension(name: str, version: str) -> Path:
    """Its file, as its package has it: DuckDB's own way would be to download it."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    folder = Path(found.origin).parent if found and found.origin else Path()
    path = folder / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise _missing(f"duckdb-extension-{name} for DuckDB {version}")
    return path


def _missing(what: str) -> ConfigError:
    return ConfigError(
        f"{what} is not installed",
        means="`headwater query` needs it, and nothing else does",
        fix="pip install 'headwater[query]'",
    )
