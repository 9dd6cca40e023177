"""Applications that write, wait, and look: what was said to be visible must be found, whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from elastic_transport import TransportError
from elasticsearch import ApiError, Elasticsearch
from headwater_client import Headwater, take_token

# A server that was killed is back within this time; a search that fails as long proves nothing and ends the test.
AWAY_SECONDS = 180.0
AGAIN_SECONDS = 0.2
KEYS = 40


@dataclass
class Waiters:
    """Several applications at once, each with rows of its own, which it writes over and over.

    Attributes:
        conninfo: of the database, as who owns the tables.
        pipeline: its name.
        url: of Elasticsearch.
        index: readers' alias, of a view with the columns ``id`` and ``n`` of the table ``things``.
        headwater: where it is waited.
        threads: how many.
        pause: between two writes of one application, in seconds.
    """

    conninfo: str
    pipeline: str
    url: str
    index: str
    headwater: Headwater
    threads: int = 8
    pause: float = 0.0
    seconds: list[float] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    lies: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def run(self, visible: int, seconds: float) -> None:
        """Go on until so many waits were answered ``visible``, or the time is over."""
        until = time.monotonic() + seconds
        with self.at_work():
            while self.states["visible"] < visible and time.monotonic() < until and not self.lies:
                time.sleep(0.2)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """All of them, meanwhile."""
        over = threading.Event()
        crowd = [threading.Thread(target=self._one, args=(number, over)) for number in range(self.threads)]
        for one in crowd:
            one.start()
        try:
            yield
        finally:
            over.set()
            for one in crowd:
                one.join()

    def percentile(self, part: float) -> float:
        """How long a wait that was answered ``visible`` took, in seconds."""
        took = sorted(self.seconds)
        return took[min(int(len(took) * part), len(took) - 1)]

    def _one(self, number: int, over: threading.Event) -> None:
        rng = random.Random(number)
        search = Elasticsearch(self.url, request_timeout=20)
        with contextlib.ExitStack() as last:
            last.callback(search.close)
            connection: psycopg.Connection | None = None
            for count in itertools.count(1):
                if over.is_set():
                    break
                key = 1_000_000 + number * KEYS + rng.randrange(KEYS)
                try:
                    if connection is None or connection.closed:
                        connection = psycopg.connect(self.conninfo, connect_timeout=5)
                        last.callback(connection.close)
                    token, committed = self._write(connection, rng, key, count)
                except psycopg.Error as error:  # the server was killed: whether it was committed is not known
                    self.troubles.append(str(error).splitlines()[0])
                    if connection is not None:
                        connection.close()
                    time.sleep(0.5)
                    continue
                if token is not None:
                    self._judge(search, token, key, count, committed=committed)
                time.sleep(self.pause)

    def _write(
        self, connection: psycopg.Connection, rng: random.Random, key: int, count: int
    ) -> tuple[str | None, bool]:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO things (id, n) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n", [key, count]
            )
            inside = take_token(cursor, self.pipeline)
            if rng.random() < 0.05:
                connection.rollback()
                return inside, False
            connection.commit()
            if rng.random() < 0.5:
                return inside, True
            after = take_token(cursor, self.pipeline, after_commit=True)
            connection.commit()
            return after, True

    def _judge(self, search: Elasticsearch, token: str, key: int, count: int, *, committed: bool) -> None:
        answer = self.headwater.wait(token, ["search"])
        self.states[answer.state] += 1
        if answer.state == "visible":
            self.seconds.append(answer.seconds)
            found = self._found(search, key)
            if not committed:
                self.lies.append(f"{key}: what was rolled back is said to be visible")
            elif found is None or found < count:
                self.lies.append(f"{key}: {count} is said to be visible, a search finds {found}; {answer}")
        elif answer.state == "aborted" and committed:
            self.lies.append(f"{key}: {count} was committed, and is said to be aborted")
        elif answer.state != "aborted":  # what answers is away, and refuses connections as fast as they are asked for
            time.sleep(AGAIN_SECONDS)

    def _found(self, search: Elasticsearch, key: int) -> int | None:
        def ask() -> int | None:
            hits = search.search(index=self.index, query={"term": {"id": key}})["hits"]["hits"]
            return int(hits[0]["_source"]["n"]) if hits else None

        return patiently(ask)


def patiently(ask: Callable[[], int | None]) -> int | None:
    """Ask until the server answers."""
    until = time.monotonic() + AWAY_SECONDS
    while True:
        try:
            return ask()
        except (ApiError, TransportError):
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
