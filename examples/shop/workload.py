"""A random write load on the shop: ``python -m examples.shop.workload``, or ``run_workload`` from a test.

One client, transactions of one to four steps, three in a hundred rolled back. With the same seed and the same rows to
begin with, a number of transactions does the same thing every time (a lost connection ends that: whether the last
commit arrived is then unknown, and the load goes on with the next transaction).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from random import Random
from threading import Event
from time import monotonic

import click
import psycopg

from cdc.errors import ConfigError, HeadwaterError, SourceError
from examples.common import Passwords, Progress, Server
from examples.common import conninfo as make_conninfo
from examples.shop.generate import OWNER
from examples.shop.steps import STEPS

ROLLBACK_SHARE = 0.03
# A restarting server refuses connections for a second or two: ask again soon, but not in a busy loop.
RECONNECT_FIRST_S, RECONNECT_MOST_S = 0.1, 2.0
# A dead network would hold a commit for the kernel's 15 minutes; the load must notice and reconnect.
NETWORK_TIMEOUT_MS = 10_000
PROGRESS_EVERY_S = 2.0


@dataclass
class WorkloadReport:
    """What a workload did. Rows that cascades touched are not counted."""

    committed: int = 0
    rolled_back: int = 0  # on purpose
    refused: int = 0  # by a constraint or a deadlock: rolled back by the server
    unknown: int = 0  # the connection broke: committed or not, nobody told
    reconnects: int = 0
    seconds: float = 0.0
    last_lsn: str | None = None  # everything this load committed lies before it; None if no server was there to ask
    rows: dict[str, int] = field(default_factory=dict)  # insert, update, delete, key change


@dataclass(frozen=True)
class Limits:
    """When a workload ends: whichever comes first."""

    transactions: int | None
    seconds: float | None
    stop: Event
    patience: float
    started: float

    def over(self, report: WorkloadReport) -> bool:
        """Whether the workload has done what was asked."""
        done = report.committed + report.rolled_back + report.refused + report.unknown
        if self.transactions is not None and done >= self.transactions:
            return True
        return self.stop.is_set() or self.time_is_up()

    def time_is_up(self) -> bool:
        """Whether ``seconds`` have passed."""
        return self.seconds is not None and monotonic() - self.started >= self.seconds


def run_workload(
    conninfo: str,
    seed: int = 1,
    *,
    transactions: int | None = None,
    seconds: float | None = None,
    rate: float | None = None,
    stop: Event | None = None,
    patience: float = 120.0,
    progress: Progress = lambda line: None,
) -> WorkloadReport:
    """Write to the shop until enough is done; a lost connection is made anew.

    Args:
        conninfo: of a role that may write to the shop's tables (``generate.load`` returns one).
        seed: decides every choice.
        transactions: end after so many (rolled back and refused ones count too).
        seconds: end after this time.
        rate: transactions a second at most; None = as fast as one client can.
        stop: end as soon as it is set (also while waiting for the server).
        patience: seconds without a server before giving up.
        progress: gets a line every two seconds.

    Returns:
        what was done; ``last_lsn`` is the position to wait for.

    Raises:
        ConfigError: nothing says when to end.
        SourceError: no server for ``patience`` seconds.
    """
    if transactions is None and seconds is None and stop is None:
        raise ConfigError("A workload must end: give transactions, seconds or stop.")
    limits = Limits(transactions, seconds, stop or Event(), patience, monotonic())
    report = WorkloadReport()
    rng = Random(seed)
    spoken = limits.started
    conn = _connect(conninfo, limits, report)
    try:
        while conn is not None and not limits.over(report):
            if not _transaction(conn, rng, report):
                conn.close()
                conn = _connect(conninfo, limits, report, again=True)
            if monotonic() - spoken >= PROGRESS_EVERY_S:
                spoken = monotonic()
                progress(f"{report.committed:,} transactions committed in {spoken - limits.started:.0f} s")
            if rate is not None:
                _pace(rate, report, limits)
        report.last_lsn = _position(conn)
    finally:
        if conn is not None:
            conn.close()
    report.seconds = round(monotonic() - limits.started, 3)
    return report


def _transaction(conn: psycopg.Connection, rng: Random, report: WorkloadReport) -> bool:
    """One transaction; False when the connection is gone."""
    # Drawn first, and from a source of its own: what a transaction meets must not shift the choices of the next ones.
    local = Random(rng.getrandbits(64))
    steps = local.choices(STEPS, [entry.weight for entry in STEPS], k=local.choice((1, 1, 1, 2, 3, 4)))
    undo = local.random() < ROLLBACK_SHARE
    count: Counter[str] = Counter()
    try:
        for entry in steps:
            entry.step(conn, local, count)
        if undo:
            conn.rollback()
            report.rolled_back += 1
        else:
            conn.commit()
            report.committed += 1
            for kind, number in count.items():
                report.rows[kind] = report.rows.get(kind, 0) + number
    except (psycopg.OperationalError, psycopg.IntegrityError):
        if conn.broken or conn.closed:
            report.unknown += 1
            return False
        conn.rollback()
        report.refused += 1
    return True


def _connect(
    conninfo: str, limits: Limits, report: WorkloadReport, *, again: bool = False
) -> psycopg.Connection | None:
    """Connect, waiting for a server that restarts; None when the workload is to stop meanwhile."""
    since, pause = monotonic(), RECONNECT_FIRST_S
    while not limits.stop.is_set() and not (again and limits.time_is_up()):
        try:
            conn = psycopg.connect(
                conninfo, tcp_user_timeout=NETWORK_TIMEOUT_MS, connect_timeout=5, options="-c timezone=UTC"
            )
            report.reconnects += again
            return conn
        except psycopg.OperationalError as error:
            if monotonic() - since > limits.patience:
                raise SourceError(f"No server for {limits.patience:.0f} s: {str(error).strip()}") from error
        limits.stop.wait(pause)
        pause = min(pause * 2, RECONNECT_MOST_S)
    return None


def _pace(rate: float, report: WorkloadReport, limits: Limits) -> None:
    """Sleep until the next transaction is due; after an outage, do not make up for the lost ones in a burst."""
    done = report.committed + report.rolled_back + report.refused + report.unknown
    due = limits.started + done / rate
    wait = min(due - monotonic(), 1 / rate)
    if wait > 0:
        limits.stop.wait(wait)


def _position(conn: psycopg.Connection | None) -> str | None:
    """Where the log is now; None when there is no server to ask."""
    if conn is None or conn.closed:
        return None
    try:
        row = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    except psycopg.OperationalError:
        return None
    return str(row[0]) if row else None


@click.command()
@click.option("--database", default="shop", show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--transactions", type=click.IntRange(min=1), help="End after so many.")
@click.option("--seconds", type=click.FloatRange(min=0), help="End after this time.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Transactions a second at most.")
def main(database: str, seed: int, transactions: int | None, seconds: float | None, rate: float | None) -> None:
    """Write to the shop at random; prints what was done as JSON.

    \b
    Examples:
      python -m examples.shop.workload --seconds 30 --rate 50
      python -m examples.shop.workload --transactions 1000 --seed 7
    """
    info = make_conninfo(Server.from_environment(), database, OWNER, Passwords.load().setup)
    try:
        report = run_workload(
            info,
            seed,
            transactions=transactions,
            seconds=seconds,
            rate=rate,
            progress=lambda s: click.echo(s, err=True),
        )
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
