"""Cuts that nobody can make: where a slot was lost, or a table not published, what the tables held is not known."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.errors import HistoryGap
from cdc.records.position import format_lsn
from connectors.database.lost import Lost


def refuse_lost(lost: Sequence[Lost], lsn: int, at_us: int | None, least: int | None = None) -> None:
    """Refuse a cut where what was committed is in no topic, until all tables have been read again. Pure.

    Args:
        lost: what is in no topic.
        lsn: of the cut, in bytes.
        least: where it may lie as well, if what it lies behind is known no better than that (a transaction).
        at_us: the moment that it was asked for, in microseconds since 1970; None for a position.

    Raises:
        HistoryGap: it is there (terminal).
    """
    for one in lost:
        if not (one.hides(lsn, least) or (at_us is not None and one.hides_moment(at_us))):
            continue
        end = "all tables have been read again" if one.until is None else format_lsn(one.until)
        wait = "`headwater apply FILE --wait` reads them to the end; " if one.until is None else ""
        raise HistoryGap(
            f"what was committed behind {format_lsn(one.since)} may be in no log: the slot was lost, or a table was"
            f" dropped, renamed or not published whole; what tables held is unknown until {end}",
            means="a cut there would show rows of before as if they had still been so; no cut was made",
            fix=f"{wait}ask for one at or before {format_lsn(one.since)}, or for a later one",
        )
