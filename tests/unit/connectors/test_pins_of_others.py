"""What holds the slot may be of a database of another encoding, whose texts the server gives as they are there."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format

from connectors.wal.pins import PREPARED, TRANSACTIONS, read_pins

TEXT, NAME = psycopg.adapters.types["text"].oid, psycopg.adapters.types["name"].oid


class Session:
    """Of a database in UTF8; beside it is one in LATIN1, where somebody is at work."""

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.rows: list[tuple[Any, ...]] = []

    def cursor(self) -> Session:
        return Session()

    def execute(self, query: Any, _: Any = None) -> Session:
        self.rows = {
            TRANSACTIONS: [
                (5, b"ren\xe9", b"psql", b"caf\xe9", b"active", b"UPDATE caf\xe9 SET a = 1", b"70", 2, 90.0),
            ],
            PREPARED: [(b"\xe9t\xe9", b"app", b"caf\xe9", b"71", 1, 90.0), (b"it's", b"app", b"shop", b"72", 1, 90.0)],
        }.get(query, [])
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(self._read(value) for value in row) for row in self.rows]

    def fetchone(self) -> tuple[Any, ...]:
        return ("",)

    def _read(self, value: Any) -> Any:
        if not isinstance(value, bytes):
            return value
        read = []
        for oid in (TEXT, NAME):
            loader = self.adapters.get_loader(oid, Format.TEXT)
            assert loader is not None
            read.append(loader(oid, None).load(value))
        assert read[0] == read[1]
        return read[0]


def test_a_transaction_of_a_database_of_another_encoding_is_told() -> None:
    """`check` ended in a traceback, and `run` judged no WAL, for as long as it held the slot."""
    session: Any = Session()
    running, other, own = read_pins(session, standbys=False)
    assert running.words == (
        "transaction of ren\ufffd in caf\ufffd (psql, pid 5, active), open for 90 s: UPDATE caf\ufffd SET a = ?"
    )
    assert other.fix == (
        "in caf\ufffd: COMMIT PREPARED or ROLLBACK PREPARED the one that is transaction 71 in pg_prepared_xacts"
    )
    assert own.fix == "in shop: COMMIT PREPARED 'it''s' or ROLLBACK PREPARED 'it''s'"
