"""The steps that the random workload's transactions are made of: each writes some rows and counts them by kind.

Targets are found by an index probe (the first key at or after a random one): the choice depends on the seed and the
table's content only, costs the same in a large table, and needs no list of keys that a crash would make wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import psycopg
from psycopg import sql

from examples.shop import generate as g
from examples.shop import values as v

Connection = psycopg.Connection
Count = Counter[str]
Step = Callable[[Connection, Random, Count], None]


def insert(conn: Connection, table: str, row: g.Row, returning: str | None = None) -> str | None:
    """INSERT one row; returns the text of ``returning``."""
    names = sql.SQL(", ").join(map(sql.Identifier, row))
    marks = sql.SQL(", ").join(sql.Placeholder() * len(row))
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), names, marks)
    if returning is None:
        conn.execute(statement, list(row.values()))
        return None
    answer = conn.execute(statement + sql.SQL(" RETURNING {}::text").format(sql.Identifier(returning)), [*row.values()])
    found = answer.fetchone()
    return found[0] if found else None


def update(conn: Connection, table: str, key: tuple[str, str], changes: g.Row, count: Count) -> None:
    """UPDATE the row whose column ``key[0]`` is ``key[1]``."""
    pairs = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in changes)
    template = sql.SQL("UPDATE {} SET {} WHERE {} = {}")
    statement = template.format(sql.Identifier(table), pairs, sql.Identifier(key[0]), sql.Placeholder())
    count["update"] += conn.execute(statement, [*changes.values(), key[1]]).rowcount


def some(rng: Random, row: g.Row, without: tuple[str, ...] = ()) -> g.Row:
    """One to four columns of a row."""
    names = [name for name in row if name not in without]
    return {name: row[name] for name in rng.sample(names, min(len(names), rng.randint(1, 4)))}


def one(conn: Connection, query: str, *values: object) -> tuple[str, ...] | None:
    """The first row of a query."""
    row: tuple[str, ...] | None = conn.execute(query, values).fetchone()
    return row


def a_customer(conn: Connection, rng: Random) -> str | None:
    """A customer's key."""
    query = "SELECT customer_id::text FROM customers WHERE customer_id >= %s ORDER BY customer_id LIMIT 1"
    row = one(conn, query, v.uuid4(rng)) or one(conn, query, "00000000-0000-0000-0000-000000000000")
    return row[0] if row else None


def a_number(conn: Connection, rng: Random, table: str, column: str) -> str | None:
    """A key of a table whose key is a number."""
    top = one(conn, f"SELECT max({column}) FROM {table}")  # noqa: S608 (names of this module)
    limit = int(top[0]) if top and top[0] is not None else 0
    query = f"SELECT {column}::text FROM {table} WHERE {column} >= %s ORDER BY {column} LIMIT 1"  # noqa: S608
    row = one(conn, query, rng.randint(0, limit))
    return row[0] if row else None


def an_item(conn: Connection, rng: Random) -> tuple[str, str] | None:
    """An order item's key."""
    order_id = a_number(conn, rng, "order_items", "order_id")
    if order_id is None:
        return None
    query = "SELECT order_id::text, line::text FROM order_items WHERE order_id = %s ORDER BY line DESC LIMIT 1"
    row = one(conn, query, order_id)
    return (row[0], row[1]) if row else None


def insert_customer(conn: Connection, rng: Random, count: Count) -> None:
    """A new customer."""
    insert(conn, "customers", g.customer(rng))
    count["insert"] += 1


def insert_product(conn: Connection, rng: Random, count: Count) -> None:
    """A new product."""
    insert(conn, "products", g.product(rng))
    count["insert"] += 1


def insert_order(conn: Connection, rng: Random, count: Count) -> None:
    """An order with its items: rows of two tables in one transaction."""
    customer_id = a_customer(conn, rng)
    if customer_id is None:
        return
    order_id = insert(conn, "orders", g.order(rng, customer_id), returning="order_id")
    count["insert"] += 1
    for line in range(1, rng.randint(1, 5) + 1):
        product_id = a_number(conn, rng, "products", "product_id")
        if product_id is not None:
            insert(conn, "order_items", {"order_id": order_id, "line": str(line), **g.order_item(rng, product_id)})
            count["insert"] += 1


def update_customer(conn: Connection, rng: Random, count: Count) -> None:
    """Some columns of a customer."""
    if customer_id := a_customer(conn, rng):
        changes = some(rng, g.customer(rng, customer_id), without=("customer_id", "email"))
        update(conn, "customers", ("customer_id", customer_id), changes, count)


def update_product(conn: Connection, rng: Random, count: Count) -> None:
    """Some columns of a product, never the large ones: their values stay unchanged out of line (TOAST)."""
    if product_id := a_number(conn, rng, "products", "product_id"):
        changes = some(rng, g.product(rng), without=("sku", "description", "manual"))
        update(conn, "products", ("product_id", product_id), changes, count)


def update_product_twice(conn: Connection, rng: Random, count: Count) -> None:
    """The same row twice in one transaction: only the second may be left."""
    if product_id := a_number(conn, rng, "products", "product_id"):
        for _ in range(2):
            changes: g.Row = {"stock": str(rng.randrange(1000)), "price": v.money(rng)}
            update(conn, "products", ("product_id", product_id), changes, count)


def update_description(conn: Connection, rng: Random, count: Count) -> None:
    """A product's large text: another large one, a small one, or NULL."""
    if product_id := a_number(conn, rng, "products", "product_id"):
        text = rng.choice((v.large_text(rng), v.words(rng, 1, 9), "", None))
        update(conn, "products", ("product_id", product_id), {"description": text}, count)


