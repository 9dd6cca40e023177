"""The changes that both sides are measured with: plain SQL on one end, documents on the other.

Whatever answers as ``Documents`` can be measured on the same rows: pgsync here, Headwater in the same run.
"""

from __future__ import annotations

import random
import time

from benchmarks.peers.documents import Document, same
from benchmarks.peers.measuring import (
    COUNT_SECONDS,
    GET_SECONDS,
    WRITES_SECONDS,
    Documents,
    Rate,
    Settings,
    wait_until,
)
from deploy.local.endpoints import Endpoints
from examples.common import connect, conninfo

# Between single commits, so that each meets an idle pipeline.
PAUSE_SECONDS = (0.2, 0.5)
# Single commits that are not counted: connections are opened, code is compiled.
WARM_UP = 5


class Workload:
    """Changes a copy of the flights database and waits for the documents.

    Args:
        endpoints: where Postgres is.
        settings: what is measured; names the copy.
    """

    def __init__(self, endpoints: Endpoints, settings: Settings) -> None:
        self.endpoints, self.settings = endpoints, settings
        self.database = connect(conninfo(endpoints, settings.database), autocommit=True)
        # Not seeded: with an earlier run's values a change might be there before it is made.
        self.random = random.Random()  # noqa: S311 (which rows, not secrets)

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def settle(self) -> None:
        """Bring tables and their statistics to rest: nobody shall pay for what was measured before."""
        self.database.execute("VACUUM ANALYZE")
        self.database.execute("CHECKPOINT")

    def expected(self, document: Document) -> int:
        """How many documents there must be."""
        row = self.database.execute(document.count.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def updates(self, documents: Documents) -> Rate:
        """Change flights in transactions of some rows each: root updates, one document a row."""
        value, last, before = self._mark(), 0, documents.writes()
        began = time.perf_counter()
        for first, last in self.settings.transactions():
            statement = "UPDATE flights SET dep_delay = %s WHERE flight_id BETWEEN %s AND %s"
            self.database.execute(statement, (value, first, last))
        committed = time.perf_counter()
        _written(documents, before + last, "every update")
        wait_until(lambda: documents.count("dep_delay", value) == last, documents.check, COUNT_SECONDS, "every update")
        return Rate(last, time.perf_counter() - began, committed - began)

    def fanout(self, documents: Documents) -> Rate:
        """Rename the airline with the most flights: one row, thousands of documents."""
        carrier, flights = self._largest_airline()
        name, before = f"Airline {self._mark()}", documents.writes()
        began = time.perf_counter()
        self.database.execute("UPDATE airlines SET name = %s WHERE carrier = %s", (name, carrier))
        committed = time.perf_counter()
        what = f"the new airline's name in all {flights:,} documents"
        _written(documents, before + flights, what)
        wait_until(lambda: documents.count("airline.name", name) == flights, documents.check, COUNT_SECONDS, what)
        return Rate(flights, time.perf_counter() - began, committed - began)

    def idle(self, documents: Documents, samples: int | None = None, warm_up: int = WARM_UP) -> list[float]:
        """Single commits with pauses: seconds from each commit until a GET shows it."""
        found = []
        for sample in range(warm_up + (samples or self.settings.samples)):
            value, flight = self._mark(), self.random.randrange(1, self.settings.flights + 1)
            self.database.execute("UPDATE flights SET air_time = %s WHERE flight_id = %s", (value, flight))
            committed = time.perf_counter()
            _await(documents, flight, "air_time", value)
            if sample >= warm_up:
                found.append(time.perf_counter() - committed)
            time.sleep(self.random.uniform(*PAUSE_SECONDS))
        return found

    def wrong(self, documents: Documents, document: Document) -> int:
        """How many documents differ from what plain SQL makes now, missing and needless ones included."""
        found = dict(documents.scan())
        rows = document.rows(self.database)
        differing = sum(1 for key, wanted in rows if not same(found.pop(key, {}), wanted, document.arrays))
        return differing + len(found)

    def _largest_airline(self) -> tuple[str, int]:
        row = self.database.execute(
            "SELECT carrier, count(*) FROM flights GROUP BY carrier ORDER BY count(*) DESC, carrier LIMIT 1"
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    def _mark(self) -> int:
        """A value that no flight has yet."""
        return self.random.randrange(10**6, 10**9)


def _written(documents: Documents, wanted: int, what: str) -> None:
    """Wait until there were so many writes: nobody is done before, and asking for documents would be a load itself."""
    wait_until(lambda: documents.writes() >= wanted, documents.check, WRITES_SECONDS, what)


def _await(documents: Documents, flight: int, field: str, value: int) -> None:
    def arrived() -> bool:
        document = documents.get(str(flight))
        return document is not None and document[field] == value

    wait_until(arrived, documents.check, GET_SECONDS, f"the new {field} of flight {flight}")
