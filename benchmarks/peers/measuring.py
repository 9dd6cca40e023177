"""What is measured, and the stopwatch. Nothing here knows who keeps the documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.errors import ConfigError, StackError

# A step that takes longer has failed: pgsync's slowest took half a minute on a busy machine.
PATIENCE_SECONDS = 300.0
# How often an index is counted while it catches up. Each count refreshes the index, which costs its server.
COUNT_SECONDS = 0.1
# How often it is asked how many writes there were, which costs next to nothing. A document that was asked for every
# 2 ms while thousands were written was a load of its own, and each count made the server flush what it had just got.
WRITES_SECONDS = 0.05
# How often one document is asked for.
GET_SECONDS = 0.002
# How often we see to it that whoever keeps the documents is alive.
CHECK_SECONDS = 1.0


class Documents(Protocol):
    """Documents that somebody keeps."""

    def get(self, key: str) -> dict[str, Any] | None:
        """A document by key, as it is now."""

    def count(self, field: str = "", value: str | int | None = None) -> int:
        """Documents, or those with a value in a field (``airline.name``); what was written before the call counts."""

    def writes(self) -> int:
        """How many times a document has been written since the index was made."""

    def merges(self) -> int:
        """How many merges of the index are under way."""

    def scan(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Key and content of every document."""

    def check(self) -> None:
        """Raise if whoever keeps them has ended: waiting would be in vain."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        flights: how many flights the copy of the database holds.
        updates: how many of them the update measurement changes (all, if there are fewer).
        transaction: rows in each of its transactions.
        samples: single commits of the idle measurement.
        database: name of the copy; it is made and dropped again.
    """

    flights: int = 20_000
    updates: int = 10_000
    transaction: int = 100
    samples: int = 50
    database: str = "bench_peer"

    def __post_init__(self) -> None:
        for name in ("flights", "updates", "transaction", "samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: nothing can be measured.", fix="take 1 or more")

    def transactions(self) -> Iterator[tuple[int, int]]:
        """First and last flight of each update transaction."""
        last = min(self.updates, self.flights)
        for first in range(1, last + 1, self.transaction):
            yield first, min(first + self.transaction - 1, last)


@dataclass(frozen=True)
class Rate:
    """Documents that were brought up to date, and how long it took.

    ``seconds`` counts from the first commit until the last document shows its change; ``commit_seconds`` of them went
    by before the last commit was done, which includes what triggers in the database cost the writer.
    """

    documents: int
    seconds: float
    commit_seconds: float

    @property
    def docs_s(self) -> float:
        """Documents a second."""
        return self.documents / self.seconds


def wait_until(
    done: Callable[[], bool],
    check: Callable[[], None],
    pause: float,
    what: str,
    patience: float = PATIENCE_SECONDS,
) -> None:
    """Look again and again until it is done.

    Args:
        done: has it happened?
        check: called now and then; what it raises ends the waiting.
        pause: seconds between two looks.
        what: for the error message.
        patience: seconds.

    Raises:
        StackError: it did not happen in time.
    """
    deadline = time.monotonic() + patience
    checked = time.monotonic()
    while not done():
        now = time.monotonic()
        if now - checked > CHECK_SECONDS or now > deadline:
            check()
            checked = now
        if now > deadline:
            raise StackError(
                f"{what} did not come within {patience:.0f} s",
                fix="look at the log of whoever keeps the documents, and at the machine's load; or take fewer rows",
            )
        time.sleep(pause)
