"""Preflight: is the system ready for change data capture? One check a file.

A *finding* says that the system is not as it should be, with the remedy. An *error* says that a check could not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg

from cdc.errors import HeadwaterError, SourceError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from connectors.postgres import Connection, connect
from connectors.preflight import (
    brokers,
    capacity,
    captured,
    disk,
    failover,
    outbox,
    primary_keys,
    publication,
    reading,
    registry,
    replication,
    rights,
    role,
    server,
    slot,
    tables,
    toast,
    transactions,
    wal_level,
    worker,
)
from connectors.preflight.model import Check, Finding, Level, Site, Skipped
from connectors.rest import ConnectClient

CHECKS: tuple[Check, ...] = (
    server.CHECK,
    wal_level.CHECK,
    capacity.CHECK,
    tables.CHECK,
    captured.CHECK,
    primary_keys.CHECK,
    outbox.CHECK,
    role.CHECK,
    replication.CHECK,
    rights.CHECK,
    toast.CHECK,
    reading.CHECK,
    publication.CHECK,
    slot.CHECK,
    transactions.CHECK,
    failover.CHECK,
    disk.CHECK,
    brokers.CHECK,
    worker.CHECK,
    registry.CHECK,
)
# A check waits for a server that is away no longer than an operator would.
PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """What one check came to.

    Attributes:
        check: which.
        findings: what is not as it should be; empty when all is well.
        error: why the check could not run, else "".
        skipped: why it was not run, else "".
    """

    check: Check
    findings: tuple[Finding, ...] = ()
    error: str = ""
    skipped: str = ""

    @property
    def state(self) -> str:
        """``ok``, ``note``, ``warning``, ``error`` (a finding), ``skipped``, or ``unknown`` (it could not run)."""
        if self.error:
            return "unknown"
        if self.skipped:
            return "skipped"
        worst = [level.value for level in Level if any(finding.level is level for finding in self.findings)]
        return worst[0] if worst else "ok"


def preflight(pipeline: Pipeline) -> Iterator[Answer]:
    """Run every check, each on its own: one that fails to run does not keep the others from running.

    Args:
        pipeline: the loaded file.

    Yields:
        An answer per check, as it comes. Nothing is changed anywhere.
    """
    with _site(pipeline) as site:
        for check in CHECKS:
            answer = run_check(check, site)
            if answer.state in ("error", "unknown") or site.failed & set(check.needs):
                site.failed.add(check.name)
            yield answer


def run_check(check: Check, site: Site) -> Answer:
    """Run one check."""
    blocked = [name for name in check.needs if name in site.failed]
    if blocked:
        return Answer(check, skipped=f"needs «{blocked[0]}»")
    try:
        return Answer(check, tuple(check.run(site)))
    except Skipped as reason:
        return Answer(check, skipped=str(reason))
    except HeadwaterError as error:
        return Answer(check, error=error.what)
    except psycopg.Error as error:
        return Answer(check, error=str(error).splitlines()[0])


@contextmanager
def _site(pipeline: Pipeline) -> Iterator[Site]:
    with ExitStack() as stack:
        client = ConnectClient(pipeline.connect, patience_seconds=PATIENCE_SECONDS)
        stack.callback(client.close)
        source, setup = _open(stack, pipeline, setup=False), _open(stack, pipeline, setup=True)
        yield Site(pipeline, source, setup, Kafka(pipeline, PATIENCE_SECONDS), client)


def _open(stack: ExitStack, pipeline: Pipeline, *, setup: bool) -> Connection | SourceError:
    try:
        return stack.enter_context(connect(pipeline.source, setup=setup))
    except SourceError as error:
        return error


__all__ = ["CHECKS", "Answer", "Check", "Finding", "Level", "Site", "Skipped", "preflight", "run_check"]
