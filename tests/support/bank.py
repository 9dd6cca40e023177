"""A bank: ten accounts in three banks, transfers between them, and the documents that joined views must show of it."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import psycopg

from examples.common import ensure_database
from tests.support.own_tables import OwnTables

BANKS, ACCOUNTS, EACH = 3, 10, 1000
GRAND_TOTAL = f"{ACCOUNTS * EACH}.00"
TRANSFER_SECONDS, RATE = 5.0, 120.0
OWNER = "bank_owner"

TABLES = """
CREATE TABLE banks (bank_id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE accounts (
    account_id int PRIMARY KEY,
    bank_id    int NOT NULL REFERENCES banks,
    balance    numeric(12, 2) NOT NULL CHECK (balance >= 0),
    contract   text NOT NULL
);
ALTER TABLE accounts ALTER contract SET STORAGE EXTERNAL;
"""
VIEWS: dict[str, Any] = {
    "bank": {
        "root": "banks",
        "children": {
            "accounts": {"table": "accounts", "on": {"bank_id": "bank_id"}, "columns": ["account_id", "balance"]}
        },
        "aggregates": {
            name: {"table": "accounts", "on": {"bank_id": "bank_id"}, "value": value}
            for name, value in {
                "total": "sum(balance)",
                "customers": "count(*)",
                "poorest": "min(balance)",
                "richest": "max(balance)",
                "average": "avg(balance)",
            }.items()
        }
        | {"rich": {"table": "accounts", "on": {"bank_id": "bank_id"}, "value": "count(*)", "where": "balance > 1000"}},
    },
    "account": {"root": "accounts", "refs": {"bank": {"table": "banks", "on": {"bank_id": "bank_id"}}}},
}
TRUTH = """
SELECT 'bank' AS view, b.bank_id::text AS id, jsonb_build_object(
    'bank_id', b.bank_id, 'name', b.name,
    'accounts', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('account_id', account_id, 'balance', balance::text)
                                  ORDER BY account_id), '[]') FROM accounts a WHERE a.bank_id = b.bank_id),
    'total', sum(balance)::text, 'customers', count(account_id), 'poorest', min(balance)::text,
    'richest', max(balance)::text, 'average', round(avg(balance), 6)::text,
    'rich', count(*) FILTER (WHERE balance > 1000)
) FROM banks b LEFT JOIN accounts USING (bank_id) GROUP BY b.bank_id
UNION ALL
SELECT 'account', account_id::text, jsonb_build_object('account_id', account_id, 'bank_id', bank_id,
    'balance', balance::text, 'contract', contract,
    'bank', (SELECT to_jsonb(b) FROM banks b WHERE b.bank_id = a.bank_id))
FROM accounts a
"""


def contract(rng: random.Random) -> str:
    """Too large for a page: stored out of line."""
    return rng.randbytes(5_000).hex()


class Bank(OwnTables):
    """The bank behind one pipeline with two sinks."""

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        rng = random.Random(0)
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection, connection.cursor() as cursor:
            cursor.execute(TABLES)
            cursor.executemany("INSERT INTO banks VALUES (%s, %s)", [(n, f"Bank {n}") for n in range(BANKS)])
            rows = [(n, n % BANKS, EACH, contract(rng)) for n in range(ACCOUNTS)]
            cursor.executemany("INSERT INTO accounts VALUES (%s, %s, %s, %s)", rows)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        sinks = {"cache": self.cache(["bank", "account"]), "search": self.search(["bank"])}
        self.write_own(["public.banks", "public.accounts"], VIEWS, sinks, policy={"toast": "allow"})

    def held(self) -> dict[str, Any]:
        """What both sinks show."""
        return {
            "bank": self.in_redis("bank"),
            "bank by search": self.in_elasticsearch("bank"),
            "account": self.in_redis("account"),
        }

    def wanted(self) -> dict[str, Any]:
        """What they should show."""
        truth = self.truth(TRUTH)
        return truth | {"bank by search": truth["bank"]}


class Transfers(threading.Thread):
    """Random transfers, each a transaction of its own, for some seconds; ``with`` waits for their end."""

    def __init__(self, conninfo: str, seed: int) -> None:
        super().__init__()
        self.conninfo, self.rng = conninfo, random.Random(seed)
        self.committed = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        started = time.monotonic()
        try:
            with psycopg.connect(self.conninfo, autocommit=True) as connection:
                while (now := time.monotonic() - started) < TRANSFER_SECONDS:
                    with connection.transaction(force_rollback=self.rng.random() < 0.05):
                        self.transaction(connection)
                    self.committed += 1
                    time.sleep(max(0.0, self.committed / RATE - now))
        except BaseException as error:
            self.error = error

    def transaction(self, connection: psycopg.Connection[Any]) -> None:
        """Mostly a transfer; sometimes an account goes to another bank, or is closed and its money opens a new one."""
        rng = self.rng
        ids = [row[0] for row in connection.execute("SELECT account_id FROM accounts ORDER BY 1")]
        one, other = rng.sample(ids, 2)
        kind = rng.random()
        if kind < 0.1:
            connection.execute("UPDATE accounts SET bank_id = %s WHERE account_id = %s", [rng.randrange(BANKS), one])
        elif kind < 0.15:
            gone = connection.execute("DELETE FROM accounts WHERE account_id = %s RETURNING balance", [one]).fetchone()
            assert gone is not None
            row = [rng.choice((one, max(ids) + 1)), rng.randrange(BANKS), gone[0], contract(rng)]
            connection.execute("INSERT INTO accounts VALUES (%s, %s, %s, %s)", row)
        else:
            share = 1 if kind < 0.2 else rng.random()  # all of it, or a part
            query = "SELECT round(balance * %s::numeric, 2) FROM accounts WHERE account_id = %s"
            found = connection.execute(query, [share, one]).fetchone()
            assert found is not None
            move = "UPDATE accounts SET balance = balance + %s WHERE account_id = %s"
            connection.execute(move, [-found[0], one])
            connection.execute(move, [found[0], other])

    def __enter__(self) -> Transfers:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()
        assert self.error is None, self.error
        assert self.committed > TRANSFER_SECONDS * 10
