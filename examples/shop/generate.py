"""Fill the shop: ``python -m examples.shop.generate``. The same seed and sizes always give the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
import psycopg
from psycopg import sql

from cdc.errors import ConfigError, HeadwaterError
from examples.common import SETUP_LOCK, PostgresEndpoint, Progress, Server, connect, ensure_database
from examples.shop import values as v
from examples.shop.values import Value

OWNER = "shop_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
TABLES = ("customers", "products", "orders", "order_items")
# Of each a column that nobody else's table of that name has.
OURS = {"customers": "shop_opens", "products": "dimensions_cm", "orders": "deliver_from", "order_items": "options"}
STATUSES = ("open", "paid", "sent", "gone back", "déjà vu")
Row = dict[str, Value]


class Sizes(NamedTuple):
    """Rows a table; every order has one to five items."""

    customers: int = 200
    products: int = 100
    orders: int = 500


DEFAULT_SIZES = Sizes()


class Shop(NamedTuple):
    """Rows of the four tables, in the order in which foreign keys allow them to be written."""

    customers: list[Row]
    products: list[Row]
    orders: list[Row]
    order_items: list[Row]


def customer(rng: Random, customer_id: str | None = None) -> Row:
    """One row of customers; its key is random unless given."""
    key = customer_id or v.uuid4(rng)
    name = v.pick(rng, v.TEXT_EDGES, v.words(rng, 2, 3).title(), nullable=False)
    email = f"{rng.choice(v.WORDS)}.{key[:13]}@Example.{rng.choice(('com', 'ORG', 'çom'))}"
    return {
        "customer_id": key,
        "email": email,
        "name": name,
        "language": rng.choice(("en", "de", "fr-CA", "zh", "")),
        "tags": v.pick(rng, v.TEXT_ARRAY_EDGES, v.array(rng.choices(v.WORDS, k=rng.randint(0, 4)))),
        "lucky": v.pick(rng, v.INT_ARRAY_EDGES, f"{{{rng.randint(-99, 99)},{rng.randint(0, 2**31 - 1)}}}"),
        "attributes": v.pick(rng, v.HSTORE_EDGES, f'"colour"=>"{rng.choice(v.WORDS)}", "size"=>"{rng.randint(1, 50)}"'),
        "preferences": v.pick(rng, v.JSONB_EDGES, v.json_object(rng)),
        "profile": v.pick(rng, v.JSON_EDGES, v.json_object(rng)),
        "avatar": v.pick(rng, v.BYTEA_EDGES, "\\x" + rng.randbytes(rng.randint(1, 80)).hex()),
        "born": v.pick(rng, v.DATE_EDGES, v.date(rng)),
        "registered": v.pick(rng, v.TIMESTAMP_EDGES, v.timestamp(rng) + v.zone(rng), nullable=False),
        "last_seen": v.pick(rng, v.TIMESTAMP_EDGES, v.timestamp(rng)),
        "wakes_at": v.pick(rng, v.TIME_EDGES, v.time(rng)),
        "shop_opens": v.pick(rng, v.TIMETZ_EDGES, v.time(rng) + v.zone(rng)),
        "trial": v.pick(rng, v.INTERVAL_EDGES, v.interval(rng)),
        "last_ip": v.pick(rng, v.INET_EDGES, f"192.168.{rng.randrange(256)}.{rng.randrange(256)}"),
        "vip": rng.choice(("true", "false")),
        "rating": v.pick(rng, v.REAL_EDGES, str(round(rng.uniform(0, 5), 2))),
        "affinity": v.pick(rng, v.DOUBLE_EDGES, repr(rng.gauss(0, 1e3))),
        "balance": v.pick(rng, v.NUMERIC_12_2_EDGES, v.money(rng), nullable=False),
        "credit": v.pick(rng, v.NUMERIC_EDGES, f"{rng.randrange(10**9)}.{rng.randrange(10**9)}"),
    }


def product(rng: Random) -> Row:
    """One row of products; product_id is the database's to give, price_gross its to compute."""
    large = rng.random() < 0.4
    sizes = ",".join(f"{rng.randrange(100_000)}.{rng.randrange(1000):03d}" for _ in range(3))
    return {
        "sku": f"{rng.choice(v.WORDS)[:4]}-{rng.getrandbits(48):012x}",
        "name": v.pick(rng, v.TEXT_EDGES, v.words(rng, 1, 3), nullable=False),
        "description": v.large_text(rng) if large else v.pick(rng, v.TEXT_EDGES, v.words(rng, 5, 40)),
        "manual": "\\x" + rng.randbytes(rng.randint(3_000, 9_000)).hex() if rng.random() < 0.2 else None,
        "price": v.money(rng, 1_000_000),
        "weight_kg": v.pick(rng, v.NUMERIC_EDGES, f"{rng.randrange(1000)}.{rng.randrange(10**6)}"),
        "dimensions_cm": v.pick(rng, v.NUMERIC_ARRAY_EDGES, f"{{{sizes}}}"),
        "scores": v.pick(rng, v.DOUBLE_ARRAY_EDGES, f"{{{rng.random()!r},{rng.random()!r}}}"),
        "released_on": v.pick(rng, v.DATE_ARRAY_EDGES, f"{{{v.date(rng)},{v.date(rng)}}}"),
        "categories": v.array(rng.choices(v.WORDS, k=rng.randint(0, 3))),
        "stock": str(rng.randrange(1000)),
        "sold": str(rng.choice((0, rng.randrange(10**6), 2**53 + 1, 2**63 - 1))),
        "discontinued": "true" if rng.random() < 0.1 else "false",
        "details": v.pick(rng, v.JSONB_EDGES, v.json_object(rng)),
    }


