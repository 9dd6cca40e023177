"""``headwater tail``: a view's changes as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from console.cli.shared.cut import cut
from console.cli.shared.followed import follow_options, followed, print_event, print_reset
from console.cli.shared.options import pipeline_argument

if TYPE_CHECKING:
    from operations.push.events import Told

# More than this of a document only hides the others; --json has all of it.
MAX_SHOWN = 160


@click.command(
    epilog="""\b
Examples:
  headwater tail pipeline.yaml order
  headwater tail pipeline.yaml order --filter "status == 'open'"
  headwater tail pipeline.yaml order --snapshot --fields status,total --json
  headwater tail pipeline.yaml order --after "$CURSOR" --json
"""
)
@pipeline_argument
@click.argument("view", metavar="VIEW")
@click.option("--sink", metavar="NAME", help="The sink that keeps them; needed where several do.")
@click.option("--filter", "filter_", metavar="JMESPATH", help="Only documents of which this is true.")
@click.option("--fields", metavar="NAME,…", help="Only these fields of documents.")
@follow_options("First all documents that there are.")
def command(
    file: Path,
    view: str,
    sink: str | None,
    filter_: str | None,
    fields: str | None,
    start: str,
    cursor: str | None,
    as_json: bool,
) -> None:
    """Print every change of a view's documents, before and after, until Ctrl-C.

    It asks the Redis of a sink with `changes` itself, and needs no server of ours (docs/push.md). A change is printed
    once, in the order of each document's versions. With --filter a document has `entered`, `changed` or `left` what
    the filter lets through.

    After --after with a cursor that is too old, or of another generation, comes `reset`, and then all documents.
    """
    from cdc.pipeline import load
    from operations.push.events import Changes
    from operations.push.lens import Lens
    from operations.push.source import Source, place_of

    names = [name.strip() for name in (fields or "").split(",") if name.strip()]
    lens, unknown = Lens.of(filter_, names), _Unknown(names, view)
    source = Source(place_of(load(file), view, sink))

    def show(told: Told) -> None:
        unknown.look(told)
        if as_json:
            print_event(told)
        else:
            _print(told, start)

    followed(source, Changes(lens), cursor, start, show)


class _Unknown:
    """Says which of the fields that were asked for no document has: all documents of a view have the same ones."""

    def __init__(self, names: list[str], view: str) -> None:
        self._names, self._view = names, view

    def look(self, told: Told) -> None:
        """Look at the first document that is told of."""
        if not self._names:
            return
        found = next((one for one in _documents(told) if isinstance(one, dict)), None)
        if found is None:
            return
        for name in self._names:
            if name not in found:
                click.echo(f"no field {name!r} in documents of {self._view!r}: is it misspelt?", err=True)
        self._names = []


def _documents(told: Told) -> list[object]:
    if told.name == "change":
        return [told.value["after"], told.value["before"]]
    return [one["document"] for one in told.value["documents"]] if told.name == "snapshot" else []


def _print(told: Told, start: str) -> None:
    value = told.value
    if told.name == "change":
        shown = value["before"] if value["after"] is None else value["after"]
        click.echo(f"{value['op']:8} {value['key']}  {_short(shown)}")
    elif told.name == "snapshot":
        for one in value["documents"]:
            click.echo(f"{'is':8} {one['key']}  {_short(one['document'])}")
    elif told.name == "reset":
        print_reset(told, start, "what is there already")
    else:
        click.echo(f"following {value['view']}, generation {value['generation']}", err=True)


def _short(document: object) -> str:
    return cut(orjson.dumps(document).decode(), MAX_SHOWN)
