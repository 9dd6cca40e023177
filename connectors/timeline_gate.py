"""What keeps the connector from reading on a timeline that nobody has followed.

A promoted standby is another timeline, and so is a restore to a point in time. Debezium does not look: it would go on
from where it was in a log that may not have got so far, and skip what comes up to there in silence. So each start of
its task asks first whether the server is on the timeline that is noted, and fails if not (then it tries again every
ten seconds, while Kafka Connect says RUNNING): by its sessions for SQL, which it opens before the stream's. That of the
stream itself runs no such statements. What then goes on, and when, is for connectors/gaps/promotion.py.
"""

from __future__ import annotations

from cdc.sql_names import quoted_table
from connectors.names import Names

# A row of the witness table; no runner is called like this, for theirs are UUIDs.
ROW = "timeline"
# As the server itself is on: after a promotion the last checkpoint may still be of the timeline before.
HERE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint"


def gate(names: Names) -> str:
    """One statement, without parameters, that fails on a primary whose timeline is not the noted one.

    Nothing noted, as by an older version: nothing is asked. A server in recovery has no timeline of its own yet.
    """
    table = quoted_table(names.schema, names.witness)
    noted = f"(SELECT count FROM {table} WHERE runner = '{ROW}')"  # noqa: S608 - quoted above
    # Not a constant: Postgres would compute it before it looks at the condition.
    message = f"'headwater: nobody has followed timeline ' || {HERE} || ': headwater run FILE does, or says why not'"
    return f"SELECT CASE WHEN pg_is_in_recovery() THEN NULL WHEN {noted} <> {HERE} THEN ({message})::bigint END"