def order(rng: Random, customer_id: str) -> Row:
    """One row of orders, without its key."""
    return {
        "customer_id": customer_id,
        "status": rng.choice(STATUSES),
        "placed": v.pick(rng, v.TIMESTAMP_EDGES, v.timestamp(rng) + v.zone(rng), nullable=False),
        "paid": v.pick(rng, v.TIMESTAMP_EDGES, v.timestamp(rng)),
        "deliver_on": v.pick(rng, v.DATE_EDGES, v.date(rng)),
        "deliver_from": v.pick(rng, v.TIME_EDGES, v.time(rng)),
        "keep_for": v.pick(rng, v.INTERVAL_EDGES, v.interval(rng)),
        "source": v.pick(rng, v.INET_EDGES, f"10.{rng.randrange(256)}.{rng.randrange(256)}.1"),
        "total": v.money(rng, 10_000_000),
        "note": v.pick(rng, v.TEXT_EDGES, v.words(rng, 3, 30)),
    }


def order_item(rng: Random, product_id: str) -> Row:
    """One row of order_items, without its order and line."""
    return {
        "product_id": product_id,
        "quantity": str(rng.randint(1, 20)),
        "unit_price": v.money(rng, 100_000),
        "discount": v.pick(rng, v.REAL_EDGES, str(round(rng.random(), 2))),
        "options": v.pick(rng, v.JSONB_EDGES, v.json_object(rng)),
    }


def generate(seed: int = 1, sizes: Sizes = DEFAULT_SIZES) -> Shop:
    """Every row of a shop: a function of ``seed`` and ``sizes`` and nothing else.

    product_id and order_id count from 1, as the database's identity columns will.
    """
    rng = Random(seed)
    customers = [customer(rng) for _ in range(sizes.customers)]
    products = [product(rng) for _ in range(sizes.products)]
    orders: list[Row] = []
    items: list[Row] = []
    for number in range(1, sizes.orders + 1 if customers and products else 1):
        buyer = rng.choice(customers)["customer_id"]
        orders.append({"order_id": str(number), **order(rng, str(buyer))})
        for line in range(1, rng.randint(1, 5) + 1):
            item = order_item(rng, str(rng.randint(1, len(products))))
            items.append({"order_id": str(number), "line": str(line), **item})
    return Shop(customers, products, orders, items)


