"""Which letters somebody means. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cdc.errors import ConfigError
from cdc.letters.cause import Cause
from cdc.letters.deadletter import DeadLetter
from cdc.letters.words import cause_of
from cdc.pipeline import Pipeline

_SPAN = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Wanted:
    """A choice among letters; what is empty chooses nothing and leaves nothing out.

    Attributes:
        sinks, views, tables, keys: names, of which one must be the letter's; a table with or without its schema.
        cause: a regular expression that is found in the reason's cause.
        since: epoch seconds; older letters are left out.
        generation: of the sink; None for the one that readers see.
        whole: the cause is looked for in the whole reason as well, which quotes rows: for who may see it. Who may not
            would learn it letter by letter, from what is found.
    """

    sinks: Sequence[str] = ()
    views: Sequence[str] = ()
    tables: Sequence[str] = ()
    keys: Sequence[str] = ()
    cause: str | None = None
    since: float | None = None
    generation: int | None = None
    whole: bool = False
    _cause: Cause | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ConfigError for a cause that is no regular expression that is taken (terminal)."""
        if self.cause is not None:
            object.__setattr__(self, "_cause", Cause(self.cause))

    def __call__(self, letter: DeadLetter, table: str) -> bool:
        """Whether a letter is meant, its generation apart.

        Args:
            letter: the letter.
            table: its table, of ``table_of``.
        """
        return (
            (not self.sinks or letter.sink in self.sinks)
            and (not self.views or letter.view in self.views)
            and (not self.tables or not {table, table.partition(".")[2]}.isdisjoint(self.tables))
            and (not self.keys or letter.key in self.keys)
            and (self.since is None or letter.at_ms >= self.since * 1000)
            and (self._cause is None or self._cause.found_in(*self._words(letter.reason)))
        )

    def _words(self, reason: str) -> list[str]:
        return [cause_of(reason), *([reason] if self.whole else [])]


def table_of(pipeline: Pipeline, letter: DeadLetter) -> str:
    """The table that a letter's row is of, ``schema.table``; of a document of several rows or events its root."""
    if letter.table is not None:
        return letter.table
    prefix = f"{pipeline.kafka.topic_prefix}."
    if letter.topic and letter.topic.startswith(prefix):
        return letter.topic.removeprefix(prefix)
    view = pipeline.views.get(letter.view)
    return "" if view is None else _qualified(pipeline, view.root)


def _qualified(pipeline: Pipeline, root: str) -> str:
    """A root with its schema, as far as the file tells it: no database is asked for a list of letters."""
    if "." in root or not root:
        return root
    outbox = pipeline.source.outbox
    named = [*pipeline.source.tables] if outbox is None else [outbox.table, *pipeline.source.tables]
    if same := [name for name in named if name.partition(".")[2] == root]:
        return same[0]
    schemas = {name.partition(".")[0] for name in named if name.endswith(".*")}
    return f"{schemas.pop() if len(schemas) == 1 else 'public'}.{root}"


def moment(text: str, now: float | None = None) -> float:
    """A moment as people say it: ``90s``, ``15m``, ``2h``, ``7d`` ago, or a date or time of ISO 8601.

    Args:
        text: what was said; a time without a zone is this machine's.
        now: epoch seconds; now if left out.

    Returns:
        epoch seconds.

    Raises:
        ConfigError: it is none of these (terminal).
    """
    if span := _SPAN.fullmatch(text.strip()):
        return (time.time() if now is None else now) - int(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{text!r} is no moment",
            fix="say how long ago (30m, 2h, 7d), or when: 2026-11-21 or 2026-11-21T08:00+00:00",
        ) from error
