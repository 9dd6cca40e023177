"""``headwater plan``: what apply would change."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json
from console.cli.shared.patience import patient

DIFFERENCES = 2


@click.command(
    epilog="""\b
Examples:
  headwater plan pipeline.yaml
  headwater plan pipeline.yaml --json
  headwater plan pipeline.yaml || { [ $? -eq 2 ] && headwater apply pipeline.yaml; }
  headwater plan pipeline.yaml --migration V7__prices.sql   (before you run it)
"""
)
@pipeline_argument
@click.option(
    "--migration",
    type=click.Path(path_type=Path),
    metavar="SQL",
    help="Try this SQL out on the source, as setup_user, in a transaction that is rolled back: what it would mean.",
)
@json_option
@patient
def command(file: Path, migration: Path | None, as_json: bool) -> None:
    """Show what apply would change in Postgres, Kafka and Kafka Connect, and which sinks need a new generation.

    A sink whose view, mapping or target was changed in the file goes on as it was; `rebuild` makes it anew. Of tables
    whose columns have changed, or would change by --migration, it shows what that means for each view and sink (a
    migration that is tried out locks its tables for as long as it takes); and of those that `run` has noticed, what it
    is doing about them, which is no difference. If a `headwater run` is alive, it also shows
    what that will do with the file once it is applied. Changes nothing. Views that do not fit the tables are an error,
    as they are for `apply`.

    Exit code 0: nothing to do; 2: there are changes; 1: error. Secrets are never shown.
    """
    from cdc.pipeline import load

    pipeline = load(file)  # before the rest is imported: what is wrong with it is said at once
    from console.cli.shared.show_action import Actions
    from operations.plan import plan
    from operations.status.evolving import line

    found = plan(pipeline, migration, lambda line: click.echo(line, err=True))
    asked = found.asked()
    if as_json:
        print_json(found.to_dict())
    else:
        with Actions() as shown:
            for action in found.actions:
                shown.show(action)
        for said in found.lines(str(file)):
            click.echo(click.style("~ ", fg="yellow") + said)
        for table in found.tables:
            show_migration(table)
        for said in (*map(line, found.evolving), *found.read_again(str(file)), *asked):
            click.echo(click.style("~ ", fg="yellow") + said)
        if closing := found.closing(str(file)):
            click.echo(closing)
    sys.exit(DIFFERENCES if found.actions or found.sinks or found.tables or asked else 0)


def _verdict(view: Mapping[str, Any]) -> str:
    from operations.schema.stopped import views_named

    if not (others := view["stands_with"]):
        return str(view["verdict"])
    return f"stands with {views_named(others)}, until {'they are' if len(others) > 1 else 'it is'} corrected"


def show_migration(table: Mapping[str, Any]) -> None:
    """What a changed table means, a line a view."""
    from operations.generations.outdated import room

    click.echo(click.style("~ ", fg="yellow") + f"table {table['table']}: {', '.join(table['changes'])}")
    for view in table["views"]:
        documents = f", about {view['documents']:,} documents written again" if view["documents"] else ""
        why = f" ({'; '.join(said)})" if (said := view["why"] if view["verdict"] == "refuse" else view["asks"]) else ""
        click.echo(
            f"    sink {view['sink']}, generation {view['generation']}, view {view['view']}: "
            f"{_verdict(view)}{documents}{why}"
        )
    for sink, cost in table["rebuilt"].items():
        known = cost["documents"] is not None
        much = f": about {cost['documents']:,} documents, {cost['minutes']:g} minutes" if known else ""
        click.echo(f"    sink {sink} gets a new generation{much}{room(cost)}")
    if table["read"]:
        click.echo(f"    about {table['read']:,} rows are read again")