def update_many(conn: Connection, rng: Random, count: Count) -> None:
    """A tenth of all products in one statement."""
    query = "UPDATE products SET stock = %s WHERE product_id %% 10 = %s"
    count["update"] += conn.execute(query, [rng.randrange(1000), rng.randrange(10)]).rowcount


def update_nothing(conn: Connection, rng: Random, count: Count) -> None:
    """An UPDATE that changes no value: it is in the log all the same."""
    if product_id := a_number(conn, rng, "products", "product_id"):
        count["update"] += conn.execute("UPDATE products SET name = name WHERE product_id = %s", [product_id]).rowcount


def update_order(conn: Connection, rng: Random, count: Count) -> None:
    """Some columns of an order; now and then it changes hands."""
    order_id = a_number(conn, rng, "orders", "order_id")
    customer_id = a_customer(conn, rng)
    if order_id is not None and customer_id is not None:
        changes = some(rng, g.order(rng, customer_id))
        update(conn, "orders", ("order_id", order_id), changes, count)


def update_item(conn: Connection, rng: Random, count: Count) -> None:
    """An item's quantity."""
    if item := an_item(conn, rng):
        query = "UPDATE order_items SET quantity = %s, discount = %s WHERE order_id = %s AND line = %s"
        count["update"] += conn.execute(query, [rng.randint(1, 99), rng.random(), *item]).rowcount


def delete_item(conn: Connection, rng: Random, count: Count) -> None:
    """One item."""
    if item := an_item(conn, rng):
        count["delete"] += conn.execute("DELETE FROM order_items WHERE order_id = %s AND line = %s", item).rowcount


def delete_order(conn: Connection, rng: Random, count: Count) -> None:
    """An order; its items go with it (cascade)."""
    if order_id := a_number(conn, rng, "orders", "order_id"):
        count["delete"] += conn.execute("DELETE FROM order_items WHERE order_id = %s", [order_id]).rowcount
        count["delete"] += conn.execute("DELETE FROM orders WHERE order_id = %s", [order_id]).rowcount


def delete_customer(conn: Connection, rng: Random, count: Count) -> None:
    """A customer; the orders and their items go too (cascade, uncounted)."""
    if customer_id := a_customer(conn, rng):
        count["delete"] += conn.execute("DELETE FROM customers WHERE customer_id = %s", [customer_id]).rowcount


def delete_product(conn: Connection, rng: Random, count: Count) -> None:
    """A product that no order names."""
    if product_id := a_number(conn, rng, "products", "product_id"):
        unused = "NOT EXISTS (SELECT FROM order_items i WHERE i.product_id = p.product_id)"
        query = f"DELETE FROM products p WHERE product_id = %s AND {unused}"  # noqa: S608
        count["delete"] += conn.execute(query, [product_id]).rowcount


def replace_item(conn: Connection, rng: Random, count: Count) -> None:
    """Delete an item and insert another with the same key, in one transaction."""
    item = an_item(conn, rng)
    product_id = a_number(conn, rng, "products", "product_id")
    if item is None or product_id is None:
        return
    count["delete"] += conn.execute("DELETE FROM order_items WHERE order_id = %s AND line = %s", item).rowcount
    insert(conn, "order_items", {"order_id": item[0], "line": item[1], **g.order_item(rng, product_id)})
    count["insert"] += 1


def change_customer_key(conn: Connection, rng: Random, count: Count) -> None:
    """Another primary key for a customer; it cascades to the foreign key of every order."""
    if customer_id := a_customer(conn, rng):
        query = "UPDATE customers SET customer_id = %s WHERE customer_id = %s"
        count["key change"] += conn.execute(query, [v.uuid4(rng), customer_id]).rowcount


def change_order_key(conn: Connection, rng: Random, count: Count) -> None:
    """Another primary key for an order; it cascades into the composite primary key of its items."""
    if order_id := a_number(conn, rng, "orders", "order_id"):
        query = "UPDATE orders SET order_id = nextval(pg_get_serial_sequence('orders', 'order_id')) WHERE order_id = %s"
        count["key change"] += conn.execute(query, [order_id]).rowcount


def swap_lines(conn: Connection, rng: Random, count: Count) -> None:
    """Two items of an order trade their keys, by way of a third that nobody ever sees."""
    order_id = a_number(conn, rng, "order_items", "order_id")
    rows = conn.execute("SELECT line FROM order_items WHERE order_id = %s ORDER BY line LIMIT 2", [order_id]).fetchall()
    if len(rows) == 2:
        (first,), (second,) = rows
        for old, new in ((first, -1), (second, first), (-1, second)):
            query = "UPDATE order_items SET line = %s WHERE order_id = %s AND line = %s"
            count["key change"] += conn.execute(query, [new, order_id, old]).rowcount


class Weighted(NamedTuple):
    """A step and how often it comes, relative to the others."""

    step: Step
    weight: int


STEPS = (
    Weighted(insert_customer, 8),
    Weighted(insert_product, 4),
    Weighted(insert_order, 16),
    Weighted(update_customer, 14),
    Weighted(update_product, 14),
    Weighted(update_product_twice, 4),
    Weighted(update_description, 5),
    Weighted(update_many, 1),
    Weighted(update_nothing, 2),
    Weighted(update_order, 10),
    Weighted(update_item, 6),
    Weighted(delete_item, 5),
    Weighted(delete_order, 4),
    Weighted(delete_customer, 2),
    Weighted(delete_product, 2),
    Weighted(replace_item, 3),
    Weighted(change_customer_key, 3),
    Weighted(change_order_key, 3),
    Weighted(swap_lines, 2),
)
