"""What `check` says of a slot whose connector stands still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from connectors.connector import RunningConnector
from connectors.database.slot import Slot
from connectors.preflight import slot as module
from connectors.preflight.model import Site
from connectors.rest import Status
from tests.support.connector_cases import pipeline


def test_a_connector_that_says_running_and_reads_nothing_is_not_sent_to_apply() -> None:
    """`apply` leaves one alone that says so: whoever did as he was told had done nothing."""
    made = pipeline()
    kept = made.policy.wal_bytes
    one = Slot("pgoutput", made.source.database, False, None, 6, "extended", kept, None)
    running = RunningConnector({}, Status("RUNNING", ("RUNNING",), ""), {"lsn": 5})
    site = cast(Site, SimpleNamespace(pipeline=made))
    full, unread = list(module._state(site, one, None, running))
    assert "makes Postgres keep" in full.message and "nobody reads from slot" in unread.message
    for finding in (full, unread):
        fix = finding.fix
        assert "restart the connector in Kafka Connect" in fix and "apply FILE` restarts" not in fix, fix
    assert "headwater apply" not in unread.fix
