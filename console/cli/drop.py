"""``headwater drop``: remove what apply and run created."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc.errors import KafkaError
from console.cli.shared.options import confirm, json_option, pipeline_argument, print_json, sink_option

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline
    from connectors.actions import Action

_GONE = "where Kafka Connect or the database is gone for good: remove what the sink holds at the sink's own server"


@click.command(
    epilog="""\b
Examples:
  headwater drop pipeline.yaml                    (keeps the changelog topics)
  headwater drop pipeline.yaml --topics --yes
  headwater drop pipeline.yaml --sink search      (only this sink; the next run fills it from offset 0)
  headwater drop pipeline.yaml --dry-run --json
"""
)
@pipeline_argument
@click.option(
    "--topics",
    is_flag=True,
    help="Delete the topics too, of changes, events and dead letters: a copy of the tables, and the only one of events "
    "whose rows were deleted and of former versions of rows (`as_of`).",
)
@sink_option
@click.option("--keep-sinks", is_flag=True, help="Leave what the sinks hold, for readers, until `rebuild` replaces it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    file: Path, topics: bool, only: tuple[str, ...], keep_sinks: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Remove a pipeline: connector, slot, publication, triggers, helper tables, and what the sinks hold.

    The source's rows stay untouched. With --sink only that sink's target and checkpoints go; the next run fills it
    anew. Dead letters of a sink that goes are forgotten with it: `headwater letters FILE list` shows them before.

    Without --topics the changelog topics stay, and sinks may go on reading what they hold; a later apply refuses to
    snapshot into them, because rows deleted meanwhile would come back.

    Refused where the pipeline is captured and `engine.state_dir` has nothing of it: another working folder, or another
    machine. With --keep-sinks only what was captured goes, from anywhere.
    """
    from cdc.pipeline import load
    from console.cli.shared.show_action import Actions
    from operations.generations.targets import sink_state
    from operations.recapture import forget_begun, forget_tables
    from operations.state.accepted import forget_captured
    from operations.state.folder import chosen_sinks, state_dir

    pipeline = load(file)
    state_dir(pipeline)  # what a newer Headwater keeps there is left to it
    if keep_sinks and only:
        raise click.UsageError("--keep-sinks leaves all sinks; --sink removes one")
    actions = _planned(pipeline, only, topics=topics, keep_sinks=keep_sinks)
    goes = [action for action in actions if action.after is None]
    state = [] if keep_sinks else sink_state(pipeline, only)
    letters = f"dead letters of {', '.join(chosen_sinks(pipeline, only))}, if there are any"
    state += [letters] if state and not topics else []  # their topic goes with the others
    if not as_json:
        # Cut only before a question that may be answered with no: afterwards a dry run has nothing to show.
        with Actions(all_in="" if dry_run or yes else "--dry-run") as shown:
            for action in actions:
                shown.show(action)
        for line in state:
            click.echo(f"- {'state':<16} {line}")
    if not dry_run:
        if (goes or state) and not yes:
            confirm("Remove all of this?")
        if goes or state:
            _remove(pipeline, only, topics=topics, keep_sinks=keep_sinks, held=bool(state), said=not as_json)
        if not only:
            # Also where nothing else is left: else the next pipeline of that name goes on with it. Not of one that is
            # refused: what was begun goes on.
            forget_begun(pipeline)
            forget_captured(pipeline, runs=not keep_sinks)
        if topics and not only:
            forget_tables(pipeline)  # topics that stay are read by it
    if as_json:
        changes = [action.to_dict() for action in actions]
        print_json({"pipeline": pipeline.name, "changes": changes, "state": state, "done": not dry_run})
    elif not goes and not state:
        click.echo("nothing to remove")
    else:
        click.echo("nothing was removed (dry run)" if dry_run else "removed")


def _planned(pipeline: Pipeline, only: Sequence[str], *, topics: bool, keep_sinks: bool) -> list[Action]:
    """What goes of the capture, which stays where single sinks go; refused where nobody can tell here what goes of the
    sinks, and who is at work with them, as long as somebody may be."""
    from connectors.drop import plan_drop_pipeline
    from operations.state.folder import is_begun, refuse_not_begun

    if only and is_begun(pipeline):
        return []  # no server but the sinks' is asked
    actions = [] if only else plan_drop_pipeline(pipeline, topics=topics)
    of_capture = (action.kind in ("connector", "slot") and action.after is None for action in actions)
    if not keep_sinks and (_captured_still(pipeline) if only else any(of_capture)):
        file = pipeline.file or "FILE"
        refuse_not_begun(
            pipeline,
            "the pipeline is captured, and what of its sinks there is, and whether they are run, is known where its "
            "state is; nothing was removed",
            lost=f"`headwater drop {file} --keep-sinks`, then `headwater drop {file} --sink SINK` for each sink, which "
            "removes its first generation; what others hold is yours to remove",
        )
    return actions


def _captured_still(pipeline: Pipeline) -> bool:
    """Whether a `run` with another state folder may be at work with the sinks. Kafka is not asked, nor Postgres as the
    role that sets up: of a pipeline that was dropped before they may be gone."""
    from cdc.errors import ConnectError, SourceError
    from connectors.drop import is_captured

    try:
        return is_captured(pipeline)
    except (ConnectError, SourceError) as error:
        unknown = "nobody knows whether a `run` with another state folder writes to the sink; nothing was removed"
        error.means = "; ".join(filter(None, [error.means, unknown]))
        error.fix = "; ".join(filter(None, [error.fix, _GONE]))
        raise


def _remove(pipeline: Pipeline, only: Sequence[str], *, topics: bool, keep_sinks: bool, held: bool, said: bool) -> None:
    from connectors.actions import Action
    from connectors.drop import drop
    from operations.freshness.note import forget_source_note
    from operations.generations.targets import drop_sink_state
    from operations.run.source_watch import forget
    from operations.state.folder import chosen_sinks

    def sinks() -> None:
        drop_sink_state(pipeline, only)
        if not topics:
            _forget_letters(pipeline, chosen_sinks(pipeline, only), said=said)

    def state() -> None:
        if not keep_sinks:
            sinks()
        forget(pipeline)
        forget_source_note(pipeline)

    def show(action: Action) -> None:
        # The step looks also where there was nothing to remove: a `run` may have begun since.
        if said and (action.kind != "state" or held or keep_sinks):
            click.echo(f"{action.kind} {'stays' if action.after else 'removed'}")

    if only:
        sinks()
        return
    # What sinks hold goes first, as a step like the others: who waits for an `apply` in vain, or fails behind it,
    # says no more and no less than what is done.
    detail, after = ("what sinks hold stays", "present") if keep_sinks else ("remove what sinks hold", None)
    drop(
        pipeline,
        show,
        topics=topics,
        first=[Action("state", pipeline.name, detail, "present", after, lambda servers: state())],
    )


def _forget_letters(pipeline: Pipeline, sinks: Sequence[str], *, said: bool) -> None:
    """What a sink that is gone has refused is no news; that Kafka is away must not keep it."""
    from cdc.log.forgotten import forget_sinks

    try:
        forget_sinks(pipeline, sinks)
    except KafkaError as error:
        if said:
            click.echo(f"dead letters of {', '.join(sinks)} are left: {error.what}", err=True)
