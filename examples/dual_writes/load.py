"""The load: two clients that change a shelf of products, with the timing that hurts.

It runs twice, the same both times. First the clients write to the stores themselves (``stores`` given); then they write
to the database only (``stores=None``) and headwater does the rest.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psycopg

from cdc.errors import HeadwaterError
from examples.dual_writes.stores import Document, Stores

SCHEMA = Path(__file__).with_name("schema.sql")
# Nothing in a race may wait for ever: if one client fails, the other must hear of it.
WAIT_S = 30.0

SHELF = tuple(
    (number, name, f"{number * 10}.00", 100)
    for number, name in enumerate(
        ("anvil", "bellows", "chisel", "drill", "easel", "file", "gimlet", "hammer", "iron", "jack", "knife"), start=1
    )
)


@dataclass(frozen=True)
class Write:
    """One statement of a client; ``query`` gives the row back (nothing for a delete)."""

    key: int
    query: str
    values: tuple[object, ...]

    @classmethod
    def price(cls, key: int, price: str) -> Write:
        """Set a price."""
        return cls(key, "UPDATE products SET price = %s WHERE id = %s RETURNING name, price::text, stock", (price, key))

    @classmethod
    def sale(cls, key: int) -> Write:
        """Sell one."""
        query = "UPDATE products SET stock = stock - 1 WHERE id = %s RETURNING name, price::text, stock"
        return cls(key, query, (key,))

    @classmethod
    def new(cls, key: int, name: str) -> Write:
        """Put a new product on the shelf."""
        query = "INSERT INTO products VALUES (%s, %s, 99, 7) RETURNING name, price::text, stock"
        return cls(key, query, (key, name))

    @classmethod
    def delete(cls, key: int) -> Write:
        """Take a product off the shelf."""
        return cls(key, "DELETE FROM products WHERE id = %s", (key,))


@dataclass(frozen=True)
class Race:
    """Alice commits, then Bob commits and updates the stores, and only then Alice gets to update the stores."""

    alice: Write
    bob: Write
    story: str


CALM = (Write.price(1, "11.50"), Write.sale(2), Write.price(3, "33.00"), Write.sale(3))
RACES = (
    Race(Write.price(4, "45.00"), Write.price(4, "39.00"), "two prices at once"),
    Race(Write.price(5, "55.00"), Write.price(5, "49.00"), "two prices at once"),
    Race(Write.sale(6), Write.sale(6), "two sales at once"),
    Race(Write.price(7, "77.00"), Write.delete(7), "a price, and the product is deleted"),
)
CRASHES = (
    (Write.price(8, "88.00"), "killed after the UPDATE's commit"),
    (Write.delete(9), "killed after the DELETE's commit"),
    (Write.new(12, "lathe"), "killed after the INSERT's commit"),
)


def reset(conninfo: str) -> None:
    """Put the shelf back to where it began, row by row and as ordinary changes."""
    with psycopg.connect(conninfo) as conn:
        conn.execute(SCHEMA.read_text(encoding="utf-8"))
        conn.execute("DELETE FROM products WHERE id <> ALL(%s)", [[row[0] for row in SHELF]])
        with conn.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO products VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE"
                " SET name = excluded.name, price = excluded.price, stock = excluded.stock",
                SHELF,
            )


def in_database(conninfo: str) -> dict[int, Document]:
    """Every row of the shelf."""
    with psycopg.connect(conninfo) as conn:
        rows = conn.execute("SELECT id, name, price::text, stock FROM products").fetchall()
    return {key: document(rest) for key, *rest in rows}


def document(row: Sequence[object]) -> Document:
    """What the stores hold of a row."""
    return dict(zip(("name", "price", "stock"), row, strict=True))


def commit(conninfo: str, write: Write) -> Document | None:
    """First half of a dual write: the database. Returns the row as committed, None after a delete."""
    with psycopg.connect(conninfo) as conn:
        cursor = conn.execute(write.query, write.values)
        row = cursor.fetchone() if cursor.description else None
    return document(row) if row else None


def publish(stores: Stores | None, write: Write, row: Document | None) -> None:
    """Second half of a dual write: the other stores."""
    if stores is None:
        return
    if row is None:
        stores.remove(write.key)
    else:
        stores.put(write.key, row)


def run(conninfo: str, stores: Stores | None, tell: Callable[[str], None]) -> None:
    """The whole load, in its one order."""
    for write in CALM:
        publish(stores, write, commit(conninfo, write))
    tell(f"{len(CALM)} writes, one after the other: nothing special")
    for race in RACES:
        run_race(conninfo, stores, race)
        tell(f"race on product {race.alice.key}: {race.story}")
    for number, (write, story) in enumerate(CRASHES):
        run_crash(conninfo, number, by_hand=stores is not None)
        tell(f"crash at product {write.key}: {story}, by SIGKILL")


def run_race(conninfo: str, stores: Stores | None, race: Race) -> None:
    """Two threads, each with its own connection, held in the unlucky order by events: no lock forbids that order."""
    alice_committed, bob_published = Event(), Event()

    def alice() -> None:
        row = commit(conninfo, race.alice)
        alice_committed.set()
        _wait(bob_published)  # a garbage collection, a slow packet, a busy core: this is all it takes
        publish(stores, race.alice, row)

    def bob() -> None:
        _wait(alice_committed)
        row = commit(conninfo, race.bob)
        publish(stores, race.bob, row)
        bob_published.set()

    with ThreadPoolExecutor(2) as pool:
        for client in [pool.submit(alice), pool.submit(bob)]:
            client.result()


def _wait(event: Event) -> None:
    if not event.wait(WAIT_S):
        raise HeadwaterError(f"The other client did not answer for {WAIT_S:.0f} s.")


def run_crash(conninfo: str, number: int, *, by_hand: bool) -> None:
    """A client process that is killed between its commit and its write to the stores."""
    command = [
        sys.executable,
        "-m",
        "examples.dual_writes.victim",
        str(number),
        "by-hand" if by_hand else "database-only",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdin is not None and victim.stdout is not None
        victim.stdin.write(conninfo + "\n")  # not an argument: it holds a password, and arguments are public
        victim.stdin.flush()
        said = victim.stdout.readline().strip()
        victim.send_signal(signal.SIGKILL)
        code = victim.wait(WAIT_S)
    if said != "committed" or code != -signal.SIGKILL:
        raise HeadwaterError(f"The client that was to be killed said {said!r} and ended with {code}.")
