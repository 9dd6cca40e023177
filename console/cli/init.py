"""``headwater init``: a pipeline file for a database."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.shared.options import json_option, print_json

if TYPE_CHECKING:
    from operations.propose.proposal import Looked
    from operations.propose.writing import Draft

KINDS = ("elasticsearch", "opensearch", "redis", "iceberg")
# More lines of what was found only push the others off the screen; --json has them all.
MAX_LINES = 30


@click.command(
    epilog="""\b
Examples:
  headwater init postgres://shop_owner@localhost/shop
  headwater init postgres://me@db.example.org/shop --tables 'public.*' --tables 'sales.order*' --out shop.yaml
  headwater init postgres://shop_owner@localhost/shop --sink elasticsearch --sink redis --name shop --yes
  headwater init postgres://shop_owner@localhost/shop --out - --yes
"""
)
@click.argument("database", metavar="URL")
@click.option(
    "--tables",
    multiple=True,
    metavar="PATTERN",
    help="Only these tables: table, schema.table, with * and ? as in file names (may be repeated).",
)
@click.option("--sink", "sinks", multiple=True, type=click.Choice(KINDS), help="Kind of sink (may be repeated).")
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path),
    default=Path("pipeline.yaml"),
    show_default=True,
    metavar="FILE",
    help="The file to write; - for standard output.",
)
@click.option("--name", metavar="NAME", help="The pipeline's name, instead of the database's.")
@click.option("--user", metavar="ROLE", help="The role that replicates, instead of one that is there.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    database: str,
    tables: tuple[str, ...],
    sinks: tuple[str, ...],
    file: Path,
    name: str | None,
    user: str | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Look at the database at URL and write a pipeline file for it, with comments.

    All tables that can be captured, and a view for each that is about something: with the rows that it points at, as
    the database's foreign keys say, and those that point at it. Where these are many they are counted. What can't be
    captured is left out, and the file says why.

    Asks for what is not given, in a terminal and without --yes. Reads the catalogue, never a row; changes nothing. No
    password is written: the file names environment variables.
    """
    from deploy.local.site import configured_base
    from operations.propose.proposal import draft, refuse_existing, report, save
    from operations.propose.writing import written

    aside = str(file) == "-"
    if not aside:
        refuse_existing(file, force=force)
    asks = not yes and not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    looked = _looked(database, tables, asks=asks)
    if asks:
        looked, sinks, name = _asked(looked, tables, sinks, name)
    made = draft(
        looked, name=name, sinks=tuple(dict.fromkeys(sinks)) or KINDS[:1], user=user, port_base=configured_base()
    )
    text = written(made)
    if aside:
        if not as_json:
            click.echo(text, nl=False)
    else:
        save(file, text, force=force)
    if as_json:
        print_json(report(made, str(file)))
    else:
        _tell(made, file)


def _looked(database: str, tables: tuple[str, ...], *, asks: bool) -> Looked:
    from cdc.errors import NoPassword
    from operations.propose.address import read_address
    from operations.propose.proposal import look

    source, unused = read_address(database)
    if unused:
        click.echo(f"the file has no place for these parts of the address: {', '.join(unused)}", err=True)
    try:
        return look(source, tables)
    except NoPassword:
        if not asks:
            raise
    from rich.prompt import Prompt

    password = Prompt.ask(f"Password of {source.user}", password=True, console=_console())
    return look(read_address(database, password)[0], tables)


def _asked(
    looked: Looked, tables: tuple[str, ...], sinks: tuple[str, ...], name: str | None
) -> tuple[Looked, tuple[str, ...], str]:
    """Three questions at the most: which tables, where to, and what the pipeline is called."""
    from rich.prompt import Prompt

    from operations.propose.proposal import look, proposed_name

    console = _console()
    found = looked.found
    if not tables:
        for one in list(found.tables)[:MAX_LINES]:
            console.print(f"  {one}  [dim]about {found.sizes.rows.get(one, 0):,} rows[/dim]", highlight=False)
        if len(found.tables) > MAX_LINES:
            console.print(f"  … and {len(found.tables) - MAX_LINES:,} more")
        said = Prompt.ask(
            "Which tables? (names or patterns like sales.*, with blanks between)", default="all", console=console
        )
        if said.strip() != "all":
            looked = look(looked.source, said.replace(",", " ").split())
    if not sinks:
        said = Prompt.ask(
            f"Where to? ({', '.join(KINDS)}; several with blanks between)", default=KINDS[0], console=console
        )
        sinks = tuple(said.replace(",", " ").split())
        for one in sinks:
            if one not in KINDS:
                raise click.UsageError(f"{one} is no kind of sink: choose from {', '.join(KINDS)}")
    if name is None:
        name = str(Prompt.ask("Name of the pipeline", default=proposed_name(looked.source), console=console))
    return looked, sinks, name


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _tell(made: Draft, file: Path) -> None:
    """What was made, what was left out and what comes next, on standard error."""
    from operations.propose.telling import told
    from operations.propose.writing import variables

    say = partial(click.echo, err=True)
    views = made.proposal.views
    joined = sum(bool(view.joins) for view in views)
    say(f"tables: {len(made.survey.tables):,}; views: {len(views):,}, {joined:,} of them joined")
    for head, found in (("left out  ", made.left_out), ("note  ", made.notes)):
        lines = told(found, made.survey.tables)
        for one in lines[:MAX_LINES]:
            say(f"{head}{one.name}: {one.why}" + (f"\n            what to do: {one.fix}" if one.fix else ""))
        if len(lines) > MAX_LINES:
            say(f"… and {len(lines) - MAX_LINES:,} more: `--out - --json` has all")
    if str(file) == "-":
        return
    say(f"written: {file}")
    if made.survey.wal_level != "logical":
        say(f"wal_level is {made.survey.wal_level}: ALTER SYSTEM SET wal_level = logical, and restart the server")
    for line in made.roles.first:
        say(f"before the first check, in SQL: {line}")
    needed = variables(made)
    say(f"next: {'set ' + ' and '.join(needed) + ', then ' if needed else ''}headwater check {file}")
