"""Money moves between accounts while the runner is killed: at rest every bank's total is exact, and none is lost.

The tables keep REPLICA IDENTITY DEFAULT under `policy.toast: allow`: an update's record carries neither the old row nor
the large contract that it left alone. Both have to come from the row store.

HEADWATER_BANK_SEEDS says how many seeds run (`make test`: 1, `make test-bank`: 20).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.bank import ACCOUNTS, GRAND_TOTAL, TRANSFER_SECONDS, Bank, Transfers
from tests.support.servers import Servers

# As a whole, for the sake of what all of them share.
pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.sampled(part=0)]

SEEDS = int(os.environ.get("HEADWATER_BANK_SEEDS", "1"))


@pytest.fixture(scope="module")
def bank(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """Ten accounts in three banks, captured and followed."""
    made = Bank(local_stack, tmp_path_factory.mktemp("bank"))
    with made.running():
        yield made


def assert_exact(bank: Bank) -> None:
    wanted = bank.wanted()
    assert bank.settled(bank.held, wanted) == wanted, bank.log()
    bank.wait(lambda report: all(sink["lag_events"] == 0 for sink in report["sinks"]))
    assert bank.held() == wanted, "it was right, and then it was not"
    totals = [one["total"] for one in wanted["bank"].values() if one["total"] is not None]
    with psycopg.connect(bank.conninfo) as connection:
        asked = connection.execute("SELECT sum(x)::text FROM unnest(%s::numeric[]) x", [totals]).fetchone()
    assert asked == (GRAND_TOTAL,)


def test_the_tables_log_no_old_rows(bank: Bank) -> None:
    with psycopg.connect(bank.conninfo) as connection:
        identities = connection.execute(
            "SELECT relname, relreplident::text FROM pg_class WHERE oid IN ('banks'::regclass, 'accounts'::regclass)"
        ).fetchall()
        large = connection.execute(
            "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'accounts'::regclass"
        ).fetchone()
    assert dict(identities) == {"banks": "d", "accounts": "d"}
    assert large is not None and large[0] >= ACCOUNTS * 10_000
    assert_exact(bank)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_cent_is_lost_when_the_runner_is_killed(bank: Bank, seed: int) -> None:
    with Transfers(bank.conninfo, seed):
        time.sleep(random.Random(seed).uniform(0.3, TRANSFER_SECONDS - 1))
        bank.kill()
    bank.start()
    assert_exact(bank)


def test_every_sink_equals_postgres_in_the_end(bank: Bank) -> None:
    bank.assert_closed()
    bank.assert_equal(seconds=30)
    assert not bank.dead_letters()
