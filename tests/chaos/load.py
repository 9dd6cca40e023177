"""Who writes while everything breaks: shoppers and a bank, each at a steady rate, through every outage of Postgres."""

from __future__ import annotations

import threading
import time

import psycopg

from examples.shop.workload import WorkloadReport, run_workload
from tests.support.bank import Transfers

# Longer than Postgres is ever away here; after that the run has failed anyway.
PATIENCE_SECONDS = 600.0
DEAD_NETWORK_MS = 10_000


class Bankers(Transfers):
    """Transfers until they are told to stop; a lost connection is made anew.

    Args:
        conninfo: of the owner, with the bank's schema in its search path.
        seed: decides every choice.
        rate: transactions a second.
    """

    def __init__(self, conninfo: str, seed: int, rate: float) -> None:
        super().__init__(conninfo, seed)
        self.rate, self.over = rate, threading.Event()

    def run(self) -> None:
        """Write until ``over``."""
        try:
            while not self.over.is_set():
                try:
                    self._connected()
                except psycopg.OperationalError:  # Postgres is away; whether the last commit arrived is unknown
                    self.over.wait(0.5)
        except BaseException as error:
            self.error = error

    def _connected(self) -> None:
        settings = {"connect_timeout": 5, "tcp_user_timeout": DEAD_NETWORK_MS}
        with psycopg.connect(self.conninfo, autocommit=True, **settings) as connection:
            while not self.over.is_set():
                began = time.monotonic()
                with connection.transaction(force_rollback=self.rng.random() < 0.05):
                    self.transaction(connection)
                self.committed += 1
                self.over.wait(max(0.0, 1 / self.rate - (time.monotonic() - began)))


class Shoppers(threading.Thread):
    """The shop's own random workload, until it is told to stop."""

    def __init__(self, conninfo: str, seed: int, rate: float) -> None:
        super().__init__(daemon=True)
        self.arguments, self.rate = (conninfo, seed), rate
        self.over = threading.Event()
        self.report: WorkloadReport | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write until ``over``."""
        try:
            self.report = run_workload(*self.arguments, rate=self.rate, stop=self.over, patience=PATIENCE_SECONDS)
        except BaseException as error:
            self.error = error


class Load:
    """All writers.

    Args:
        shop: the shop owner's connection.
        bank: the same with the bank's schema in front.
        rate: transactions a second of all of them.
    """

    def __init__(self, shop: str, bank: str, seed: int, rate: float) -> None:
        self.bankers = Bankers(bank, seed, rate / 3)
        self.shoppers = [Shoppers(shop, seed * 100 + number, rate / 3) for number in range(2)]

    def start(self) -> None:
        """Begin."""
        for writer in (self.bankers, *self.shoppers):
            writer.start()

    def stop(self) -> int:
        """End; how many transactions were committed. What a writer fell over is raised."""
        for writer in (self.bankers, *self.shoppers):
            writer.over.set()  # type: ignore[attr-defined]
        for writer in (self.bankers, *self.shoppers):
            writer.join(60)
            if writer.error is not None:  # type: ignore[attr-defined]
                raise writer.error  # type: ignore[attr-defined]
        return self.bankers.committed + sum(one.report.committed for one in self.shoppers if one.report)
