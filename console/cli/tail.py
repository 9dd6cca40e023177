"""``headwater tail``: a view's changes as they come."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from console.cli.shared.cut import cut
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
@click.option("--from-now", "start", flag_value="now", default="now", help="What comes from now on (the usual).")
@click.option("--snapshot", "start", flag_value="snapshot", help="First all documents that there are.")
@click.option("--after", "cursor", metavar="CURSOR", help="What followed this cursor, of an event before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line (documented, stable).")
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
    from operations.push.following import follow
    from operations.push.lens import Lens
    from operations.push.source import Source, place_of

    names = [name.strip() for name in (fields or "").split(",") if name.strip()]
    lens, unknown = Lens.of(filter_, names), _Unknown(names, view)
    source = Source(place_of(load(file), view, sink))
    documents = start == "snapshot" or cursor is not None
    waiting = _Waiting()
    try:
        for found in follow(source, Changes(lens), cursor, documents=documents, on_wait=waiting.say):
            for one in found:
                waiting.over()
                unknown.look(one)
                _print(one, as_json=as_json)
            if found:
                sys.stdout.flush()
    finally:
        source.close()


class _Waiting:
    """Says why nothing comes, once each time."""

    def __init__(self) -> None:
        self._said = ""

    def say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            click.echo(f"waiting: {why}", err=True)

    def over(self) -> None:
        self._said = ""


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


def _print(told: Told, *, as_json: bool) -> None:
    if as_json:
        cursor = b"null" if told.cursor is None else orjson.dumps(told.cursor)
        head = b'{"event":%s,"cursor":%s,"data":' % (orjson.dumps(told.name), cursor)
        click.echo(head + told.data + b"}")
        return
    value = told.value
    if told.name == "change":
        shown = value["before"] if value["after"] is None else value["after"]
        click.echo(f"{value['op']:8} {value['key']}  {_short(shown)}")
    elif told.name == "snapshot":
        for one in value["documents"]:
            click.echo(f"{'is':8} {one['key']}  {_short(one['document'])}")
    elif told.name == "reset":
        click.echo(f"reset: {value['why']}", err=True)
    else:
        click.echo(f"following {value['view']}, generation {value['generation']}", err=True)


def _short(document: object) -> str:
    return cut(orjson.dumps(document).decode(), MAX_SHOWN)
