"""``headwater erase``: where a deleted row still is, and that it goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json

_KINDS = {
    "topic": "topic",
    "letters": "dead letters",
    "table": "table",
    "history": "history",
    "index": "index",
    "cache": "cache",
    "row-store": "row store",
    "sink": "former sink",
    "matches": "matches",
    "backup": "backup",
}


@click.command(
    epilog="""\b
Examples:
  headwater erase pipeline.yaml public.customers 4711             (only looks)
  headwater erase pipeline.yaml public.customers 4711 --yes --certificate 4711.json
  headwater erase pipeline.yaml orders '17|3' --yes --tags move
  headwater erase pipeline.yaml public.customers 4711 --json
"""
)
@pipeline_argument
@click.argument("table", metavar="TABLE")
@click.argument("key", metavar="KEY")
@click.option("--yes", "-y", is_flag=True, help="Erase; without it nothing is changed.")
@click.option(
    "--tags",
    type=click.Choice(["refuse", "move"]),
    default="refuse",
    show_default=True,
    help="Tags of a warehouse that keep the row: refused, or led to the table without it.",
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="For the delete to come everywhere.",
)
@click.option(
    "--certificate",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write what was done there, as JSON.",
)
@click.option("--name-key", is_flag=True, help="Name the key in it, and not only its digest.")
@json_option
def command(
    file: Path,
    table: str,
    key: str,
    yes: bool,
    tags: str,
    wait: float,
    certificate: Path | None,
    name_key: bool,
    as_json: bool,
) -> None:
    """Erase a row that was deleted at the source, wherever it still is; without --yes only look.

    KEY is the row's primary key, of several columns with | between. Searched are the topic before its compaction, the
    warehouse's tables with all their snapshots and tags, history, dead letters, the row store, caches and indices, of
    every generation. With --yes values go from all of them: topics are compacted and waited for, files of tables are
    written anew and older snapshots expired (the sink is paused meanwhile), servers write their own files anew.

    Refused, with nothing changed: a row that is in the source; a delete that has not come everywhere within --wait; a
    generation that nobody runs and that holds it; tags that keep it. Killed half-way, the same again goes on. The
    certificate says what was searched and when, what was found and what is left, and holds no value of the row.

    Exit code 0: nothing is left (or, only looking, nothing was seen); 1: an error; 2: something is left.
    """
    from cdc.pipeline import load
    from operations.erase.eraser import Options, erase, write_certificate

    if certificate is not None and not yes:
        raise click.UsageError("--certificate says what was erased: it goes with --yes")
    options = Options(act=yes, move_tags=tags == "move", wait=wait, name_key=name_key)
    report = erase(load(file), table, key, options, lambda line: click.echo(line, err=True))
    if certificate is not None:
        write_certificate(certificate, report)
    if as_json:
        print_json(report)
    else:
        _print(report, yes)
    if (not report["erased"]) if yes else report["found"]:
        sys.exit(2)


def _print(report: dict[str, Any], acted: bool) -> None:
    click.echo(f"{report['table']}, key {report['key'] or 'sha256 ' + report['key_sha256'][:16] + '…'}")
    for place in report["places"]:
        of = f" of {place['sink']}" if place["sink"] else ""
        of += f", generation {place['generation']}" if place["generation"] else ""
        click.echo(f"  {_KINDS[place['kind']]:<13} {place['name']}{of}: {_said(place, acted)}")
        if place["note"]:
            click.echo(f"                {place['note']}")
    for line in report["refused"]:
        click.echo(f"an erasure would be refused now: {line}")
    for line in report["waits"]:
        click.echo(f"an erasure would wait for this first: {line}")
    for line in report["stays"]:
        click.echo(f"stays: {line}")
    for line in report["not_ours"]:
        click.echo(f"not looked into: {line}")
    if not acted:
        way = "--yes refuses too, until that is otherwise" if report["refused"] else "--yes erases what was found"
        click.echo(f"nothing was changed; {way}")
    else:
        click.echo("ERASED" if report["erased"] else "NOT ALL ERASED: see what is left above")


def _said(place: dict[str, Any], acted: bool) -> str:
    words = f" ({place['words']})" if place["words"] else ""
    if place["kind"] in ("matches", "backup"):
        return f"not touched{words}"
    seen = f"{place['found']} found" if place["found"] else "nothing found"
    seen += f", {place['hidden']} that may hold it" if place["hidden"] else ""
    if not acted:
        return seen + words
    left = f"{place['left']} left" if place["left"] else "nothing left"
    left += f", {place['hidden_left']} that may hold it" if place["hidden_left"] else ""
    return f"{seen}{words}; {left}"
