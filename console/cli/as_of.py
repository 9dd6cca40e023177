"""``headwater as-of``: one cut over every table of a history, and the SQL that reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json
from console.cli.shared.patience import patient

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline

# Iceberg's names of tags may be anything; ours can be typed and put into a property.
NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,62}"


@click.command(
    epilog="""\b
Examples:
  headwater as-of pipeline.yaml                                    (now)
  headwater as-of pipeline.yaml --lsn 0/2CA3B1F8
  headwater as-of pipeline.yaml --time 2026-11-24T12:00:00+01:00
  headwater as-of pipeline.yaml --time 2026-11-30 --tag november
  headwater as-of pipeline.yaml --cut november --engine duckdb
  headwater as-of pipeline.yaml --list --json
  headwater as-of pipeline.yaml --drop november
"""
)
@pipeline_argument
@click.option("--lsn", metavar="X/Y", help="Through this position of the source's log.")
@click.option(
    "--time", "at", metavar="ISO8601", help="Through this millisecond of the source's clock; UTC without a zone."
)
@click.option("--token", metavar="TOKEN", help="Through the write that this token is of.")
@click.option("--cut", metavar="NAME", help="One that has a name.")
@click.option("--tag", metavar="NAME", help="Give the cut a name: a tag on every table of history.")
@click.option("--list", "listing", is_flag=True, help="Show the cuts that have names.")
@click.option("--drop", "dropped", metavar="NAME", help="Take a name back; the rows stay.")
@click.option("--sink", metavar="NAME", help="Whose history, where several sinks keep one.")
@click.option(
    "--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="Only this table (may be repeated); else all."
)
@click.option(
    "--engine", type=click.Choice(["spark", "duckdb", "pyiceberg"]), default=None, help="Print the SQL of this alone."
)
@click.option(
    "--wait", type=click.FloatRange(0), default=30.0, metavar="SECONDS", help="For history to begin and come there."
)
@json_option
@patient
def command(
    file: Path,
    lsn: str | None,
    at: str | None,
    token: str | None,
    cut: str | None,
    tag: str | None,
    listing: bool,
    dropped: str | None,
    sink: str | None,
    tables: tuple[str, ...],
    engine: str | None,
    wait: float,
    as_json: bool,
) -> None:
    """Read every table of a warehouse as of one commit, with no transaction torn.

    The sink must say `history: true`. A cut takes every transaction that was committed at or before a position or a
    moment, and no other, in all tables. A moment is a whole millisecond, of which all is taken: the log has no more of
    when a transaction was committed. Nothing is copied: what is printed is SQL over the tables <table>_history, which
    gives the same rows whenever it is run (DuckDB's for an hour, or a table's next fifty commits: then have it printed
    again).

    Refused is a cut before history begins, beyond what history has applied, of another database than the history is
    of, or where compaction may have taken events before they were read (docs/sinks.md).
    """
    from cdc.pipeline import load
    from operations.as_of.naming import drop_cut, list_cuts

    if sum(option is not None for option in (lsn, at, token, cut, dropped)) + listing > 1:
        raise click.UsageError("--lsn, --time, --token, --cut, --list and --drop exclude each other")
    if tag is not None and (listing or dropped is not None):
        raise click.UsageError("--tag names a cut that is made now: it goes with neither --list nor --drop")
    if tag is not None and not re.fullmatch(NAME, tag):
        raise click.BadParameter(f"{tag!r} is no name like november: letters, digits, _ . -", param_hint="--tag")
    pipeline = load(file)
    if listing:
        found = list_cuts(pipeline, sink)
        if as_json:
            print_json({"pipeline": pipeline.name, "cuts": found})
        else:
            for one in found:
                click.echo(f"{one['name']:<24} {one['lsn']}")
    elif dropped is not None:
        drop_cut(pipeline, sink, dropped)
        if as_json:
            print_json({"pipeline": pipeline.name, "dropped": dropped})
        else:
            click.echo(f"cut {dropped} has no name any more; its rows stay")
    else:
        given = {"lsn": lsn, "at": at, "token": token, "cut": cut, "wait": wait, "tables": tables}
        _read(pipeline, sink, given, tag, engine, as_json)


def _read(
    pipeline: Pipeline, sink: str | None, asked: dict[str, Any], tag: str | None, engine: str | None, as_json: bool
) -> None:
    from operations.as_of.report import as_of

    report = as_of(pipeline, sink, _asked(pipeline, sink, asked), tag, lambda line: click.echo(line, err=True))
    if as_json:
        print_json(report)
        return
    for line in shown_lines(report, engine):
        click.echo(line)


def shown_lines(report: dict[str, Any], engine: str | None) -> Iterator[str]:
    """What is printed; of one engine it is a whole text of its language, with that language's comments."""
    named = f", tag {report['tag']}" if report["tag"] else ""
    head = "#" if engine == "pyiceberg" else "--"
    yield f"{head} as of {report['lsn']}{named}; history is complete up to {report['frontier']} at least"
    for table in report["tables"]:
        for column, aside in table["aside"].items():
            others = ", ".join(aside)
            yield f"{head} {table['table']}: what {column} was under a former type is in {others}, and null in it"
        for name, text in table["sql"].items():
            if engine in (None, name) and name in ("spark", "duckdb", "pyiceberg"):
                mark = "#" if name == "pyiceberg" else "--"
                yield f"{mark} {table['table']}, {name}\n{text}{'' if name == 'pyiceberg' else ';'}"


def _asked(pipeline: Pipeline, sink: str | None, given: dict[str, Any]) -> Any:
    from cdc.records.position import parse_lsn
    from operations.as_of.cut import Asked, moment_of
    from operations.as_of.naming import named_cut

    try:
        lsn = None if given["lsn"] is None else parse_lsn(given["lsn"])
    except ValueError as error:
        raise click.BadParameter(f"{given['lsn']} is no position like 0/2CA3B1F8", param_hint="--lsn") from error
    try:
        at = None if given["at"] is None else moment_of(given["at"])
    except ValueError as error:
        raise click.BadParameter(
            f"{given['at']} is no moment like 2026-11-24T12:00:00Z", param_hint="--time"
        ) from error
    exact = None if given["cut"] is None else int(named_cut(pipeline, sink, given["cut"], given["tables"])["cut"])
    return Asked(lsn, at, given["token"], given["wait"], exact, given["tables"], given["cut"])
