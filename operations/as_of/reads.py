"""The rows that a snapshot has read say where a table's history begins: no cut is made before it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc.errors import BeforeHistory
from cdc.records.history import AFTER, OP, READ, TIME, begins_at
from cdc.records.position import format_lsn, unpack
from operations.as_of.begun import NotBegun
from sinks.iceberg.history import all_bounds

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class Reads:
    """The rows of a table that a snapshot has read, the least and the greatest of each.

    Attributes:
        afters: their ``_hw_after``, packed.
        times: when they were read; None if nobody asked.
    """

    afters: tuple[int, int]
    times: tuple[datetime, datetime] | None = None


def reads_of(tables: Mapping[str, Table], through: Mapping[str, int], times: bool) -> dict[str, Reads]:
    """What was read of each table, one scan a table; tables of which nothing was are left out.

    Args:
        tables: their histories.
        through: where each of them had been read whole for the first time, packed, of those of which that is known:
            what was read again behind it, as after an ALTER TABLE, takes no cut away.
        times: moments are asked for, too.
    """
    columns = (AFTER, TIME) if times else (AFTER,)
    ends = {name: f" AND {AFTER} < {at}" for name, at in through.items()}
    found = {name: all_bounds(table, columns, f"{OP} = '{READ}'{ends.get(name, '')}") for name, table in tables.items()}
    return {name: Reads(read[AFTER], read.get(TIME)) for name, read in found.items() if AFTER in read}


def refuse_unread(reads: Mapping[str, Reads], unread: Iterable[str], snapshot: int) -> None:
    """A table that is read for the first time has no history yet; one that is read again has had it all along.

    Args:
        reads: of the tables that are shown.
        unread: those of them that Debezium is reading.
        snapshot: position of the initial snapshot, packed.

    Raises:
        NotBegun: with the ``BeforeHistory`` to raise if it is not waited for.
    """
    for name in unread:
        if name not in reads or reads[name].afters[0] >= snapshot:
            error = BeforeHistory(
                f"the rows of {name} are still being read: its history begins when all of them are there",
                means="a cut would have a part of them; no cut was made",
                fix="`headwater apply FILE --wait` shows how far it is; or leave the table out (--table)",
            )
            raise NotBegun(error)


def refuse_early(
    reads: Mapping[str, Reads], shown: Iterable[str], cut: int, snapshot: int, anew: Mapping[str, int] = {}
) -> None:
    """A cut (packed) before a shown table's history begins is refused.

    Args:
        reads: of the tables that are shown.
        shown: their names.
        cut: packed.
        snapshot: position of the initial snapshot, packed.
        anew: those of them that were begun anew, and where at the earliest, packed: of a table that had no row then
            nothing was read.

    Raises:
        BeforeHistory: it is (terminal).
    """
    for name in shown:
        begins = max(begins_at(snapshot, reads[name].afters if name in reads else ()), anew.get(name, 0))
        if cut < begins:
            where, asked = format_lsn(unpack(begins)[1]), format_lsn(unpack(cut)[1])
            raise _before(name, f"{where}, behind the cut at {asked}")


def refuse_unread_moment(reads: Mapping[str, Reads], shown: Container[str], at_us: int, snapshot: int) -> None:
    """A moment before the rows were read has a cut like any other: that before the first commit behind it, which is one
    behind the reading. So the moment itself is held against the reading's.

    Args:
        reads: of all tables, with moments.
        shown: of which of them a cut shows rows.
        at_us: the moment, in microseconds since 1970.
        snapshot: position of the initial snapshot, packed.

    Raises:
        BeforeHistory: it lies before a shown table's rows were read (terminal).
    """
    timed = {name: (one.afters, one.times) for name, one in reads.items() if one.times is not None}
    # The initial snapshot reads all tables as of one position, one after the other: the first row is nearest to it.
    first = min((times[0] for afters, times in timed.values() if afters[0] < snapshot), default=None)
    moment = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    for name, (afters, times) in timed.items():
        begins = first if first is not None and afters[0] < snapshot else times[1]
        if name in shown and moment < begins:
            when = f"{begins.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            raise _before(name, f"{when}, behind the moment {moment.isoformat()}")


def _before(name: str, words: str) -> BeforeHistory:
    return BeforeHistory(
        f"the history of {name} begins at {words}",
        means="what it held before is not known; no cut was made",
        fix="ask for a later one, or for the tables that had begun (--table)",
    )
