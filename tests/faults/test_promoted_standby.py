"""A primary dies and its standby takes its place: followed where that loses nothing, refused by name where it would."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.errors import ConnectUnavailable, SourceChanged
from connectors.apply import apply
from connectors.database.slot import read_slot
from connectors.database.timeline import is_our_stop
from connectors.gaps.promotion import follow
from connectors.gaps.source_gaps import check_source
from connectors.preflight import preflight
from connectors.rest import ConnectClient
from connectors.servers import open_servers
from connectors.snapshots.snapshot import wait_snapshot
from examples.shop.workload import run_workload
from tests.support.postgres import Elsewhere, OwnPostgres, own_postgres
from tests.support.scenario import Scenario
from tests.support.servers import Servers
from tests.support.source import eventually, source_database
from tests.support.standby import SLOT, standby_of

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]


def guard(primary: OwnPostgres) -> None:
    """What docs/operations.md asks of a primary."""
    with primary.connect() as root:
        root.execute(f"ALTER SYSTEM SET synchronized_standby_slots = '{SLOT}'")
        root.execute("SELECT pg_reload_conf()")


def findings(pipeline: Any) -> str:
    """What the check «failover» says."""
    [answer] = [answer for answer in preflight(pipeline) if answer.check.name == "failover"]
    return "\n".join([answer.state, *(finding.message for finding in answer.findings)])


def test_a_promoted_standby_is_followed_and_every_sink_equals_it(local_stack: Servers, tmp_path: Path) -> None:
    """Writers are at work when the primary is killed: what it alone had is in no sink, and nothing else is missing."""
    with own_postgres() as primary, standby_of(primary) as standby:
        guard(primary)
        scenario = Scenario(Elsewhere(local_stack, primary), tmp_path, extra={"source.heartbeat_seconds": 1})  # type: ignore[arg-type]
        with scenario.running():
            assert eventually(lambda: standby.has_copied(f"headwater_{scenario.name}"), 60)
            with scenario.load(seed=41, seconds=4):
                pass

            def write() -> None:
                with contextlib.suppress(psycopg.Error, OSError):
                    run_workload(scenario.conninfo, 42, seconds=60, rate=200)

            writer = threading.Thread(target=write)
            writer.start()
            time.sleep(3)
            primary.kill()
            writer.join()
            standby.take_over()
            said = "has failed over to timeline 2, and is followed"
            assert eventually(lambda: said in scenario.log(), 60), scenario.log()
            with scenario.load(seed=43, seconds=4):
                pass
            scenario.assert_equal()
            # Once more from the beginning, by what is on the disk.
            scenario.stop()
            with scenario.load(seed=44, seconds=3):
                pass
            scenario.start()
            scenario.assert_equal()
            planned = scenario.run("plan", ok=(0, 2))  # the right to read, which is taken away here, and no more
            assert "slot " not in planned and "connector " not in planned


def test_a_runner_that_was_cut_while_it_followed_lets_the_connector_go_on_at_the_next_attempt(
    local_stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka Connect does not answer for a moment, with the connector stopped: that stop is nobody's wish."""
    with own_postgres() as primary, standby_of(primary) as standby:
        guard(primary)
        with source_database(primary.endpoints(local_stack.endpoints)) as source:
            source.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'old')")
            pipeline = source.pipeline("public.t")
            apply(pipeline)
            assert wait_snapshot(pipeline, seconds=90).done
            assert eventually(lambda: standby.has_copied(pipeline.source.slot), 60)
            remembered = check_source(pipeline, None)
            primary.kill()
            standby.take_over()
            source.execute("INSERT INTO t VALUES (2, 'new')")
            for verb in ("offset", "resume"):

                def fails(*_: Any) -> Any:
                    raise ConnectUnavailable("no answer")

                with monkeypatch.context() as away, pytest.raises(ConnectUnavailable):
                    away.setattr(ConnectClient, verb, fails)
                    check_source(pipeline, remembered, follow)
                with open_servers(pipeline) as servers:
                    status = servers.connect.status(servers.connector)
                    assert status is not None and status.connector == "STOPPED"
                    assert is_our_stop(servers.source, servers.names)
            seen = check_source(pipeline, remembered, follow)
            assert seen is not None and seen.timeline == 2
            topic = pipeline.topic("public.t")
            assert eventually(lambda: {"id": 2, "v": "new"} in source.latest(topic).values(), 60)
            with open_servers(pipeline) as servers:
                assert not is_our_stop(servers.source, servers.names), "who stops it from now on wants that"


def test_a_connector_that_was_ahead_of_the_promoted_standby_is_not_followed(local_stack: Servers) -> None:
    """Without synchronized_standby_slots: a commit is in the topics that the promoted server never had."""
    with own_postgres() as primary, standby_of(primary) as standby:
        endpoints = primary.endpoints(local_stack.endpoints)
        with source_database(endpoints) as source:
            source.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'old')")
            pipeline = source.pipeline("public.t")
            apply(pipeline)
            assert wait_snapshot(pipeline, seconds=90).done
            topic, slot = pipeline.topic("public.t"), pipeline.source.slot
            assert eventually(lambda: standby.has_copied(slot), 60)
            told = findings(pipeline)
            assert told.startswith("warning") and "synchronized_standby_slots is empty" in told
            guard(primary)
            assert eventually(lambda: findings(pipeline) == "ok", 60), findings(pipeline)
            with primary.connect() as root:
                root.execute("ALTER SYSTEM RESET synchronized_standby_slots")
                root.execute("SELECT pg_reload_conf()")
            remembered = check_source(pipeline, None)
            with primary.connect() as root:
                end = root.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            with standby.connect() as root:
                reached = "SELECT pg_last_wal_replay_lsn() >= %s"
                assert eventually(lambda: root.execute(reached, end).fetchone() == (True,))
            standby.stop()
            source.execute("UPDATE t SET v = 'undone'")
            assert eventually(lambda: {"id": 1, "v": "undone"} in source.latest(topic).values())
            primary.kill()
            standby.take_over()
            source.execute("UPDATE t SET v = 'new'", "INSERT INTO t VALUES (2, 'new')")
            # The connector comes back by itself, and reads nothing here.
            with open_servers(pipeline) as servers:
                servers.connect.restart(servers.connector)
                time.sleep(25)  # it tries again every ten seconds
                seen = read_slot(servers.source, slot)
            assert seen is not None and not seen.active and seen.synced
            for known, follows, why in (
                (remembered, follow, "can't be followed: the connector has read up to"),
                (remembered, None, "is on timeline 2, not 1"),
                (None, follow, "timeline 1 is what was followed"),
            ):
                with pytest.raises(SourceChanged, match=why):
                    check_source(pipeline, known, follows)
            with pytest.raises(SourceChanged, match="timeline 1 is what was followed"):
                apply(pipeline)
            assert {"id": 2, "v": "new"} not in source.latest(topic).values()
