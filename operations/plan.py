"""What ``apply`` would change, and what that means for the sinks; the shape of ``plan --json``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline
from cdc.saying import Say, to_nobody
from connectors.actions import Action, counted
from connectors.apply import plan_pipeline
from connectors.captured.captured import read_captured
from connectors.names import Names
from connectors.postgres import connect
from operations.edits.changes import Changes
from operations.edits.pending import pending, told, under_way, unheard
from operations.gate import refuse_wrong_views
from operations.generations.kept_views import with_kept_views
from operations.generations.outdated import line, needed
from operations.schema.migrations import migrations
from operations.state.folder import is_begun
from operations.status.evolving import evolving

# Tables that the last line names.
NAMED = 3


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        pipeline: its name.
        actions: of ``apply``, in their order.
        sinks: that need a new generation.
        tables: whose columns are not what the sinks were brought to.
        edits: what the `run` that is alive will do; None if there is none.
        building: sinks whose new generation it builds already.
        capturing: tables that it is taking up already.
        evolving: what is under way because tables were altered (``operations.status.evolving``).
        mending: tables that are read again because changes of theirs are missing, and why: until somebody waits for it.
    """

    pipeline: str
    actions: Sequence[Action]
    sinks: list[dict[str, Any]]
    tables: list[dict[str, Any]]
    edits: Changes | None
    building: Collection[str] = ()
    capturing: Collection[str] = ()
    evolving: Sequence[Mapping[str, Any]] = ()
    mending: Mapping[str, str] = field(default_factory=dict)

    def lines(self, file: str) -> list[str]:
        """What becomes of the sinks, a line each: nothing is told twice."""
        edits = [] if self.edits is None else [self.edits, *self.edits.beside.values()]
        rebuilt = [sink for one in edits for sink in one.rebuilt]
        who = dict.fromkeys(rebuilt, "`run` builds it once the file is applied")
        who |= dict.fromkeys(self.building, "`run` is building it")
        return [line(one, file, who.get(one["sink"], "")) for one in self.sinks]

    def asked(self) -> list[str]:
        """What else the `run` that is alive will do once the file is applied, a line each."""
        return [] if self.edits is None else self.edits.lines([one["sink"] for one in self.sinks])

    def read_again(self, file: str) -> list[str]:
        """What an earlier `apply` has begun, and nobody has waited for, a line each."""
        way = f"`headwater apply {file} --wait` waits for its rows, and deletes what is gone"
        return [f"table {table} is being read again, for it {why}: {way}" for table, why in self.mending.items()]

    def closing(self, file: str) -> str:
        """How much is to be done, and who does it; empty if nothing waits for anybody."""
        # That `run` must be started again, or leaves sinks to others, is a line, and no change of `apply`.
        asked = 0 if self.edits is None else self.edits.taken(self.building)
        if self.edits is not None and self.edits.waits() and not self.actions and not asked:
            return f"`headwater apply {file}` hands the file on"
        them = "it" if len(self.actions) + asked == 1 else "them"
        if self.capturing and self.actions and not asked:  # what is there to do is what it does: as `apply`
            taken, more = sorted(self.capturing)[:NAMED], ", …" if len(self.capturing) > NAMED else ""
            return f"{counted(self.actions)}; `run` is making {them}: it takes up {', '.join(taken)}{more}"
        if self.actions or asked:
            return f"{counted(self.actions, asked)}; `headwater apply {file}` makes {them}"
        return "" if self.sinks or self.tables or self.evolving or self.mending else "nothing to change"

    def to_dict(self) -> dict[str, Any]:
        """The shape of ``--json``; secrets are never in it."""
        changes = [action.to_dict() for action in self.actions]
        more = {"changes": changes, "sinks": self.sinks, "tables": self.tables, "run": told(self.edits)}
        return {"pipeline": self.pipeline, **more, "evolving": list(self.evolving), "mending": dict(self.mending)}


def plan(pipeline: Pipeline, migration: Path | None = None, say: Say = to_nobody) -> Plan:
    """Look what would be done. Changes nothing.

    Args:
        pipeline: the loaded file.
        migration: SQL that is tried out in a transaction that is rolled back.
        say: told what is worth a look, and no error.

    Raises:
        HeadwaterError: a server does not answer, or what is there can't be led to what is asked for; or a view does
            not fit its tables (terminal).
    """
    begun, actions = is_begun(pipeline), plan_pipeline(with_kept_views(pipeline))
    tables = migrations(pipeline, migration)
    refuse_wrong_views(pipeline, say)
    if warning := unheard(pipeline, actions, begun=begun):
        say(warning)
    building, capturing = under_way(pipeline)
    followed = evolving(pipeline)  # what `run` has noticed a second ago is no difference any more, and not done yet
    edits, sinks = pending(pipeline), needed(pipeline)
    return Plan(pipeline.name, actions, sinks, tables, edits, building, capturing, followed, _mending(pipeline))


def _mending(pipeline: Pipeline) -> dict[str, str]:
    with connect(pipeline.source, setup=bool(pipeline.source.setup_user)) as connection:
        captured = read_captured(connection, Names.of(pipeline))
    return {table: "; ".join(one.gap.reasons) for table, one in captured.items() if one.gap and one.gap.mending}
