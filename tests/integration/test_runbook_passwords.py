"""docs/runbooks.md: every password is changed on the servers while an application writes; nothing is lost by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.postgres import Elsewhere, own_postgres
from tests.support.redis_server import redis_servers
from tests.support.scenario import Scenario
from tests.support.servers import Servers
from tests.support.source import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@dataclass
class Secretive(Scenario):
    """Its commands see these variables too."""

    secrets: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.secrets}


def test_every_password_is_changed_under_load(local_stack: Servers, tmp_path: Path) -> None:
    """`run` says which are refused and goes on with the others; with the new ones all go on where they were."""
    with own_postgres() as server, redis_servers(tmp_path) as start_redis:
        url = start_redis("--requirepass", "old-cache")
        extra = {"sinks.cache.url": url, "sinks.cache.password": "${CACHE_PASSWORD}"}
        scenario = Secretive(
            Elsewhere(local_stack, server),
            tmp_path,
            extra=extra,
            sinks=("search", "cache"),
            secrets={"CACHE_PASSWORD": "old-cache"},
        )
        try:
            scenario.prepare()
            scenario.start()
            with scenario.load(seed=81, seconds=60, rate=20):
                with redis.Redis.from_url(url, password="old-cache") as cache:
                    cache.config_set("requirepass", "new-cache")
                    cache.client_kill_filter(_type="normal", skipme=True)
                scenario.secrets["CACHE_PASSWORD"] = "new-cache"
                # First while changes come: what has nothing to write does not notice.
                report = scenario.wait(lambda now: state(now, "cache") in ("failed", "retrying"))
                assert "password" in str(report["sinks"]).lower()
                assert state(report, "search") == "running"
                assert scenario.runner is not None and scenario.runner.poll() is None
                with server.connect() as root:
                    for role, variable in (("headwater", "SOURCE"), (owner(scenario), "SETUP")):
                        root.execute(f"ALTER ROLE {role} PASSWORD 'new-{role}'".encode())
                        scenario.secrets[f"HEADWATER_{variable}_PASSWORD"] = f"new-{role}"
                    # Sessions that are open outlive a change; the worst is that none does.
                    root.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'headwater'")
                refused = "warning: Postgres refused"
                assert eventually(lambda: refused in scenario.log(), 60), scenario.log()
                assert 'password authentication failed for user "headwater"' in scenario.log()
                scenario.run("apply")  # the connector's
                scenario.stop()
                scenario.start()
            scenario.conninfo = make_conninfo(scenario.conninfo, password=scenario.secrets["HEADWATER_SETUP_PASSWORD"])
            scenario.assert_equal()
            assert not scenario.dead_letters()
        finally:
            scenario.stop()
            scenario.close()


def state(report: dict[str, object], sink: str) -> object:
    [found] = [one for one in report["sinks"] if one["sink"] == sink]  # type: ignore[attr-defined]
    return found["state"]


def owner(scenario: Scenario) -> str:
    """The role that owns the tables."""
    return str(conninfo_to_dict(scenario.conninfo)["user"])
