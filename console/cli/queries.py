"""``headwater queries``: searches that stand on a view, and what enters and leaves by them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from cdc.errors import ConfigError
from console.cli.shared.cut import cut
from console.cli.shared.followed import follow_options, followed, print_event, print_reset
from console.cli.shared.options import json_option, pipeline_argument, print_json

if TYPE_CHECKING:
    from operations.push.events import Told

# More of a query, or of a document, only hides the others; --json has all of it.
MAX_SHOWN = 120
view_argument = click.argument("view", metavar="VIEW")
name_argument = click.argument("name", metavar="NAME")


@click.group(
    epilog="""\b
Examples:
  headwater queries put pipeline.yaml order big --query '{"range": {"total": {"gte": 1000}}}'
  headwater queries put pipeline.yaml order big --query @big.json
  headwater queries list pipeline.yaml order
  headwater queries tail pipeline.yaml order big
  headwater queries remove pipeline.yaml order big
"""
)
def command() -> None:
    """Standing queries: searches that each new version of a document is held against.

    `queries` in the pipeline file says on which views they may stand, and `headwater run` judges them
    (docs/standing-queries.md). They are written in the search server's own language. Where the file says `saved`,
    rows of a table are the queries, and `put` and `remove` are refused.
    """


@command.command("list")
@pipeline_argument
@view_argument
@json_option
def list_(file: Path, view: str, as_json: bool) -> None:
    """List the queries that stand on a view."""
    from cdc.pipeline import load
    from operations.standing.queries import list_queries

    report = list_queries(load(file), view)
    if as_json:
        print_json(report)
        return
    for one in report["queries"]:
        query = [] if one["query"] is None else [_short(one["query"])]  # none: a document that is no query
        why = [one["refused"]] if one["refused"] else []
        click.echo(f"{one['state']:8} {one['name']}  {': '.join(query + why)}")
    if not report["queries"]:
        click.echo(f"no queries stand on {view}")


@command.command()
@pipeline_argument
@view_argument
@name_argument
@click.option(
    "--query", required=True, metavar="JSON|@FILE", help="Query DSL, or @ and a file that has it (@-: input)."
)
@json_option
def put(file: Path, view: str, name: str, query: str, as_json: bool) -> None:
    """Register a query, or change the one of this name.

    One that the search server can't parse is refused, with the server's words. It is `pending` until all documents were
    held against it: what matches then is told as `entered`, and what a changed query matches no more as `left`.
    """
    from cdc.pipeline import load
    from operations.standing.queries import put_query

    report = put_query(load(file), view, name, _text(query))
    if as_json:
        print_json(report)
    else:
        click.echo(f"{name}: {report['state']}, revision {report['revision']}")


@command.command()
@pipeline_argument
@view_argument
@name_argument
@json_option
def remove(file: Path, view: str, name: str, as_json: bool) -> None:
    """Remove a query; what matched it is told as `left`."""
    from cdc.pipeline import load
    from operations.standing.queries import remove_query

    report = remove_query(load(file), view, name)
    if as_json:
        print_json(report)
    else:
        click.echo(f"{name}: removed")


@command.command()
@pipeline_argument
@view_argument
@click.argument("names", metavar="[NAME…]", nargs=-1)
@follow_options("First who matches now.")
def tail(file: Path, view: str, names: tuple[str, ...], start: str, cursor: str | None, as_json: bool) -> None:
    """Print what enters, changes and leaves, of these queries or all of the view's, until Ctrl-C.

    It asks the Redis of the sink with `changes` itself, and needs no server of ours.
    """
    from cdc.pipeline import load
    from operations.push.source import Source
    from operations.standing.place import standing_place
    from operations.standing.seen import Seen

    source = Source(standing_place(load(file), view))
    show = print_event if as_json else partial(_print, start=start)
    followed(source, Seen(names), cursor, start, show)


def _text(query: str) -> bytes:
    if not query.startswith("@"):
        return query.encode()
    if query == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(query[1:]).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{query[1:]} can't be read: {error.strerror}", fix="@ is followed by a file's path"
        ) from error


def _print(told: Told, start: str) -> None:
    value = told.value
    if told.name == "match":
        for name, op in value["queries"].items():
            click.echo(f"{op:8} {name}  {value['key']}  {_short(value['document'])}")
    elif told.name == "snapshot":
        for one in value["documents"]:
            click.echo(f"{'matches':8} {', '.join(one['queries'])}  {one['key']}")
    elif told.name == "reset":
        print_reset(told, start, "who matches already")
    else:
        click.echo(f"following the standing queries of {value['view']}", err=True)


def _short(value: Any) -> str:
    return cut(orjson.dumps(value).decode(), MAX_SHOWN)
