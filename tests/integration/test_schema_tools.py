"""The shop is migrated by the tools that people use, Alembic and files for psql, while it runs and is written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from examples.shop import generate
from tests.support.local import ready
from tests.support.scenario import Scenario

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200)]

MIGRATIONS = Path(generate.__file__).with_name("migrations")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    scenario = Scenario(ready(), tmp_path_factory.mktemp("tools"))
    with scenario.running():
        # A generation that is built by itself is shown only after it was compared with the tables.
        scenario.readable(allowed=True)
        yield scenario


def settled(shop: Scenario, said: str) -> None:
    """Once a line was said, nothing is under way, nothing has stopped, and every sink equals Postgres."""
    shop.wait(lambda report: said in shop.log(), 120)
    report = shop.wait(lambda report: not report["evolving"], 500)
    shop.assert_equal()
    assert {flow["state"] for sink in shop.status()["sinks"] for flow in sink["flows"]} == {"running"}, report


def test_alembic(shop: Scenario) -> None:
    with psycopg.connect(shop.conninfo) as connection:
        info = connection.info
        url = f"postgresql+psycopg://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"
    with shop.load(seed=1, seconds=25, rate=30):
        for revision in ("+1", "+1", "+1"):
            command = [sys.executable, "-m", "alembic", "-c", str(MIGRATIONS / "alembic.ini"), "upgrade", revision]
            subprocess.run(command, env={**os.environ, "DATABASE_URL": url}, check=True, timeout=120)
    settled(shop, "column stock changed from integer to bigint")


def test_files_for_psql(shop: Scenario) -> None:
    psql = shutil.which("psql")
    assert psql, "psql is not on this machine (Debian's package postgresql-client)"
    with shop.load(seed=2, seconds=25, rate=30):
        for file in sorted((MIGRATIONS / "sql").glob("*.sql")):
            command = [psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", shop.conninfo, "-f", str(file)]
            subprocess.run(command, check=True, timeout=120)
    settled(shop, "column sku changed from character varying(20) to text")
