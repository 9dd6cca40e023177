"""Fill the orders: ``python -m examples.analytics.load``. The same rows every time; a second run changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

from examples.common import PostgresEndpoint
from examples.filling import Row, command, fill

OWNER = "analytics_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
CUSTOMERS, ORDERS, DAYS = 40, 300, 30
CITIES = (("Lyon", "FR"), ("Porto", "PT"), ("Ghent", "BE"), ("Łódź", "PL"), ("Malmö", "SE"), ("Lima", "PE"))
PRODUCTS = ("lamp", "chair", "kettle", "scarf", "atlas", "violin")
STATUSES = ("open", "paid", "paid", "paid", "cancelled")


def rows(seed: int = 1) -> Iterator[tuple[str, list[Row]]]:
    """(table, its rows), parents first."""
    rng = Random(seed)
    yield "cities", [(n, *city) for n, city in enumerate(CITIES, 1)]
    cities = (None, *range(1, len(CITIES) + 1))
    yield "customers", [(n, f"customer {n}", rng.choice(cities)) for n in range(1, CUSTOMERS + 1)]
    orders, lines = list[Row](), list[Row]()
    for n in range(1, ORDERS + 1):
        total = Decimal(0)
        for line in range(1, rng.randint(1, 4) + 1):
            quantity, price = rng.randint(1, 5), Decimal(rng.randrange(100, 20_000)) / 100
            lines.append((n, line, rng.choice(PRODUCTS), quantity, price))
            total += quantity * price
        day = date(2026, 10, 1) + timedelta(days=rng.randrange(DAYS))
        orders.append((n, rng.randint(1, CUSTOMERS), day, rng.choice(STATUSES), total))
    yield "orders", orders
    yield "order_lines", lines


def load(endpoint: PostgresEndpoint, database: str = "analytics", owner: str = OWNER) -> str:
    """See ``examples.filling.fill``; returns the owner's connection string."""
    return fill(endpoint, database, owner, SCHEMA, rows)


main = command("analytics", load, "the orders", f"{ORDERS} orders of {CUSTOMERS} customers")

if __name__ == "__main__":
    main()
