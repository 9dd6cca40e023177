"""What a changed table makes necessary, done by processes of their own: `run` must not wait for it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from cdc.errors import HeadwaterError, SinkUnavailable, SourceUnavailable
from cdc.pipeline import Pipeline
from cdc.polling import poll
from cdc.saying import Say
from operations.state.evolution import Todo, forget_asked, read_asked, write_asked
from operations.state.folder import register_of
from operations.state.shapes import known_shapes, owe

if TYPE_CHECKING:
    from spark.disk.register import Register

# How often it is told how far reading again is.
TELL_SECONDS = 2.0
# A flow makes its target when it starts; one that waits for its server is asked again by who called.
SHOW_SECONDS = 60.0
# Debezium may lose a chunk and wait for it for ever (a window whose end it could not work off). A chunk takes moments,
# unless Postgres has to look through all of a huge table for its first row: then some minutes.
STILL_SECONDS = 900.0


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: the capture is brought to tables, a table's rows are read again, a new table is shown to readers, or a
            generation is built.
        sink: whose; empty where all are meant.
        tables: which.
    """

    kind: Literal["capture", "read", "show", "build"]
    sink: str = ""
    tables: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is about."""
        return ", ".join(self.tables) or f"sink {self.sink}"

    @property
    def builds(self) -> bool:
        """It may take hours, and nothing that is done for tables has to wait for it."""
        return self.kind == "build"

    @property
    def begin(self) -> str:
        """Said when it begins."""
        if self.kind == "build":
            return f"{self.title}: a new generation is built beside the living one"
        return {"capture": "bringing the capture to", "read": "reading again", "show": "showing"}[
            self.kind
        ] + f": {self.title}"

    @property
    def end(self) -> str:
        """Said when it is done."""
        what = {"capture": "captured", "read": "read", "show": "readers see it", "build": "readers see it"}
        return f"{self.title}: {what[self.kind]}"

    def concerns(self, sink: str, table: str) -> bool:
        """Whether it is a part of what is under way for a table in a sink."""
        return self.sink in ("", sink) and (not self.tables or table in self.tables)

    def done(self, todo: Todo) -> Todo:
        """What is left to do after it. Pure."""
        match self.kind:
            case "build":
                return replace(todo, rebuild=False, error=None)
            case "show":
                return replace(todo, show=False, error=None)
            case "capture":
                return replace(todo, capture=False, error=None)
            case "read":
                return replace(todo, read=None, sweep=False, error=None)


def steps_of(
    todo: Sequence[tuple[str, str, Todo]], busy: Collection[str] = (), failed: Collection[Step] = ()
) -> list[Step]:
    """What can be done for what is under way, in the order in which it should be. Pure.

    A step that fails keeps nothing else from being done, but for what needs it: a table is read when it is captured as
    it should be, as far as that can be had, and a generation is built when its tables are read.

    Args:
        todo: sink, table, what; nothing that waits for a word.
        busy: sinks whose generation something else makes, or that are paused: none is built of them here.
        failed: steps that have failed and will be tried again.
    """
    captured = tuple(sorted({table for _, table, one in todo if one.capture}))
    capture = [Step("capture", tables=captured)] if captured else []
    tried = {table for step in failed if step.kind == "capture" for table in step.tables}
    unread = sorted({table for _, table, one in todo if one.read is not None})
    reads = [Step("read", tables=(table,)) for table in unread if table not in captured or table in tried]
    shows = [Step("show", sink, (table,)) for sink, table, one in todo if one.show]
    built = {sink for sink, _, one in todo if one.rebuild} - set(busy)
    lacking = {sink for sink, table, one in todo if one.rebuild and table in unread}
    return [*capture, *reads, *shows, *(Step("build", sink) for sink in sorted(built - lacking))]


def capture(say: Say, pipeline: Pipeline) -> None:
    """Bring the capture to the tables as they are: what `headwater apply` does, but that nothing is taken back.

    Tables that are gone stay in the list, with what reads them stopped: that they are gone for good is for somebody to
    say. So do tables, and settings, of a newer file that somebody has applied and this process does not go by yet.

    Raises:
        HeadwaterError: a server refused, or a right is missing.
    """
    from connectors.apply import apply
    from operations.generations.kept_views import with_kept_views

    shapes = [shape for seen in known_shapes(pipeline).tables.values() for shape in seen]
    generated = {f"{shape.table.qualified}.{column}" for shape in shapes for column in shape.table.generated}
    for action in apply(with_kept_views(pipeline), adds_only=True, generated=generated).actions:
        say(f"{action.kind} {action.name}: {action.detail}")


def read_again(say: Say, pipeline: Pipeline, table: str, condition: str, *, sweep: bool) -> None:
    """Read a table's rows again; one that was cut goes on, if the table is still what it was.

    Args:
        say: told how far it is.
        pipeline: the loaded file.
        table: ``schema.table``.
        condition: on its rows; empty for all of them.
        sweep: look afterwards for rows that are gone without a delete.

    Raises:
        SourceUnavailable: it stands still (transient).
        HeadwaterError: a server refused, or does not answer.
    """
    from connectors.resnapshot import read_anew
    from connectors.snapshots.snapshot import Progress, wait_snapshot

    newest = known_shapes(pipeline).newest(table)
    wish = f"{newest.oid if newest else 0}/{newest.since if newest else 0}/{sweep}/{condition}"
    if read_asked(pipeline).get(table) != wish:
        read_anew(pipeline, {table: condition}, [table] if sweep else [])
        write_asked(pipeline, {**read_asked(pipeline), table: wish})
    told, moved = 0.0, time.monotonic()
    seen: tuple[object, ...] = ()

    def tell(now: Progress) -> None:
        nonlocal told, seen, moved
        stand = (now.chunks, *((one.done, one.rows if one.sweeping else 0) for one in now.tables))
        if stand != seen:
            seen, moved = stand, time.monotonic()
        elif time.monotonic() - moved > STILL_SECONDS:
            raise SourceUnavailable(f"reading {table} again stands still")
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            say(", ".join(rows_read(one.rows) for one in now.tables if one.table == table))

    try:
        wait_snapshot(pipeline, tell, only=[table])
    except HeadwaterError:
        forget_asked(pipeline, table)
        raise
    forget_asked(pipeline, table)
    if not condition:
        owe(pipeline, table, settled=True)


def rows_read(rows: int) -> str:
    """How far reading again is, in words. Pure."""
    return f"{rows:,} row{'' if rows == 1 else 's'} read again"


def show(say: Say, pipeline: Pipeline, sink: str, number: int, view: str) -> None:
    """Let readers see a view that the living generation has got besides, once its target is there.

    Raises:
        SinkUnavailable: its flow has not made it yet, or readers are sent to another generation, or its server does
            not answer (transient).
    """
    from sinks.configure import plain_config
    from sinks.factory import open_target
    from spark.disk.made_of import as_defined

    register = register_of(pipeline, sink)
    defined = as_defined(pipeline, register.generation(number))
    target = open_target(plain_config(defined, sink, number, [view]))
    try:
        if not poll(lambda: target.there(view), bool, SHOW_SECONDS):
            raise SinkUnavailable(f"{view} is not in {sink} yet")
        # What readers of a new view see tells nothing: a promotion that has ended while this waited has shown it to
        # them with the others, and they would be taken back alone, to what is retired one day.
        _refuse_other(register, number)
        target.promote(view, target.living(view) or number)
        _refuse_other(register, number)  # tried again, for the generation that they see then
    finally:
        target.close()
    say(f"readers of {sink} see {view}")


def _refuse_other(register: Register, number: int) -> None:
    """Refuse to show what is not, or will not be for long, the generation that readers see.

    Raises:
        SinkUnavailable: that is so (transient).
    """
    if register.living() != number or register.promotion() is not None:
        raise SinkUnavailable(f"readers of {register.sink} are sent to another generation just now")
