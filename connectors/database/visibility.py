"""Which transactions can be seen: one that is in the log, and in a topic, may be none of them yet.

Postgres writes a commit into its log first and lets others see the transaction a moment later: microseconds, some
milliseconds on a busy machine, and with a synchronous standby when that has answered. Whoever holds what a topic has
against a table meanwhile finds rows that are not there, and none of them was deleted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from connectors.postgres import Connection, explained

# The log has of a transaction's id (xid8) the lower half alone.
IN_THE_LOG = 1 << 32
LOOK_SECONDS = 0.01
UNDER_WAY = "SELECT pg_snapshot_xip(pg_current_snapshot())::text::bigint"
# A snapshot names those of all databases. Of which one a session is, and its transaction, every role may see.
ELSEWHERE = """\
SELECT backend_xid::text::bigint FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname <> current_database()
UNION ALL SELECT transaction::text::bigint FROM pg_prepared_xacts WHERE database <> current_database()"""


@dataclass(frozen=True)
class Visible:
    """What everybody could see at one moment, and sees ever since.

    Attributes:
        end: transactions from this one on have begun later.
        under_way: those before it that could not be seen, but for other databases'.
    """

    end: int
    under_way: frozenset[int]

    def has(self, transaction: int | None, end: int) -> bool:
        """Whether a transaction that is in the log could be seen. Pure.

        Args:
            transaction: as the log has it; None of a row that was read, which could be.
            end: one that had not begun when the transaction was known. ``self.end`` is one only if that was before this
                was looked at: a newer transaction would be taken for one of 2**32 ago, which everybody sees.
        """
        if transaction is None:
            return True
        last = end - 1
        whole = last - (last - transaction) % IN_THE_LOG
        return whole < self.end and whole not in self.under_way


def next_transaction(connection: Connection) -> int:
    """The id of a transaction of our own, which has ended when this returns: all that are in the log have lower ones.

    Args:
        connection: to the primary, in autocommit.

    Raises:
        SourceUnavailable: no answer (transient).
    """
    with explained("asking for the newest transaction"):
        row = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


def read_visible(connection: Connection, seconds: float = 0.0) -> Visible:
    """What can be seen, of the transactions that are in the log now.

    Args:
        connection: to the primary, in autocommit.
        seconds: how long those that are under way may take to end.

    Raises:
        SourceUnavailable: no answer (transient).
    """
    until = time.monotonic() + seconds
    # A snapshot names none that is newer than the last one that has ended: ours has ended, and all others are older.
    end = next_transaction(connection)
    while True:
        with explained("asking which transactions are under way"):
            rows = connection.execute(UNDER_WAY).fetchall()
            under_way = frozenset(int(number) for (number,) in rows if int(number) < end)
            if under_way:
                under_way -= _elsewhere(connection, under_way)
        if not under_way or time.monotonic() > until:
            return Visible(end, under_way)
        time.sleep(LOOK_SECONDS)


def _elsewhere(connection: Connection, numbers: frozenset[int]) -> frozenset[int]:
    """Those of these transactions that are certainly of another database: they can't have written here, and one may be
    open for hours. Whatever is not known to be stays, as one of this database does that has committed and waits for its
    standby. None of two that are alive has the other's lower half (``xid``)."""
    elsewhere = {int(number) for (number,) in connection.execute(ELSEWHERE).fetchall()}
    return frozenset(number for number in numbers if number % IN_THE_LOG in elsewhere)
