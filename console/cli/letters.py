"""``headwater letters``: what no sink would take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from console.cli.shared.cut import shorter
from console.cli.shared.letters import dropped, told_left
from console.cli.shared.options import (
    cause_option,
    json_option,
    master_option,
    pipeline_argument,
    print_json,
    since_of,
    since_option,
    together,
)
from console.cli.shared.tables import ago, print_table
from console.cli.webhook_letters import webhooks

if TYPE_CHECKING:
    from operations.letters.wanted import Wanted


class _FileFirst(click.Group):
    """The file comes before the verb, as several verbs have arguments of their own; the other way round is understood,
    for `headwater queries` has it so."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        verb = self.commands.get(args[0]) if args and not Path(args[0]).exists() else None
        at = 2 if isinstance(verb, click.Group) else 1
        if verb is not None and len(args) > at and not args[at].startswith("-"):
            args = [args[at], *args[:at], *args[at + 1 :]]
        return super().parse_args(ctx, args)


@click.group(
    cls=_FileFirst,
    epilog="""\b
Examples:
  headwater letters pipeline.yaml list
  headwater letters pipeline.yaml list --sink search --since 2h --each
  headwater letters pipeline.yaml show 4711 --values
  headwater letters pipeline.yaml replay --cause 'total fields'
  headwater letters pipeline.yaml drop --sink search --key 4711
  headwater letters pipeline.yaml webhooks send
""",
)
@pipeline_argument
@click.pass_context
def command(context: click.Context, file: Path) -> None:
    """Dead letters: what a sink would not take, and records that can't be read.

    A letter stands until a later good write of its key, which clears it: `run` looks every few seconds, and these verbs
    look at the sink before they tell. After a mapping or a row was mended, `replay` writes the key as it is now.
    Letters are kept for policy.dead_letters.keep_days, with their documents unless policy.dead_letters.values is
    false; what rows hold is shown only with --values. What a webhook or a topic has refused is told by `webhooks`.
    """
    context.obj = file


_wanted_options = together(
    click.option("--sink", "sinks", multiple=True, metavar="NAME", help="Only of this sink (may be repeated)."),
    click.option("--view", "views", multiple=True, metavar="NAME", help="Only of this view (may be repeated)."),
    click.option(
        "--table", "tables", multiple=True, metavar="TABLE", help="Only of rows of this table (may be repeated)."
    ),
    click.option("--key", "keys", multiple=True, metavar="KEY", help="Only of this key (may be repeated)."),
    cause_option,
    since_option,
    click.option(
        "--generation", type=click.IntRange(1), metavar="N", help="Not of the one that readers see, but of this."
    ),
)


def _wanted(**asked: Any) -> Wanted:
    from operations.letters.wanted import Wanted

    return Wanted(**asked | {"since": since_of(asked["since"]), "whole": True})


# -- list and show -----------------------------------------------------------------------------------------------------


@command.command(
    "list",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml list
  headwater letters pipeline.yaml list --cause 'failed to parse field' --each --limit 20
  headwater letters pipeline.yaml list --json | jq .standing
""",
)
@_wanted_options
@click.option("--each", is_flag=True, help="Also list them one by one, the newest first.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Of these, so many.")
@click.option("--values", is_flag=True, help="Also tell reasons in full, which quote values of your rows.")
@json_option
@click.pass_obj
def list_command(file: Path, /, each: bool, limit: int, values: bool, as_json: bool, **asked: Any) -> None:
    """List the letters that stand, by cause."""
    from cdc.pipeline import load
    from operations.letters.listing import letters_report

    report = letters_report(load(file), _wanted(**asked), values=values, each=limit if each else 0)
    if as_json:
        print_json(report)
        return
    if report["causes"]:
        print_table(
            ("letters", "sink", "view", "newest", "cause", "for example"),
            [
                (
                    f"{one['letters']:,}",
                    one["sink"],
                    one["view"] or "-",
                    ago(one["newest_at"]),
                    one["cause"],
                    ", ".join(map(_key, one["keys"])),
                )
                for one in report["causes"]
            ],
        )
    if report["letters"]:
        print_table(
            ("sink", "view", "key", "when", "record", "reason" if values else "cause"),
            [
                (
                    one["sink"],
                    one["view"] or "-",
                    f"{shorter(one['key'])} ({one['table']})" if one["row"] else _key(one["key"]),
                    ago(one["at"]),
                    _record(one),
                    one["reason"] if values else one["cause"],
                )
                for one in report["letters"]
            ],
        )
    _tail(report)


@command.command(
    "show",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml show 4711
  headwater letters pipeline.yaml show 4711 --sink search --values
  headwater letters pipeline.yaml show --json --values -- -7
""",
)
@click.argument("key", metavar="KEY")
@_wanted_options
@click.option("--values", is_flag=True, help="Also show reason, document and record: values of your rows.")
@json_option
@click.pass_obj
def show_command(file: Path, /, key: str, values: bool, as_json: bool, **asked: Any) -> None:
    """Show the letters of one key: why, its record in the log, its document.

    KEY is the document's id, as `list` tells it; of a letter about a row the row's.
    """
    from cdc.pipeline import load
    from operations.letters.listing import letter_report

    asked["keys"] = (key, *asked["keys"])
    report = letter_report(load(file), _wanted(**asked), values=values)
    if as_json:
        print_json(report)
        return
    for one in report["letters"]:
        _show(one, values=values)
    _tail(report)


