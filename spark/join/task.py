"""One attempt of a Spark task at its part of a batch: who it is for the row store, and what earlier attempts left."""

from __future__ import annotations

from collections.abc import Collection

from sinks.rowstore.contract import Attempt, RowStore


class Part:
    """What an attempt knows of one partition of the log.

    Attributes:
        by: as whom it writes.
        left: rows that a crashed attempt has written and perhaps not acted on, in no order; empty once they are redone.
        pending: rows that are: those left, and those that this attempt has written itself.
        redone: those left that were acted on already.
    """

    def __init__(self, by: Attempt, left: list[str]) -> None:
        self.by, self.left = by, left
        self.pending, self.redone = set(left), set[str]()

    def wrote(self, names: Collection[str]) -> None:
        """Rows were written by this attempt."""
        self.pending.update(names)
        self.redone.difference_update(names)


class Task:
    """An attempt at a batch.

    Args:
        batch: number of a fill's slice, which its documents' versions are made of; live ones are not.
        number: Spark's number of the attempt: a later attempt at the same records has a greater one.
    """

    def __init__(self, batch: int = 0, number: int = 0) -> None:
        self.batch, self.number = batch, number
        self._parts: dict[str, Part] = {}

    def part(self, store: RowStore, topic: str, partition: int) -> Part:
        """What is known of a partition; at first sight older attempts at it are shut out, and asked after."""
        name = f"{topic}/{partition}"
        known = self._parts.get(name)
        if known is None:
            by = Attempt(name, self.number)
            known = self._parts[name] = Part(by, store.take(by))
        return known
