"""Money in two tables, moved by transactions that overlap: at every moment the whole of it is the same."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
from ruamel.yaml import YAML

from examples.common import ensure_database
from tests.support.own_tables import OwnTables, Writing

OWNER, SINK, NAMESPACE = "vaults_owner", "lake", "vaults"
CATALOG = f"hw_{SINK}"
ROWS, EACH = 12, 1000
TOTAL = 2 * ROWS * EACH
TABLE_NAMES = ("checking", "savings")
TABLES = """
CREATE TABLE checking (id int PRIMARY KEY, balance bigint NOT NULL, note text);
CREATE TABLE savings (id int PRIMARY KEY, balance bigint NOT NULL, branch smallint DEFAULT 7);
"""


class Vaults(OwnTables):
    """Two tables behind one pipeline, whose one sink keeps history."""

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES)
            for table in ("checking", "savings"):
                connection.execute(f"INSERT INTO {table} SELECT n, {EACH} FROM generate_series(1, {ROWS}) n".encode())
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def open_again(self) -> None:
        """Accounts that were closed, with nothing in them: who writes to a certain one later finds it."""
        for table in ("checking", "savings"):
            rows = f"SELECT n, 0 FROM generate_series(1, {ROWS}) n"
            self.execute(f"INSERT INTO {table} (id, balance) {rows} ON CONFLICT DO NOTHING")

    def write_pipeline(self, **kafka: Any) -> None:
        folder = self.folder / "warehouse"
        sink = {
            "type": "iceberg",
            "catalog_uri": str(folder / "catalog.db"),
            "warehouse": str(folder),
            "namespace": NAMESPACE,
            "tables": "all",
            "trigger_seconds": 1,
            "history": True,
        }
        source = {"heartbeat_seconds": 1}
        self.write_own(["public.checking", "public.savings"], {}, {SINK: sink}, source, policy={"schema": "evolve"})
        if kafka:
            yaml = YAML(typ="safe")
            document = yaml.load(self.file.read_text())
            document["kafka"] |= kafka
            self.write_file(document)

    def as_of(self, *options: str) -> dict[str, Any]:
        """What ``headwater as-of --json`` prints."""
        found: dict[str, Any] = json.loads(self.run("as-of", "--json", *options))
        return found


class Moving(Writing):
    """Moves money between any two rows of the two tables, in several statements; now and then closes an account."""

    pause, least = 0.002, 20

    def __init__(self, conninfo: str, seed: int) -> None:
        super().__init__(conninfo)
        self.random = random.Random(seed)

    def row(self, connection: psycopg.Connection[Any]) -> None:
        rng = self.random
        places = [(rng.choice(("checking", "savings")), rng.randint(1, ROWS)) for _ in range(2)]
        if places[0] == places[1]:
            return
        amount = rng.randint(1, 50)
        try:
            with connection.transaction(force_rollback=rng.random() < 0.05):
                # In an order of their own: two that lock the same rows the other way round would wait for each other.
                for table, at in sorted(places):
                    sign = -1 if (table, at) == places[0] else 1
                    move = f"UPDATE {table} SET balance = balance + %s WHERE id = %s"
                    if connection.execute(move.encode(), [sign * amount, at]).rowcount == 0:
                        insert = f"INSERT INTO {table} (id, balance) VALUES (%s, %s)"
                        connection.execute(insert.encode(), [at, sign * amount])
                    connection.execute("SELECT pg_sleep(%s)", [rng.random() / 200])
                if rng.random() < 0.1:
                    self._close(connection, *places[0])
        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
            return  # somebody else was first

    def _close(self, connection: psycopg.Connection[Any], table: str, at: int) -> None:
        """An account ends, and a row of the other table takes what it had."""
        gone = connection.execute(f"DELETE FROM {table} WHERE id = %s RETURNING balance".encode(), [at]).fetchone()
        other = "savings" if table == "checking" else "checking"
        taken = connection.execute(
            f"UPDATE {other} SET balance = balance + %s WHERE id = (SELECT max(id) FROM {other})".encode(),
            [gone[0] if gone else 0],
        )
        if taken.rowcount != 1:  # that row was being closed as well
            raise psycopg.Rollback
