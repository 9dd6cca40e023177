"""``headwater resnapshot``: read tables, or some of their rows, again."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli.shared.options import is_terminal, json_option, pipeline_argument, print_json


@click.command(
    epilog="""\b
Examples:
  headwater resnapshot pipeline.yaml public.orders
  headwater resnapshot pipeline.yaml public.orders --where "region = 7"
  headwater resnapshot pipeline.yaml --all           (also after the slot was lost or made anew)
"""
)
@pipeline_argument
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--where", default=None, metavar="SQL", help="Only the rows for which this condition holds.")
@click.option("--all", "everything", is_flag=True, help="All captured tables; makes the slot anew if it was lost.")
@click.option("--no-sweep", is_flag=True, help="Do not look for deletes that were missed.")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait for the end (default), or only ask; `headwater apply FILE --wait` waits.",
)
@click.option("--timeout", type=float, default=None, metavar="SECONDS", help="Give up waiting after this.")
@json_option
def command(
    file: Path,
    tables: tuple[str, ...],
    where: str | None,
    everything: bool,
    no_sweep: bool,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Read tables (schema.table) from Postgres again, while changes go on flowing; the newest state of a row wins.

    Afterwards rows that are in the changelog and not in the table are deleted from it: deletes that were missed. The
    connector stands still for a moment if there are any.

    Killed or interrupted, the same command goes on, and so does `headwater apply FILE --wait`.
    """
    from cdc.errors import ConfigError, ConnectError
    from cdc.pipeline import load
    from connectors.resnapshot import Wish, resnapshot
    from connectors.snapshots.snapshot import wait_snapshot
    from console.cli.shared.snapshot_bars import SnapshotView
    from operations.generations.kept_views import with_kept_views

    if bool(tables) == everything:
        raise ConfigError("name the tables, or give --all", fix="headwater resnapshot FILE public.orders")
    if where is not None and everything:
        raise ConfigError("--where can't go with --all", fix="name the tables that the condition is about")
    pipeline = load(file)
    wish = Wish(tables, where, sweep=not no_sweep)
    asked = resnapshot(with_kept_views(pipeline), wish, lambda line: click.echo(line, err=True))
    report: dict[str, dict[str, object]] = {table: {"rows": None, "swept": None, "done": False} for table in asked}
    if wait:
        with SnapshotView(terminal=is_terminal()) as view:
            progress = wait_snapshot(pipeline, view.show, timeout, asked)
        for at in progress.tables:
            if at.table in report:
                report[at.table] = {"rows": at.rows, "swept": at.swept, "done": at.done}
        if not progress.done:
            raise ConnectError(
                f"not all rows were read after {timeout:.0f} s", fix="it goes on by itself; run the same again to wait"
            )
    if as_json:
        print_json({"pipeline": pipeline.name, "where": where, "tables": report})
        return
    if not wait:
        click.echo(f"asked for {', '.join(asked)}; `headwater apply FILE --wait` waits, and looks for missed deletes")
    for table, found in report.items():
        if found["done"]:
            swept = "" if found["swept"] is None else f", {found['swept']:,} missed deletes made up for"
            click.echo(f"{table}: {found['rows']:,} rows read again{swept}")
