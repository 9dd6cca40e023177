"""``headwater apply``: make publication, slot, topics and connector as the pipeline file says."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.cli.shared.options import confirm, is_terminal, json_option, pipeline_argument, print_json
from console.cli.shared.patience import saying_why

if TYPE_CHECKING:
    from operations.edits.changes import Changes


@click.command(
    epilog="""\b
Examples:
  headwater apply pipeline.yaml
  headwater apply pipeline.yaml --wait          (until every row is in its topic)
  headwater apply pipeline.yaml --wait --timeout 3600
"""
)
@pipeline_argument
@click.option("--wait", "-w", is_flag=True, help="Wait until the snapshot is complete and streaming has begun.")
@click.option("--timeout", type=float, default=None, metavar="SECONDS", help="With --wait: give up after this.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before a sink is let go.")
@json_option
def command(file: Path, wait: bool, timeout: float | None, yes: bool, as_json: bool) -> None:
    """Create or change what the pipeline needs in Postgres, Kafka and Kafka Connect; then rows begin to flow.

    The views are held against the tables first: nothing is captured for a file that `run` would refuse. Does what
    `headwater plan` shows, in that order. Safe to run again: it continues where it stopped, and changes
    nothing when all is as the file says. Flows that `policy.schema` has stopped because a table was changed go on.

    A `headwater run` that is alive then takes up the changed file: new tables, views and sinks; the next generation of
    a sink whose view was changed, which readers see once it equals Postgres; and it lets go of sinks that are not in
    the file any more, after a question (--yes: without). Flows that nothing has changed for go on.
    """
    from cdc.errors import ConnectError
    from cdc.pipeline import loads
    from cdc.pipeline.loading import read_pipeline
    from connectors.actions import counted
    from connectors.apply import apply
    from connectors.snapshots.snapshot import wait_snapshot
    from console.cli.shared.show_action import Actions
    from console.cli.shared.snapshot_bars import SnapshotView
    from operations.edits.handing import applied_last, handing, noting
    from operations.edits.pending import let_go, pending, told, under_way, unheard
    from operations.gate import refuse_wrong_views
    from operations.generations.kept_views import with_kept_views
    from operations.state.accepted import text_of
    from operations.state.folder import is_begun

    data = read_pipeline(file)
    pipeline = loads(data, str(file))
    with saying_why():
        refuse_wrong_views(pipeline, lambda line: click.echo(line, err=True))
        seen = None if yes else applied_last(pipeline)
        whole = with_kept_views(pipeline)
        edits, removed, (building, _) = pending(pipeline), let_go(pipeline), under_way(pipeline)
        begun = is_begun(pipeline)
    if removed and not yes:
        confirm(f"Let go of {', '.join(removed)}? What they hold stays, and is not kept up to date any more.")
    within = handing(pipeline, text_of(file, data), seen)
    with saying_why(), Actions(done=True) as shown:
        show = (lambda _: None) if as_json else shown.show
        result = apply(whole, show, begins=noting(pipeline, shown.begins), within=within)
    if (warning := unheard(pipeline, result.actions, begun=begun)) is not None:
        click.echo(warning, err=True)
    if not as_json:
        _tell_made(counted(result.actions) if result.actions else "", edits, building)
    progress = None
    if wait:
        with SnapshotView(terminal=is_terminal()) as view:
            progress = wait_snapshot(pipeline, view.show, timeout)
        if not progress.done:
            raise ConnectError(
                f"the snapshot is not complete after {timeout:.0f} s",
                fix="it goes on by itself; run the same again to wait",
            )
    if as_json:
        tables = {t.table: {"rows": t.rows, "done": t.done} for t in progress.tables} if progress else {}
        changes = [action.to_dict() for action in result.actions]
        print_json(
            {
                "pipeline": pipeline.name,
                "changes": changes,
                "fresh": result.fresh,
                "snapshot": tables,
                "run": told(edits),
            }
        )
    elif not wait and any(action.kind == "snapshot" and action.after is not None for action in result.actions):
        click.echo("rows are being read in the background; `headwater apply FILE --wait` shows how far")


def _tell_made(made: str, edits: Changes | None, building: Collection[str]) -> None:
    taken = edits.lines() if edits is not None else []
    for line in taken:
        click.echo(line)
    if made:
        handed = 0 if edits is None else edits.taken(building)
        click.echo(f"{made} made" + (f", {handed:,} handed to `run`" if handed else ""))
    elif not taken:
        click.echo("nothing to change")
