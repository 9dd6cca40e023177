"""One job, as it is asked for, kept and shown. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cdc.errors import ConfigError, HeadwaterError
from spark.disk.process import born, place

Verb = Literal[
    "promote",
    "rollback",
    "pause",
    "resume",
    "retire",
    "rebuild",
    "verify",
    "repair",
    "resnapshot",
    "replay-letters",
    "drop-letters",
]
# What is done one at a time with a sink. A rebuild or a verification takes minutes: meanwhile a sink may be paused, and
# what was made before be promoted, as beside the verbs.
_APART: tuple[frozenset[str], ...] = (
    frozenset(("promote", "rollback", "pause", "resume", "retire")),
    frozenset(("rebuild",)),
    frozenset(("verify", "repair")),
    frozenset(("resnapshot",)),
    frozenset(("replay-letters", "drop-letters")),
)
_LETTERS = frozenset(("views", "tables", "keys", "cause", "since", "generation"))
# What may be said besides the verb and the sink.
TAKES: Mapping[str, frozenset[str]] = {
    "promote": frozenset(("generation",)),
    "rollback": frozenset(("generation",)),
    "pause": frozenset(("why",)),
    "resume": frozenset(),
    "retire": frozenset(("generation",)),
    "rebuild": frozenset(),
    "verify": frozenset(("generation", "sample", "seed", "wait")),
    "repair": frozenset(("generation", "sample", "seed", "wait")),
    "resnapshot": frozenset(("tables", "where", "all", "sweep")),
    "replay-letters": _LETTERS,
    "drop-letters": _LETTERS,
}
# These may be about all sinks at once.
_OF_ALL = frozenset(("verify", "repair", "replay-letters", "drop-letters"))


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        id: of the job; newer ones sort behind older ones.
        verb: as the command line has it.
        sink: the sink's name; None for all of them, and for tables.
        generation, why: of those that take them.
        asked: what else was said, by the names of ``TAKES``.
        state: ``running``, ``done``, ``failed``, or ``cut``: the server that did it is gone.
        began, ended: epoch seconds.
        lines: what it has said: how far it is, too.
        result: in the shape of the verb's ``--json``.
        error: ``code``, ``what``, ``means``, ``fix``, ``transient``.
        pid, started, host: the server's process (``spark.disk.process.signature``).
    """

    id: str
    verb: Verb
    sink: str | None
    generation: int | None = None
    why: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    state: str = "running"
    began: float = 0.0
    ended: float | None = None
    lines: tuple[str, ...] = ()
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=lambda: born(os.getpid()))
    host: str = field(default_factory=place)

    def to_dict(self) -> dict[str, Any]:
        """The shape of ``GET /v1/jobs``."""
        shown = asdict(self)
        return {name: value for name, value in shown.items() if name not in ("pid", "started", "host")}

    def hinders(self, verb: str, sink: str | None) -> bool:
        """Whether it must have ended before another one begins."""
        same = any({self.verb, verb} <= group for group in _APART)
        return self.state == "running" and same and (self.sink == sink or None in (self.sink, sink))


def refuse_unfit(verb: Verb, sink: str | None, said: Mapping[str, Any]) -> None:
    """What a verb does not take is a mistake: nobody must believe that it was heeded.

    Raises:
        ConfigError: the job is asked for in a way that it can't be done (terminal).
    """
    strange = sorted(name for name, value in said.items() if value is not None and name not in TAKES[verb])
    if strange:
        takes = ", ".join(sorted(TAKES[verb])) or "nothing besides the sink"
        raise ConfigError(f"{verb} takes no {', '.join(strange)}", fix=f"it takes {takes}")
    sample = said.get("sample")
    if sample is not None and sample < 1:  # nothing would be compared, and called equal
        raise ConfigError(f"a sample of {sample} rows compares nothing", fix="say 1 or more, or nothing for all rows")
    if verb == "resnapshot":
        if sink is not None:
            raise ConfigError("resnapshot is of tables, and no sink's", fix="leave the sink out")
        if bool(said.get("tables")) == bool(said.get("all")):
            raise ConfigError("name the tables, or ask for all", fix='say "tables": ["public.orders"], or "all": true')
        if said.get("where") is not None and said.get("all"):
            raise ConfigError("where can't go with all", fix="name the tables that the condition is about")
    elif sink is None and verb not in _OF_ALL:
        raise ConfigError(f"{verb} is of one sink", fix="say which")
    if sink is None and said.get("generation") is not None:
        raise ConfigError("a generation is of one sink", fix="say which sink")


def told(error: HeadwaterError) -> dict[str, Any]:
    """An error as every answer over HTTP has it."""
    return {
        "code": error.code,
        "what": error.what,
        "means": error.means,
        "fix": error.fix,
        "transient": error.transient,
    }
