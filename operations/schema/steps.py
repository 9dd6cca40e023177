"""What a changed table makes necessary, done by processes of their own: `run` must not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cdc.errors import SinkUnavailable, SourceUnavailable
from cdc.pipeline import Pipeline
from cdc.polling import poll
from operations.kept_shapes import Todo

Say = Callable[[str], None]
# How often it is told how far reading again is.
TELL_SECONDS = 2.0
# A flow makes its target when it starts; one that waits for its server is asked again by who called.
SHOW_SECONDS = 60.0
# Debezium may lose a chunk and wait for it for ever (a window whose end it could not work off). A chunk takes moments:
# a table that stands still for so long is asked for anew.
STILL_SECONDS = 240.0


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: tables are read again, a table is shown to readers, or a generation is built.
        sink: whose; empty where all are meant.
        tables: which.
    """

    kind: Literal["read", "show", "build"]
    sink: str = ""
    tables: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is about."""
        return ", ".join(self.tables) or f"sink {self.sink}"

    @property
    def end(self) -> str:
        """Said when it is done."""
        return f"{self.title}: {'read' if self.kind == 'read' else 'readers see it'}"

    def concerns(self, sink: str, table: str) -> bool:
        """Whether it is a part of what is under way for a table in a sink."""
        return self.sink in ("", sink) and (not self.tables or table in self.tables)

    def done(self, todo: Todo) -> Todo:
        """What is left to do after it. Pure."""
        if self.kind == "build":
            return replace(todo, rebuild=False, error=None)
        if self.kind == "show":
            return replace(todo, show=False, error=None)
        return replace(todo, read=None, capture=False, sweep=False, error=None)


def read_again(say: Say, pipeline: Pipeline, wanted: Mapping[str, str | None], sweep: Collection[str] = ()) -> None:
    """Bring the capture to the tables as they are, and read rows again; one that was cut goes on.

    Args:
        say: told how far it is.
        pipeline: the loaded file.
        wanted: table -> a condition on its rows; empty for all, None for none.
        sweep: tables in which rows are looked for afterwards that are gone without a delete.

    Raises:
        HeadwaterError: a server refused, or a right is missing.
    """
    from connectors.apply import apply
    from connectors.resnapshot import read_anew
    from connectors.snapshot import Progress, wait_snapshot

    for action in apply(pipeline).actions:
        say(f"{action.kind} {action.name}: {action.detail}")
    rows_of = {table: condition for table, condition in wanted.items() if condition is not None}
    if not rows_of:
        return
    read_anew(pipeline, rows_of, sweep)
    told = 0.0

    seen, moved = -1, time.monotonic()

    def tell(now: Progress) -> None:
        nonlocal told, seen, moved
        rows = sum(one.rows for one in now.tables)
        if rows != seen:
            seen, moved = rows, time.monotonic()
        elif time.monotonic() - moved > STILL_SECONDS:
            raise SourceUnavailable(f"reading {', '.join(sorted(rows_of))} again stands still at {rows:,} rows")
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            say(", ".join(f"{one.table}: {one.rows:,} rows read again" for one in now.tables if one.table in wanted))

    wait_snapshot(pipeline, tell)


def show(say: Say, pipeline: Pipeline, sink: str, number: int, view: str) -> None:
    """Let readers see a view that the living generation has got besides, once its target is there.

    Raises:
        SinkUnavailable: its flow has not made it yet, or its server does not answer (transient).
    """
    from operations.state_folder import register_of
    from sinks.configure import plain_config
    from sinks.factory import open_target
    from spark.register import as_defined

    defined = as_defined(pipeline, register_of(pipeline, sink).generation(number))
    target = open_target(plain_config(defined, sink, number, [view]))
    try:
        if not poll(lambda: target.there(view), bool, SHOW_SECONDS):
            raise SinkUnavailable(f"{view} is not in {sink} yet")
        target.promote(view, target.living(view) or number)
    finally:
        target.close()
    say(f"readers of {sink} see {view}")
