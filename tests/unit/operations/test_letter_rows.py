"""When a letter is cleared by what the log, or the row store, has of its row: only by something newer than it."""

from __future__ import annotations

import pytest

from cdc.join import rows
from cdc.join.rows import Stamp
from cdc.letters.deadletter import DeadLetter
from operations.letters.judge import _later
from operations.letters.rewrite import _as_new, _row
from operations.records.newest import Newest, Record
from sinks.contract import UNVERSIONED
from spark.reading.entries import Entry

TABLE = "public.t"
LETTER = DeadLetter("s", "v", "1", 80, "no", topic="t", partition=0, offset=7, table=TABLE)
NO_LATER, COMING = "the log has no later record of this row", "a later record of this row is on its way"


def newest(offset: int, version: int = 80, partition: int = 0, document: bytes | None = b"{}") -> Newest:
    return Newest(
        Entry("v", "1", version, document, "t", partition, offset, 0), Record(b"1", b"", "t", partition, offset)
    )


@pytest.mark.parametrize(
    ("found", "new"),
    [
        pytest.param(newest(7, 80), True, id="its own record"),
        pytest.param(newest(9, 88), True, id="a later one"),
        pytest.param(newest(3, 72), False, id="an older one"),
        pytest.param(newest(8, UNVERSIONED, document=None), True, id="a tombstone behind it"),
        pytest.param(newest(7, UNVERSIONED, document=None), False, id="a tombstone in its place"),
        pytest.param(newest(6, UNVERSIONED, document=None), False, id="a tombstone before it"),
    ],
)
def test_only_the_letters_own_record_or_a_later_one_is_written_again(found: Newest, new: bool) -> None:
    """With an older one `letters replay` would write what the sink had before, and clear the letter."""
    assert _as_new(found, LETTER) is new


@pytest.mark.parametrize(
    ("found", "through", "outcome"),
    [
        pytest.param(newest(8), 9, True, id="applied"),
        pytest.param(newest(8, document=None), 9, False, id="a delete that was applied"),
        pytest.param(newest(8), 8, COMING, id="the next to be applied"),
        pytest.param(newest(7), 9, NO_LATER, id="its own record"),
        pytest.param(newest(8, partition=1), 9, NO_LATER, id="of another partition"),
        pytest.param(None, 9, NO_LATER, id="not in the log"),
    ],
)
def test_a_rows_letter_goes_once_a_later_record_of_its_partition_was_applied(
    found: Newest | None, through: int, outcome: bool | str
) -> None:
    told = _row(found, LETTER, TABLE, [{"t": {0: 99, 1: 99}}, {"t": {0: through, 1: 99}}])
    assert told is outcome if isinstance(outcome, bool) else str(told).startswith(outcome)


@pytest.mark.parametrize(("partition", "offset", "later"), [(0, 6, False), (0, 7, False), (0, 8, True), (1, 8, False)])
def test_a_row_in_the_row_store_is_later_only_by_its_own_partitions_offsets(
    partition: int, offset: int, later: bool
) -> None:
    value = rows.write(Stamp(88, offset, partition), [], b'["x"]')
    assert _later(value, LETTER) is later
