"""What keeps a slot from moving: transactions that have written and do not end, and standbys that it waits for.

Logical decoding begins anew at the oldest transaction that is still open, of whatever database of the server: Postgres
keeps all WAL from its first write on, however far the connector has read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg.abc import Buffer
from psycopg.adapt import Loader

from cdc.sizes import span_words
from connectors.postgres import Connection, explained

# Younger ones are work, not a mistake.
LONG_SECONDS = 60.0
# So many are told of in words, and how many more there are: it is the first ones that matter.
MOST = 5
# Of a query only its beginning is shown, without what stands in quotes: values of rows, and passwords.
QUERY_CHARACTERS = 120
HIDDEN = "<insufficient privilege>"
# Stands for what could not be read of a text.
UNREADABLE = "\ufffd"

TRANSACTIONS = """
SELECT pid, usename, application_name, datname, state, query, backend_xid::text, age(backend_xid),
       extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
"""
PREPARED = """
SELECT gid, owner, database, transaction::text, age(transaction),
       extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts
"""
STANDBYS = """
SELECT wanted.name FROM unnest(%s::text[]) AS wanted(name)
WHERE NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = wanted.name AND s.slot_type = 'physical'
                  AND s.active)
"""


@dataclass(frozen=True)
class Pin:
    """Something that keeps the slot from moving.

    Attributes:
        kind: ``transaction``, ``prepared`` (a prepared transaction) or ``standby`` (one that the slot waits for).
        pid: of the transaction's backend; else None.
        name: the prepared transaction's, or the standby's slot; else "".
        user: who runs it; "" when not known.
        application: as it calls itself; "" when not known.
        database: that it works in.
        state: of its session, as ``idle in transaction``; "" when the role may not see that.
        seconds: since it began; None when the role may not see that.
        query: the beginning of its last, without what stood in quotes; None when the role may not see it.
        xid: the transaction, which tells it from a later one of the same session; "" of a standby.
    """

    kind: str
    pid: int | None
    name: str
    user: str
    application: str
    database: str
    state: str
    seconds: float | None
    query: str | None
    xid: str = ""

    @property
    def words(self) -> str:
        """What it is, in one line."""
        if self.kind == "standby":
            return f"it waits for the standby of slot {self.name} (synchronized_standby_slots), which is not there"
        age = "for a time that this role may not see" if self.seconds is None else f"for {span_words(self.seconds)}"
        if self.kind == "prepared":
            return f"prepared transaction {self.name!r} of {self.user} in {self.database}, open {age}"
        who = ", ".join(filter(None, (self.application, f"pid {self.pid}", self.state)))
        query = f": {self.query}" if self.query else ""
        return f"transaction of {self.user} in {self.database} ({who}), open {age}{query}"

    @property
    def fix(self) -> str:
        """What to do about it."""
        if self.kind == "standby":
            return "start that standby, or take its slot out of synchronized_standby_slots"
        if self.kind == "prepared":
            if UNREADABLE in self.name:
                which = f"the one that is transaction {self.xid} in pg_prepared_xacts"
                return f"in {self.database}: COMMIT PREPARED or ROLLBACK PREPARED {which}"
            gid = self.name.replace("'", "''")
            return f"in {self.database}: COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'"
        seen = "" if self.seconds is not None else "; GRANT pg_monitor to source.user shows its age and its query"
        return f"end it in the application, or SELECT pg_terminate_backend({self.pid}){seen}"


class _Readable(Loader):
    """Texts of other databases, which the server gives as they are, whatever encoding they have there."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="replace")


def read_pins(connection: Connection, *, standbys: bool) -> list[Pin]:
    """Every open transaction that has written, the oldest first, and standbys that are waited for.

    Args:
        connection: any role; without ``pg_read_all_stats`` it sees neither age nor query of others' transactions.
        standbys: the slot is a failover slot, which waits for ``synchronized_standby_slots``.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    with explained("looking for what holds the slot"):
        cursor = connection.cursor()
        for kind in ("text", "name"):
            cursor.adapters.register_loader(kind, _Readable)
        rows = cursor.execute(TRANSACTIONS).fetchall()
        prepared = cursor.execute(PREPARED).fetchall()
        found = connection.execute("SELECT current_setting('synchronized_standby_slots', true)").fetchone()
        names = [name.strip().strip('"') for name in str(found[0] or "").split(",")] if standbys and found else []
        waited = connection.execute(STANDBYS, [[name for name in names if name]]).fetchall() if any(names) else []
    aged: list[tuple[int, Pin]] = []
    for pid, user, application, database, state, query, xid, age, seconds in rows:
        shown = None if query in (None, "", HIDDEN) else shortened(query)
        pin = Pin("transaction", pid, "", user or "", application or "", database or "", state or "", seconds, shown)
        aged.append((age, replace(pin, xid=xid)))
    for gid, owner, database, xid, age, seconds in prepared:
        aged.append((age, Pin("prepared", None, gid, owner or "", "", database or "", "", seconds, None, xid)))
    transactions = [pin for _, pin in sorted(aged, key=lambda entry: -entry[0])]
    return [*(Pin("standby", None, name, "", "", "", "", None, None) for (name,) in waited), *transactions]


def long_ones(
    pins: Sequence[Pin], *, tight: bool, first_seen: Mapping[str, float] | None = None, now: float = 0.0
) -> tuple[Pin, ...]:
    """Those that are worth naming. Pure.

    Args:
        pins: of ``read_pins``.
        tight: much WAL is kept: then also those whose age the role may not see.
        first_seen: when transactions were seen first, by their id; epoch seconds.
        now: epoch seconds.
    """
    out = []
    for pin in pins:
        seen = (first_seen or {}).get(pin.xid)
        at_least = None if seen is None else now - seen
        aged = replace(pin, seconds=at_least) if pin.seconds is None and (at_least or 0) >= LONG_SECONDS else pin
        if pin.kind == "standby" or (tight if aged.seconds is None else aged.seconds >= LONG_SECONDS):
            out.append(aged)
    return tuple(out)


def better_seen(pins: Sequence[Pin], others: Collection[Pin]) -> list[Pin]:
    """The same pins, with what another role may see of them. Pure."""
    known = {pin.xid: pin for pin in others if pin.xid and pin.seconds is not None}
    return [known.get(pin.xid, pin) if pin.seconds is None else pin for pin in pins]


def shortened(query: str) -> str:
    """The beginning of a query on one line, up to the first quote, and without numbers. Pure.

    What stands in quotes may be a password, and quotes can't be followed without a parser (comments, escapes).
    """
    text, *rest = re.split(r"'|\$(?:[A-Za-z_]\w*)?\$", query, maxsplit=1)
    text = re.sub(r"(?<![\w$])\d[\w.]*", "?", " ".join(text.split()))
    return f"{text[:QUERY_CHARACTERS].rstrip()} …" if rest or len(text) > QUERY_CHARACTERS else text
