"""``headwater query``: SQL over the warehouse's tables, and over what the log has besides."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from console.cli.shared.cut import cut
from console.cli.shared.options import json_option, pipeline_argument, print_json, sink_option
from console.cli.shared.patience import patient

if TYPE_CHECKING:
    from operations.query.answer import Answer

# More than this of a value only hides the others; --json and --csv have all of it.
MAX_VALUE = 80


@click.command(
    epilog="""\b
Examples:
  headwater query pipeline.yaml "SELECT count(*) FROM flight WHERE carrier = 'UA'"
  headwater query pipeline.yaml "FROM flight WHERE id = 4711" --fresh
  headwater query pipeline.yaml "FROM flight WHERE id = 4711" --at-least "$TOKEN"
  headwater query pipeline.yaml "SHOW TABLES"
  headwater query pipeline.yaml "FROM flights_versions WHERE id = 4711 ORDER BY valid_from"
  headwater query pipeline.yaml "FROM flight" --csv --limit 1000000 > flight.csv
"""
)
@pipeline_argument
@click.argument("statement", metavar="SQL")
@click.option("--fresh", is_flag=True, help="Also read what the log has and the tables have not yet.")
@click.option(
    "--at-least", "token", metavar="TOKEN", help="Wait until the log holds this write, then as --fresh (docs/api.md)."
)
@sink_option
@click.option("--limit", type=click.IntRange(1, 10_000_000), default=1_000, show_default=True, help="Most rows shown.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(0.1, 86_400),
    default=60.0,
    show_default=True,
    help="How long the query may take, in seconds.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: names first, then a line a row; null is empty.")
@patient
def command(
    file: Path,
    statement: str,
    fresh: bool,
    token: str | None,
    only: tuple[str, ...],
    limit: int,
    seconds: float,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Ask the warehouse's tables in SQL, and be told as of when the answer is.

    Every view of a warehouse sink is a table under its own name (under "SINK".VIEW where two sinks have it), as DuckDB
    reads it: the newest snapshot of the generation that readers see. With --fresh each table is united with what its
    topic has and it has not, so that the answer has every commit that is in the log; that needs Kafka, and views
    without Spark SQL. Reads only: one statement, no other files, no network.

    Of a sink with `history: true`, <table>_history has every event of a table, and <table>_versions every version of
    its rows with valid_from and valid_to, both as they were committed; `headwater as-of` prints what reads all tables
    at one cut.

    Exit code 2 when the SQL is refused or wrong.
    """
    from cdc.errors import ConfigError, QueryRefused
    from cdc.pipeline import load
    from cdc.token import parse_token
    from operations.query.query import Queries

    if as_json and as_csv:
        raise ConfigError("--json and --csv are two forms of one answer", fix="choose one")
    pipeline, at_least = load(file), None if token is None else parse_token(token)
    queries = Queries(pipeline, only)
    try:
        answer = queries.run(statement, fresh=fresh, at_least=at_least, limit=limit, seconds=seconds)
    except QueryRefused as error:
        click.echo(f"error [{error.code}]: {error}", err=True)
        sys.exit(2)
    finally:
        queries.close()
    if as_json:
        print_json(answer.to_dict(pipeline.name))
        return
    if as_csv:
        _csv(answer)
    else:
        _table(answer)
    click.echo("\n".join(said(answer, limit)), err=True)


def said(answer: Answer, limit: int) -> list[str]:
    """What is to be known of an answer besides its rows."""
    count = len(answer.found.rows)
    if answer.found.truncated:
        lines = [f"the first {count:,} rows; there are more (--limit {limit} is to blame)"]
    else:
        lines = [f"{count:,} row{'' if count == 1 else 's'}"]
    if not answer.tables:
        return lines
    at = answer.as_of.to_dict()
    lines.append(f"as of LSN {at['lsn']}" if at["lsn"] else f"as of when is not known: {at['reason']}")
    for one in answer.tables if answer.fresh else ():
        tail = one.tail
        if tail is not None and tail.records:
            letters = f", {tail.letters:,} of which no sink would take" if tail.letters else ""
            lines.append(f"{one.held.name.shown}: with {tail.records:,} records of the log{letters}")
    return lines


def _table(answer: Answer) -> None:
    from rich.text import Text

    from console.cli.shared.tables import plain_table, show, width

    if _breadth(answer) > width():
        _records(answer)
        return
    table = plain_table()
    for name, kind in answer.found.columns:
        right = any(word in kind.upper() for word in ("INT", "DECIMAL", "DOUBLE", "FLOAT"))
        table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in answer.found.rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    show(table)


def _breadth(answer: Answer) -> int:
    """Characters that a line of the table would take."""
    rows = answer.found.rows
    return sum(
        2 + max([len(name), *(len(_shown(row[at])) for row in rows)])
        for at, (name, _) in enumerate(answer.found.columns)
    )


def _records(answer: Answer) -> None:
    """One below the other, as psql has them with ``\\x auto``: rows that are broken into lines can't be read."""
    from rich.table import Table
    from rich.text import Text

    from console.cli.shared.tables import show

    for number, row in enumerate(answer.found.rows, 1):
        record = Table.grid(padding=(0, 2))
        record.add_column(no_wrap=True)
        record.add_column(overflow="fold")
        for (name, _), value in zip(answer.found.columns, row, strict=True):
            record.add_row(Text(name), Text(_shown(value)))
        click.echo(click.style(f"-[ row {number:,} ]-", bold=True))
        show(record)


def _shown(value: Any) -> str:
    return cut(_text(value), MAX_VALUE)


def _text(value: Any) -> str:
    """A value as text: null is nothing, words are as they are, the rest as JSON."""
    return "" if value is None else value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([name for name, _ in answer.found.columns])
    rows: Sequence[Sequence[Any]] = answer.found.rows
    writer.writerows([_text(value) for value in row] for row in rows)
