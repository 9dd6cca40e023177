"""Makes what a pipeline file asks for; running it again continues, and changes nothing when all is as asked."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from cdc.catalogue import Catalogue
from cdc.pipeline import Pipeline
from connectors.actions import Action, Begins, Show, run_all
from connectors.actual import observe
from connectors.advisory_lock import changing
from connectors.connector import wait_ready
from connectors.plan import plan
from connectors.servers import open_servers

NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True)
class Result:
    """What apply did.

    Attributes:
        actions: in the order in which they were done; empty when nothing had to change.
        catalogue: of the captured tables.
        fresh: this was the first time: the initial snapshot is under way.
    """

    actions: list[Action]
    catalogue: Catalogue
    fresh: bool


def plan_pipeline(pipeline: Pipeline) -> list[Action]:
    """What ``apply`` would do. Changes nothing.

    Raises:
        HeadwaterError: a server does not answer, or what is there can't be led to what is asked for.
    """
    with open_servers(pipeline) as servers:
        return plan(servers, observe(servers))


def apply(
    pipeline: Pipeline,
    progress: Show = lambda action: None,
    *,
    begins: Begins = lambda action: None,
    adds_only: bool = False,
    generated: Collection[str] = (),
    within: AbstractContextManager[None] = NOTHING,
) -> Result:
    """Create or change publication, slot, topics and connector as the file says, and wait until the connector runs.

    Args:
        pipeline: the loaded file.
        progress: called after each action that was done.
        begins: called before each, and before the wait for the connector.
        adds_only: what the file's tables lack is added, and nothing that is there is taken back: for who brings the
            capture to altered tables, and may go by an older file than the one that was applied last.
        generated: as ``plan``.
        within: entered once nobody else applies or drops, before anything is looked at, and left once all is done: what
            it raises at its begin refuses.

    Returns:
        What was done. The snapshot may still be under way: see ``connectors.snapshots.snapshot.wait_snapshot``.

    Raises:
        HeadwaterError: an action failed; the message says how far it got. Running it again continues.
        SourceUnavailable: another ``apply`` or ``drop`` of the same pipeline takes long (transient).
    """
    with open_servers(pipeline) as servers, changing(servers), within:
        actual = observe(servers)
        actions = plan(servers, actual, adds_only=adds_only, generated=generated)
        run_all(servers, actions, progress, begins)
        begins(None)
        wait_ready(servers)
        return Result(actions, actual.catalogue, actual.fresh)