def create_tables(conn: psycopg.Connection) -> None:
    """Make the four tables (and the extensions and types they need) where they are missing; commits.

    Raises:
        ConfigError: a table of such a name is another one: somebody's own shop.
    """
    conn.execute("SELECT pg_advisory_xact_lock(%s)", [SETUP_LOCK])  # CREATE … IF NOT EXISTS is not safe in a race
    for table, column in OURS.items():
        # Without the column it is not ours: the schema would alter it, and give it indexes.
        query = "SELECT to_regclass(%(table)s) IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute"
        query += " WHERE attrelid = to_regclass(%(table)s) AND attname = %(column)s)"
        if conn.execute(query.encode(), {"table": table, "column": column}).fetchone() == (True,):
            raise ConfigError(
                f"The database {conn.info.dbname} has a table {table} of its own, which is not the example's.",
                means="nothing of it was changed; the example wants a database for itself",
                fix="--database with another name: it is created when missing",
            )
    conn.execute(SCHEMA.read_text(encoding="utf-8"))
    conn.commit()


def fill(conn: psycopg.Connection, seed: int = 1, sizes: Sizes = DEFAULT_SIZES) -> int:
    """Write a generated shop into empty tables; tables that hold anything are left alone.

    Args:
        conn: connection that may write to the shop's tables; the rows are committed in one transaction.
        seed: of the generator.
        sizes: rows a table.

    Returns:
        rows written; 0 when there were some already.
    """
    with conn.transaction():
        conn.execute("LOCK TABLE customers, products, orders, order_items IN SHARE ROW EXCLUSIVE MODE")
        if any(conn.execute(query).fetchone() for query in _any_row()):
            return 0
        shop = generate(seed, sizes)
        for table, rows in zip(TABLES, shop, strict=True):
            copy_rows(conn, table, rows)
        conn.execute("SELECT setval(pg_get_serial_sequence('orders', 'order_id'), %s)", [max(1, len(shop.orders))])
    return sum(map(len, shop))


def _any_row() -> Iterator[sql.Composed]:
    return (sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table)) for table in TABLES)


def copy_rows(conn: psycopg.Connection, table: str, rows: list[Row]) -> None:
    """COPY rows, all with the same columns, into a table."""
    if not rows:
        return
    columns = sql.SQL(", ").join(map(sql.Identifier, rows[0]))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), columns)
    with conn.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))


def load(
    endpoint: PostgresEndpoint,
    database: str = "shop",
    seed: int = 1,
    sizes: Sizes = DEFAULT_SIZES,
    progress: Progress = lambda line: None,
) -> str:
    """Create database, roles and tables, and fill them if they are empty.

    Returns:
        connection string of the owner, for ``run_workload``.

    Raises:
        ConfigError: the database has tables of these names that are not the example's.
        SourceError: Postgres can't be reached.
    """
    info = ensure_database(endpoint, database, OWNER)
    with connect(info) as conn:
        create_tables(conn)
        written = fill(conn, seed, sizes)
    progress(f"{database}: {written:,} rows written" if written else f"{database}: has rows already, nothing changed")
    return info


@click.command()
@click.option("--database", default="shop", show_default=True, help="Database; created when missing.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same rows.")
@click.option("--customers", type=click.IntRange(0, 1_000_000), default=DEFAULT_SIZES.customers, show_default=True)
@click.option("--products", type=click.IntRange(0, 1_000_000), default=DEFAULT_SIZES.products, show_default=True)
@click.option("--orders", type=click.IntRange(0, 1_000_000), default=DEFAULT_SIZES.orders, show_default=True)
def main(database: str, seed: int, customers: int, products: int, orders: int) -> None:
    """Fill the shop example (HEADWATER_POSTGRES_HOST, _PORT, …; default: the local stack).

    \b
    Examples:
      python -m examples.shop.generate
      python -m examples.shop.generate --database big --customers 10000 --orders 50000
    """
    try:
        load(Server.from_environment(), database, seed, Sizes(customers, products, orders), click.echo)
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
