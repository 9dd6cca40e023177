"""``headwater preview``: the documents that a view makes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from cdc.errors import HeadwaterError
from console.cli.shared.options import json_option, pipeline_argument, print_json
from console.cli.shared.patience import patient
from spark.disk.files import stamp

if TYPE_CHECKING:
    from operations.preview.asked import Asked
    from operations.preview.previewer import Previewer

# More lines of one of several documents only hide the others; --json has all.
MAX_LINES = 60
LOOK_SECONDS = 0.2
# An editor writes a file in several steps.
SETTLED_SECONDS = 0.05

Show = Callable[["Previewer"], int]


@click.command(
    epilog="""\b
Examples:
  headwater preview pipeline.yaml order_card
  headwater preview pipeline.yaml order_card 42 --watch
  headwater preview pipeline.yaml order_item '42|1'              (a key of two columns)
  headwater preview pipeline.yaml order_card --where "status = 'open'" --sample 3
  headwater preview pipeline.yaml order_card --diff --sample 50
"""
)
@pipeline_argument
@click.argument("view", metavar="VIEW")
@click.argument("key", metavar="[KEY]", required=False)
@click.option("--where", metavar="SQL", help="Only rows of the root for which Postgres finds this condition true.")
@click.option(
    "--sample",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    metavar="N",
    help="How many documents; without --where random ones, the same each time.",
)
@click.option("--watch", is_flag=True, help="Again each time that the file is saved; Ctrl-C ends it.")
@click.option("--diff", is_flag=True, help="What differs from what the sink's living generation holds.")
@click.option("--sink", metavar="NAME", help="With --diff: which sink, when several keep the view.")
@json_option
@patient
def command(
    file: Path,
    view: str,
    key: str | None,
    where: str | None,
    sample: int,
    watch: bool,
    diff: bool,
    sink: str | None,
    as_json: bool,
) -> None:
    """Show the documents of VIEW as the file makes them now, read straight from Postgres.

    Nothing need be captured or running, and nothing is changed: the rows are read in a read-only transaction as
    `source.user` (without --where as `setup_user` too, until `apply` has granted that role its rights), each statement
    for 30 seconds at the most. Only a view with Spark SQL starts Spark.

    KEY is the document's id: the primary key, several columns joined with |; one that begins with a minus goes after
    --. --where is SQL over the columns of the view's root.

    Exit code 1 when no row is found. With --diff 2 when something differs, 0 when nothing does.
    """
    from operations.preview.asked import Asked
    from operations.preview.previewer import Previewer

    asked = Asked(key, where, sample)
    show = _differing(file, view, asked, sink, as_json) if diff else _documents(file, view, asked, as_json, watch=watch)
    with Previewer(lambda line: click.echo(line, err=True)) as previewer:
        sys.exit(_watch(file, previewer, show) if watch else show(previewer))


def _documents(file: Path, view: str, asked: Asked, as_json: bool, *, watch: bool) -> Show:
    def show(previewer: Previewer) -> int:
        from cdc.pipeline import load

        report = previewer.report(load(file), view, asked)
        if not as_json:
            show_documents(report)
        elif watch:
            click.echo(orjson.dumps(report))  # a line each time
        else:
            print_json(report)
        return 0 if report["documents"] else 1

    return show


def _differing(file: Path, view: str, asked: Asked, sink: str | None, as_json: bool) -> Show:
    def show(previewer: Previewer) -> int:
        from cdc.pipeline import load
        from console.cli.preview_diff import show_diff
        from operations.preview.diff import diff_report

        report = diff_report(previewer, load(file), view, asked, sink)
        if as_json:
            print_json(report)
        else:
            show_diff(report)
        return 0 if report["equal"] else 2

    return show


def _watch(file: Path, previewer: Previewer, show: Show) -> int:
    """Show, and again at each save; an error of the file is shown like anything else. Ends with Ctrl-C."""
    seen = None
    try:
        while True:
            now = stamp(file)
            if now is None or now == seen:
                time.sleep(LOOK_SECONDS)
                continue
            time.sleep(SETTLED_SECONDS)
            if stamp(file) != now:
                continue
            if seen is not None:
                click.echo(f"\n--- {file} was saved {time.strftime('%H:%M:%S')}", err=True)
            seen = now
            try:
                show(previewer)
            except HeadwaterError as error:
                click.echo(f"error [{error.code}]: {error}", err=True)
    except KeyboardInterrupt:
        return 0


def show_documents(report: Mapping[str, Any]) -> None:
    """Print a report."""
    documents = report["documents"]
    for one in documents:
        click.secho(f"{report['view']} {one['key']}", bold=True)
        if one["document"] is None:
            click.echo(f"no document: {one['why']}")
            continue
        lines = orjson.dumps(one["document"], option=orjson.OPT_INDENT_2).decode().splitlines()
        most = len(lines) if len(documents) == 1 else MAX_LINES
        click.echo("\n".join(lines[:most]))
        if len(lines) > most:
            click.echo(f"… and {len(lines) - most:,} more lines (--json shows all)")
    if not documents:
        click.echo(report["not_a_key"] or f"no such row was found in {report['root']}", err=True)
    if report["near"]:
        click.echo(f"did you mean {' or '.join(report['near'])}?", err=True)
    made = sum(one["document"] is not None for one in documents)
    rows = f" of {len(documents):,} row{'s' * (len(documents) != 1)}" if made < len(documents) else ""
    click.echo(f"{made:,} document{'s' * (made != 1)}{rows} in {report['seconds']:.2f} s", err=True)
