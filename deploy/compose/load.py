"""An application that writes to the flights database while containers die, and counts its commits."""

from __future__ import annotations

import random
import threading
import time
from typing import LiteralString

import psycopg

# Between two transactions: some 30 commits a second, enough that every kill meets writes on their way.
PAUSE_SECONDS = 0.03
# Rows of our own begin far above the file's.
FIRST_ID = 20_000_000

INSERT: LiteralString = """INSERT INTO flights SELECT %(new)s, year, month, day, dep_time, sched_dep_time, dep_delay,
    arr_time, sched_arr_time, arr_delay, carrier, %(new)s, tailnum, origin, dest, air_time, distance, hour, minute,
    time_hour FROM flights WHERE flight_id = %(some)s"""
STATEMENTS: tuple[LiteralString, ...] = (
    INSERT,
    "UPDATE flights SET dep_delay = %(number)s, air_time = %(number)s + 1 WHERE flight_id = %(some)s",
    "UPDATE planes SET seats = %(number)s WHERE tailnum = (SELECT tailnum FROM flights WHERE flight_id = %(some)s)",
    "DELETE FROM flights WHERE flight_id = %(own)s",
    "UPDATE airlines SET name = left(name, 20) || %(number)s WHERE carrier IN ('UA', 'B6', 'EV')",
)
WEIGHTS = (4, 4, 2, 1, 1)


class Load:
    """A thread that writes until the block is left; Postgres may go away and come back.

    Args:
        conninfo: of the database.
        seed: of what is written.
        first: id of the first row of its own; another load's must not be met there.

    Attributes:
        committed: transactions whose commit was answered.
        broken: transactions that a failure of the server ended; whether they count is the server's to say.
    """

    def __init__(self, conninfo: str, seed: int, first: int = FIRST_ID) -> None:
        self.conninfo, self.random = conninfo, random.Random(seed)  # noqa: S311  (a workload, no secret)
        self.committed = self.broken = 0
        self._first = self._next = first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self.conninfo, autocommit=True, connect_timeout=5) as connection:
                        self._write(connection)
                except psycopg.OperationalError:
                    self.broken += 1
                    time.sleep(0.5)
        except BaseException as error:  # told when the block is left
            self.error = error

    def _write(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            values = {
                "new": self._next,
                "some": self.random.randrange(2, 300_000),
                "own": self.random.randrange(self._first, self._next + 1),
                "number": self.random.randrange(1, 400),
            }
            self._next += 1
            with connection.transaction():
                for statement in self.random.choices(STATEMENTS, WEIGHTS, k=self.random.randrange(1, 4)):
                    if statement is INSERT:
                        values["new"] = self._next
                        self._next += 1
                    connection.execute(statement, values)
            self.committed += 1
