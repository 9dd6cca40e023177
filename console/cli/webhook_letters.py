"""``headwater letters FILE webhooks``: what a webhook or a topic has refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from console.cli.shared.letters import dropped, told_left
from console.cli.shared.options import cause_option, json_option, print_json, since_of, since_option, together
from console.cli.shared.tables import ago, print_table

if TYPE_CHECKING:
    from operations.push.letters import WantedLetters


@click.group(
    epilog="""\b
Examples:
  headwater letters pipeline.yaml webhooks list
  headwater letters pipeline.yaml webhooks send --webhook orders
  headwater letters pipeline.yaml webhooks drop --webhook orders --since 2h
"""
)
def webhooks() -> None:
    """Batches that a webhook or a topic has refused: put aside, so that the next ones could be sent.

    They lie in the Redis of the sink that keeps the changes, the newest 256 or so of a view (docs/push.md). Nobody
    sends them again by himself. Those of a name that the file has no more are listed too, and can be dropped.
    """


_wanted_options = together(
    click.option("--webhook", "hooks", multiple=True, metavar="NAME", help="Only of this one (may be repeated)."),
    click.option("--id", "ids", multiple=True, metavar="ID", help="Only this batch (may be repeated)."),
    cause_option,
    since_option,
)


def _wanted(**asked: Any) -> WantedLetters:
    from operations.push.letters import WantedLetters

    return WantedLetters(**asked | {"since": since_of(asked["since"])})


@webhooks.command(
    "list",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml webhooks list
  headwater letters pipeline.yaml webhooks list --webhook orders --values
  headwater letters pipeline.yaml webhooks list --json | jq .standing
""",
)
@_wanted_options
@click.option("--values", is_flag=True, help="Also show their events, which have what rows hold.")
@json_option
@click.pass_obj
def list_command(file: Path, /, values: bool, as_json: bool, **asked: Any) -> None:
    """List what was refused, the oldest of a view first."""
    from cdc.pipeline import load
    from operations.push.letters import list_letters

    report = list_letters(load(file), _wanted(**asked), values=values)
    if as_json:
        print_json(report)
        return
    if report["letters"]:
        headings = ("webhook", "view", "when", "events", "why", "id")
        print_table(
            headings,
            [
                (one["webhook"], one["view"], ago(one["at"]), f"{one['events']:,}{_kept(one)}", one["why"], one["id"])
                for one in report["letters"]
            ],
        )
    for one in report["letters"] if values else ():
        click.echo(f"{one['id']}:")
        for event in one["body"]:
            click.echo(f"  {orjson.dumps(event).decode()}")
    click.echo(f"{report['standing']:,} letters")


@webhooks.command(
    "send",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml webhooks send
  headwater letters pipeline.yaml webhooks send --webhook orders --cause 'answers 413'
  headwater letters pipeline.yaml webhooks send --json | jq .why
""",
)
@_wanted_options
@json_option
@click.pass_obj
def send_command(file: Path, /, as_json: bool, **asked: Any) -> None:
    """Send them again, with the ids and the events that they had; those that are taken go.

    Later events were sent meanwhile: whoever takes one of an older `version` than he has must leave it. Safe beside
    `headwater run`. Exit code 2 when letters are left: refused again, or nobody was there.
    """
    from cdc.pipeline import load
    from operations.push.letters import send_letters

    report = send_letters(load(file), _wanted(**asked))
    summed = f"{report['asked']:,} letters: {report['taken']:,} taken, {report['left']:,} left"
    told_left(report, lambda one: f"{one['webhook']} {one['id']}: {one['why']}", summed, as_json=as_json)


@webhooks.command(
    "drop",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml webhooks drop --id msg_4be2 --yes
  headwater letters pipeline.yaml webhooks drop --webhook orders --dry-run --json
""",
)
@_wanted_options
@click.option("--dry-run", is_flag=True, help="Only tell how many would be forgotten.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def drop_command(file: Path, /, dry_run: bool, yes: bool, as_json: bool, **asked: Any) -> None:
    """Forget them; without any option all. Whoever refused them never gets their events then."""
    from cdc.pipeline import load
    from operations.push.letters import drop_refused

    pipeline, wanted = load(file), _wanted(**asked)
    dropped(
        lambda ask: drop_refused(pipeline, wanted, dry_run=dry_run, ask=ask),
        lambda report: report["standing"],
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )


def _kept(one: dict[str, Any]) -> str:
    return "" if one["bytes"] else " (not kept)"
