"""What commits say of their batches: known again whoever wrote it. Without Spark: Iceberg's table is played."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from spark.warehouse import iceberg_history
from spark.warehouse.iceberg_history import History
from spark.warehouse.marks import BATCH, OFFSETS, QUERY, offsets_text, same_offsets

UNSORTED = '{"t":{"10":4,"2":7},"a":{"0":1}}'  # as it was written once: what Spark's file had in this order
SORTED = offsets_text({topic: {int(part): at for part, at in of.items()} for topic, of in json.loads(UNSORTED).items()})


class Played:
    """A table of these commits, the newest last."""

    def __init__(self, *summaries: dict[str, str]) -> None:
        self._summaries = summaries

    def history(self) -> Any:
        """As Iceberg's: a list of Java's."""
        entries = [SimpleNamespace(snapshotId=lambda at=at: at) for at in range(len(self._summaries))]
        return SimpleNamespace(size=lambda: len(entries), get=entries.__getitem__)

    def snapshot(self, at: int) -> Any:
        """As Iceberg's."""
        return SimpleNamespace(summary=lambda: self._summaries[at])


def marks(number: int, offsets: str) -> dict[str, str]:
    """Of a batch of the query."""
    return {QUERY: "q", BATCH: str(number), OFFSETS: offsets}


def history(monkeypatch: pytest.MonkeyPatch, *summaries: dict[str, str]) -> History:
    """Of a table of these commits."""
    monkeypatch.setattr(iceberg_history, "loaded", lambda *_: Played(*summaries))
    return History(None, "t")  # type: ignore[arg-type]  # nothing is asked of Spark


def test_the_same_offsets_are_one_text_however_they_come() -> None:
    assert SORTED == offsets_text({"a": {0: 1}, "t": {2: 7, 10: 4}}) == '{"a":{"0":1},"t":{"2":7,"10":4}}'


def test_a_batch_that_was_committed_before_offsets_were_sorted_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed, and killed before Spark's own commit; then upgraded: it is replayed, and must not be applied again."""
    assert UNSORTED != SORTED
    assert history(monkeypatch, marks(3, UNSORTED)).holds(marks(3, SORTED))


def test_of_other_offsets_or_another_number_it_is_another_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    table = history(monkeypatch, marks(2, SORTED), marks(3, offsets_text({"t": {0: 5}})))
    assert not table.holds(marks(3, SORTED))
    assert not table.holds(marks(4, SORTED))
    assert table.holds(marks(2, SORTED))


def test_a_commit_that_says_nothing_of_offsets_is_no_batch() -> None:
    assert not same_offsets(None, "{}")
    assert same_offsets("{}", "{}")