def _show(one: Mapping[str, Any], *, values: bool) -> None:
    about = f"row of {one['table']}" if one["row"] else "document"
    generation = "" if one["generation"] is None else f", generation {one['generation']}"
    click.echo(f"{one['sink']} {one['view']} {one['key']} · {about}{generation}, {ago(one['at'])}")
    click.echo(f"  why      {one['reason'] if values else one['cause']}")
    what = "a delete" if one["delete"] else f"version {one['version']}"
    click.echo(f"  refused  {what}{'' if one['lsn'] is None else ' (' + one['lsn'] + ')'}")
    if one["topic"] is not None:
        gone = "" if one["record"]["there"] else ", which the log has let go of"
        transaction = "" if one["transaction"] is None else f", transaction {one['transaction']}"
        click.echo(f"  record   {_record(one)}{transaction}{gone}")
    for name, value in (("document", one["document"]), ("record", one["record"]["value"])):
        if value is not None:
            click.echo(f"  {name}:")
            text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
            click.echo("\n".join(f"    {line}" for line in text.splitlines()))
    if not values:
        click.echo("  --values shows the reason in full, the document and the record")


# -- replay and drop ---------------------------------------------------------------------------------------------------


@command.command(
    "replay",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml replay
  headwater letters pipeline.yaml replay --sink search --cause 'total fields' --since 1d
  headwater letters pipeline.yaml replay --table orders --json | jq .why
""",
)
@_wanted_options
@click.option("--values", is_flag=True, help="Also tell why in full, which quotes values of your rows.")
@master_option
@json_option
@click.pass_obj
def replay_command(file: Path, /, master: str | None, values: bool, as_json: bool, **asked: Any) -> None:
    """Write the keys of letters again, as they are now; letters of those that were taken go.

    Not the change that was refused, which may be old: of a view of one table the row's newest record in the log, of a
    view with joins what its row store makes. Safe beside `headwater run`. Keys that are refused again stay letters, and
    hold nothing back. Exit code 2 when letters are left.
    """
    from cdc.pipeline import load
    from operations.letters.replay import replay_letters
    from operations.run.machines import alone

    pipeline = alone(load(file), master)
    report = replay_letters(pipeline, _wanted(**asked), values=values, say=lambda line: click.echo(line, err=True))
    summed = (
        f"{report['asked']:,} letters: {report['taken']:,} taken, {report['gone']:,} of rows that are gone, "
        f"{report['healed']:,} were healed, {report['left']:,} left"
    )
    told_left(report, _left, summed, as_json=as_json)


def _left(one: Mapping[str, Any]) -> str:
    about = f" (row of {one['table']})" if one["table"] else ""
    return f"{one['sink']} {one['view']} {shorter(one['key'])}{about}: {one['why']}"


@command.command(
    "drop",
    epilog="""\b
Examples:
  headwater letters pipeline.yaml drop --sink search --key 4711
  headwater letters pipeline.yaml drop --cause 'not an event of' --yes
  headwater letters pipeline.yaml drop --dry-run --json
""",
)
@_wanted_options
@click.option("--dry-run", is_flag=True, help="Only show what would be forgotten.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def drop_command(file: Path, /, dry_run: bool, yes: bool, as_json: bool, **asked: Any) -> None:
    """Forget letters; without any option all of them. What the sinks hold stays as it is: nothing is mended by this."""
    from cdc.pipeline import load
    from operations.letters.dropping import drop_letters

    pipeline, wanted = load(file), _wanted(**asked)
    dropped(
        lambda ask: drop_letters(pipeline, wanted, dry_run=dry_run, ask=ask),
        lambda report: report["standing"] + report["healed"],
        lambda report: (f"- {of['letters']:,} of {of['sink']} {of['view']}: {of['cause']}" for of in report["causes"]),
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )


# -- what they share ---------------------------------------------------------------------------------------------------


def _tail(report: Mapping[str, Any]) -> None:
    for sink, why in report["unasked"].items():
        click.echo(f"{sink} could not be asked which of its letters are healed: {why}", err=True)
    others = report["other_generations"]
    more = f"; {others:,} of generations that readers do not see" if others else ""
    healed = f"; {report['healed']:,} healed, which `run` clears" if report["healed"] else ""
    click.echo(f"{report['standing']:,} letters{healed}{more}")


def _key(key: str) -> str:
    """A key in a table: an empty one would not be seen."""
    return shorter(key) or '""'


def _record(one: Mapping[str, Any]) -> str:
    return "" if one["topic"] is None else f"{one['topic']}/{one['partition']}/{one['offset']}"


command.add_command(webhooks)
