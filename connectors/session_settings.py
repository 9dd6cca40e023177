"""What sessions are set to whatever a role or a database sets for its own (ALTER ROLE, ALTER DATABASE … SET): Debezium
would read other values, or fail, and so would our own statements. Pure."""

from __future__ import annotations

# The option of Debezium's whose words reach every session that it opens as it begins, that of the stream too, which
# never runs ``database.initial.statements``.
DRIVER_OPTIONS = "driver.options"

# What a session must have to do its work at all, and the version that knows it: an unknown one refuses the login. A
# limit of the administrator's on how long a transaction may take, or a session rest, would end the reading of a large
# table for good. A database that is read-only by default takes no heartbeat, and its log grows.
_LIFTED = (
    ("default_transaction_read_only", "off", 0),
    ("idle_session_timeout", "0", 140000),
    ("transaction_timeout", "0", 170000),
)
# Debezium reads intervals and bytea in these forms alone: of others it makes other values, or its task fails. Its
# transactions wait for Kafka, and the slot for the end of the oldest transaction. Its commits are watermarks and
# heartbeats: waiting for a standby that is silent, one of them would hold up the stream with all its changes. One that
# is lost with the primary is missed by nobody. The log is read up to it whether it waits or not; a place beyond the
# switch is refused as with any other commit (docs/decisions/promotion.md), and from one before it the chunk is read
# again.
_DEBEZIUM = {
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "synchronous_commit": "local",
}


# Our own sessions besides. No name is found but by its schema. The driver reads moments in this form alone; where a
# backslash in quotes escapes, ours would be gone.
_OURS = {
    "search_path": "pg_catalog, pg_temp",
    "DateStyle": "ISO, YMD",
    "standard_conforming_strings": "on",
}


def lifted(server_version: int) -> dict[str, str]:
    """What every session is set to.

    Args:
        server_version: as libpq tells it, 180001.
    """
    return {name: value for name, value, since in _LIFTED if server_version >= since}


def ours(server_version: int) -> dict[str, str]:
    """What our own sessions are set to, but for their limits of time.

    Args:
        server_version: as libpq tells it, 180001.
    """
    return _OURS | lifted(server_version)


def driver_options(server_version: int, own: str = "") -> str:
    """``driver.options`` of the connector.

    Args:
        server_version: as libpq tells it, 180001.
        own: what ``connect.options`` says there: it stands behind ours, and Postgres takes the last.
    """
    said = [f"-c {name}={value}" for name, value in (_DEBEZIUM | lifted(server_version)).items()]
    return " ".join([*said, own] if own else said)
