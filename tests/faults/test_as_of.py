"""500 random cuts through a history that was written under load and kills: at none of them a transaction is torn.

Three writers move money between two tables, in transactions that overlap; the runner is killed again and again. Cuts
are made meanwhile and afterwards, at random positions, and all the money is counted at each, by Spark, DuckDB and
pyiceberg, with the SQL that `headwater as-of` prints.

HEADWATER_AS_OF_CUTS says how many (`make test-as-of`: 500, else 60); with HEADWATER_AS_OF_RESULTS the count of torn
ones goes to benchmarks/results/latest.json.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.results import Measurement, write
from tests.support import cuts
from tests.support.servers import Servers
from tests.support.vaults import Moving, Vaults

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]

CUTS = int(os.environ.get("HEADWATER_AS_OF_CUTS", "60"))
KILLS = max(CUTS // 100, 2)
SEED = 1


@pytest.fixture(scope="module")
def vaults(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vaults]:
    """Two tables, captured and followed."""
    made = Vaults(local_stack, tmp_path_factory.mktemp("vaults"))
    with made.running():
        yield made


# Each cut is a call and three reads; ten minutes, which others have, are enough for a hundred or so.
@pytest.mark.timeout(600 + 8 * CUTS)
def test_no_cut_is_torn(vaults: Vaults) -> None:
    rng, first = random.Random(SEED), cuts.cut(vaults)
    reports, by_duckdb = [first], cuts.by_duckdb([first])
    with ExitStack() as writers:
        for number in range(3):
            writers.enter_context(Moving(vaults.conninfo, SEED + number))
        for _ in range(KILLS):
            time.sleep(rng.uniform(1.0, 6.0))
            vaults.kill()
            vaults.launch()
            newest = cuts.cut(vaults, wait=300.0)  # while it is written to
            made = [
                newest,
                *cuts.random_cuts(vaults, CUTS // KILLS // 2, first["cut"], newest["cut"], rng.random()),
            ]
            # At once: what is printed for DuckDB names a metadata file, of which a table keeps fifty.
            reports, by_duckdb = reports + made, by_duckdb + cuts.by_duckdb(made)
    last = cuts.cut(vaults, wait=300.0)
    made = cuts.random_cuts(vaults, CUTS - len(reports), first["cut"], last["cut"], SEED)
    reports, by_duckdb = reports + made, by_duckdb + cuts.by_duckdb(made)
    assert len({one["cut"] for one in reports}) > CUTS // 2
    found = {
        "duckdb": by_duckdb,
        "pyiceberg": cuts.by_pyiceberg(reports),
        "spark": cuts.by_spark(vaults, reports),
    }
    torn = {engine: cuts.torn(totals) for engine, totals in found.items()}
    if "HEADWATER_AS_OF_RESULTS" in os.environ:
        write([Measurement("as_of_torn_cuts", sum(torn.values()), "cuts", len(reports), command="make test-as-of")])
    assert torn == dict.fromkeys(torn, 0)
