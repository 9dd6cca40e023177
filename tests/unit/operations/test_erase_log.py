"""What the log says of a row where transactions were aborted: their values are there, and say nothing of its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.log.client import PARTITION_EOF
from operations.erase import log
from operations.erase.log import InLog, row_in_log, still_there
from tests.support.erase_cases import subject

KEY, OTHER = b'{"id":7}', b'{"id":8}'
# Offset by offset: the key, whether there is a value, and whether its transaction was committed.
Written = list[tuple[bytes, bool, bool]]
VALUE, TOMBSTONE, ABORTED, ABORTED_TOMBSTONE = (
    (KEY, True, True),
    (KEY, False, True),
    (KEY, True, False),
    (KEY, False, False),
)


def message(offset: int, key: bytes, there: bool, error: Any = None) -> Any:
    said = {"key": key, "value": b"{}" if there else None, "offset": offset, "partition": 0, "error": error}
    return SimpleNamespace(**{name: lambda one=one: one for name, one in said.items()})


def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Written) -> InLog:
    def records(_: Any, _topic: str, _part: int, start: int = 0, *, uncommitted: bool = False) -> Iterator[Any]:
        for offset, (key, there, committed) in enumerate(written):
            if offset >= start and (committed or uncommitted):
                yield message(offset, key, there)

    monkeypatch.setattr(log, "records", records)
    described = {"p.public.persons": SimpleNamespace(partitions=1)}
    return row_in_log(subject(tmp_path, "7"), cast(Any, SimpleNamespace(describe=lambda _: described)))


@pytest.mark.parametrize(
    ("written", "values", "deleted"),
    [
        ([VALUE, TOMBSTONE], [0], True),
        ([VALUE, ABORTED, TOMBSTONE], [0, 1], True),
        ([VALUE, ABORTED], [0, 1], False),
        ([VALUE, ABORTED_TOMBSTONE], [0], False),
        ([VALUE, TOMBSTONE, ABORTED], [0, 2], True),
        ([VALUE, TOMBSTONE, VALUE, ABORTED_TOMBSTONE], [0, 2], False),
        # What was before it is compacted: it was said for ever that the delete is missing.
        ([TOMBSTONE, ABORTED], [1], True),
        ([(OTHER, True, True), ABORTED], [1], True),
        ([TOMBSTONE, ABORTED_TOMBSTONE], [], True),
        ([], [], True),
    ],
)
def test_values_of_aborted_transactions_are_found_and_do_not_say_how_a_row_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Written, values: list[int], deleted: bool
) -> None:
    found = looked(tmp_path, monkeypatch, written)
    assert (found.values.get(0, []), found.count, found.deleted) == (values, len(values), deleted)


def test_what_is_left_is_looked_for_among_aborted_records_too() -> None:
    """Compaction was said to be done while they lay there."""
    written = dict(enumerate([VALUE, ABORTED, TOMBSTONE]))

    class Consumer:
        def __init__(self, committed: bool) -> None:
            self.committed, self.at = committed, 0

        def assign(self, places: list[Any]) -> None:
            [place] = places
            self.at = place.offset

        def poll(self, _seconds: float) -> Any:
            for offset, (key, there, committed) in written.items():
                if offset >= self.at and (committed or not self.committed):
                    return message(offset, key, there)
            return message(0, b"", False, SimpleNamespace(code=lambda: PARTITION_EOF))

        def close(self) -> None:
            """Nothing is open."""

    def consumer(**more: Any) -> Consumer:
        return Consumer(more.get("isolation_level") != "read_uncommitted")

    found = InLog("t", {0: [0, 1]}, {0: KEY})
    assert still_there(cast(Any, SimpleNamespace(consumer=consumer)), found) == 2
    del written[0]
    assert still_there(cast(Any, SimpleNamespace(consumer=consumer)), found) == 1
