"""A joined view in three sinks at once, a table of a warehouse among them: what the table holds, as documents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import orjson
import psycopg
from ruamel.yaml import YAML

from cdc.pipeline import load
from cdc.types import canonical_result
from examples.filling import fill
from examples.social.load import OWNER
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.rows import VERSION_COLUMN
from spark.join.engine import FAN_OUT
from tests.support.joined import Documents, Joined
from truth.digest import single

SCHEMA = """
CREATE TABLE countries (id int PRIMARY KEY, name text);
CREATE TABLE cities (id int PRIMARY KEY, name text, country_id int);
CREATE TABLE customers (id int PRIMARY KEY, name text, city_id int, born date);
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount numeric(10,2), weight real, at timestamptz,
  note jsonb, tags text[]);
CREATE TABLE lines (order_id bigint, line int, item text, count int, PRIMARY KEY (order_id, line));
"""
VIEW = """
root: customers
columns: [id, {name: called}, born, city_id]
refs:
  city:
    table: cities
    on: {city_id: id}
    columns: [{name: town}]
    refs: {country: {table: countries, on: {country_id: id}, value: name}}
children:
  orders:
    table: orders
    on: {id: customer_id}
    order_by: id
    columns: [id, amount, weight, at, note, tags]
    children: {lines: {table: lines, on: {id: order_id}, order_by: line, columns: [line, item]}}
    aggregates: {items: {table: lines, on: {id: order_id}, value: sum(count)}}
aggregates:
  bought: {table: orders, on: {id: customer_id}, value: count(*)}
  spent: {table: orders, on: {id: customer_id}, value: sum(amount)}
  mean: {table: orders, on: {id: customer_id}, value: avg(amount)}
  first: {table: orders, on: {id: customer_id}, value: min(at)}
  heaviest: {table: orders, on: {id: customer_id}, value: max(weight)}
  dear: {table: orders, on: {id: customer_id}, value: count(*), where: amount > 50}
"""
# The same with Spark SQL over the assembled row.
FIELDS = """
fields:
  label: "concat(name, ' of ', coalesce(city.name, 'nowhere'))"
  rate: "spent / nullif(bought, 0)"
  day: "to_date(first)"
where: "name <> 'hidden'"
"""
CITIES, ORDERS = 8, 400
# More than a batch makes at once.
CUSTOMERS = FAN_OUT + 300


def rows() -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """What is there before capture: most customers live in one city."""
    random = Random(7)
    yield "countries", [(1, "Malta"), (2, "Peru"), (3, None)]
    yield "cities", [(n, f"city {n}", random.choice((1, 2, 3, None))) for n in range(1, CITIES + 1)]
    yield (
        "customers",
        [(n, f"c{n}", 1 if n <= FAN_OUT + 200 else random.randint(1, 10), "1970-02-03") for n in range(CUSTOMERS)],
    )
    yield "orders", [order(random, n) for n in range(ORDERS)]
    yield "lines", [(n, line, f"item {line}", line) for n in range(0, ORDERS, 3) for line in (1, 2)]


def order(random: Random, number: int) -> tuple[Any, ...]:
    """A row of orders."""
    at = random.choice(("2026-01-02 03:04:05.678Z", "1969-12-31 23:59:59Z", None))
    note = random.choice(('{"a": [1, null, "é"]}', "null", None))
    amount, weight = random.choice(("12.50", "99.99", "0.00", None)), random.choice((0.1, 1e10, None))
    return number, random.randint(0, 40), amount, weight, at, note, random.choice(("{a,b}", "{}", None))


class Tabled(Joined):
    """The tables above under the view above, with Spark SQL and without, in an index, a cache and a warehouse."""

    owner = OWNER

    def prepare(self, *_: object) -> None:
        schema = self.folder / "schema.sql"
        schema.write_text(SCHEMA)
        self.conninfo = fill(self.stack.endpoints, self.name, self.owner, schema, rows)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        ends, yaml = self.stack.endpoints, YAML(typ="safe")
        plain, computed = self.view("customer"), self.view("rated")
        lake = self.folder / "warehouse"
        document = {
            "version": 1,
            "name": self.name,
            "source": {
                "host": ends.postgres_host,
                "port": ends.postgres_port,
                "database": self.name,
                "user": "headwater",
                "password": "${HEADWATER_SOURCE_PASSWORD}",
                "setup_user": self.owner,
                "setup_password": "${HEADWATER_SETUP_PASSWORD}",
                "tables": ["public.*"],
            },
            "kafka": {"bootstrap": ends.kafka},
            "connect": {"url": ends.connect_url},
            "row_store": {"url": ends.redis_store_url},
            "views": {plain: yaml.load(VIEW), computed: yaml.load(VIEW + FIELDS)},
            "sinks": {
                "cache": {
                    "type": "redis",
                    "url": ends.redis_cache_url,
                    "key_prefix": f"{self.name}:",
                    "views": [plain, computed],
                },
                "warehouse": {
                    "type": "iceberg",
                    "catalog_uri": str(lake / "catalog.db"),
                    "warehouse": str(lake),
                    "namespace": self.name,
                    "trigger_seconds": 1,
                    "views": [plain, computed],
                },
            },
            "engine": {"state_dir": str(self.folder / "state")},
        }
        self.write_file(document)

    def change(self, random: Random, count: int) -> None:
        """Some transactions on all tables: rows come, change, move to other parents and go."""
        with psycopg.connect(self.conninfo) as connection:
            for _ in range(count):
                with connection.transaction():
                    for _ in range(random.choice((1, 1, 3))):
                        connection.execute(*statement(random))

    # -- what the table holds -----------------------------------------------------------------------------------------

    def lake(self) -> Any:
        """The warehouse's part of the pipeline file."""
        return load(self.file, self.environment()).sinks["warehouse"]

    def in_table(self, view: str) -> Documents:
        """id -> document, each row once."""
        found: Documents = {}
        for batch in iceberg.scan(self.lake(), "hw_warehouse", self.view(view)):
            for row in batch.to_pylist():
                assert row.pop(VERSION_COLUMN) > 0
                assert str(row["id"]) not in found, f"{row['id']} is there twice"
                found[str(row["id"])] = as_document(row)
        return found

    def in_cache(self, view: str) -> Documents:
        """The same of the cache."""
        return {key: singled(document) for key, document in self.in_redis(view).items()}

    def plant(self, key: str, *, gone: int, ghost: int) -> None:
        """Wrong rows in the table of the plain view, written past us."""
        words = [str(self.file), "warehouse", self.view("customer"), key, str(gone), str(ghost)]
        argv = [sys.executable, "-m", "tests.support.wrong_rows", *words]
        subprocess.run(argv, check=True, timeout=180, env={**os.environ, **self.environment()})

    def commits(self, view: str) -> list[dict[str, str]]:
        """The summaries of the table's snapshots, oldest first."""
        sink = self.lake()
        with iceberg.open_catalog(sink, "hw_warehouse") as catalog:
            table = iceberg.load_table(catalog, sink, self.view(view))
            return [dict(one.summary.additional_properties) for one in table.metadata.snapshots if one.summary]


def as_document(row: dict[str, Any]) -> Any:
    """A row of the table as JSON has it: what is JSON there is text in the table."""
    for one in row["orders"]:
        one["note"] = None if one["note"] is None else orjson.loads(one["note"])
    return singled(orjson.loads(orjson.dumps(canonical_result(row))))


def singled(document: Any) -> Any:
    """A real as the number that it is, in however many digits it was written."""
    orders = [one | {"weight": single(one["weight"])} for one in document["orders"]]
    return document | {"orders": orders, "heaviest": single(document["heaviest"])}


# How often, what, and with which values: a key, another one, an order's number, a city.
CHANGES: tuple[tuple[int, str, str], ...] = (
    (15, "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", "order"),
    (10, "DELETE FROM orders WHERE id = %s", "number"),
    (20, "UPDATE orders SET customer_id = %s, amount = amount + 1 WHERE id = %s", "one number"),
    (10, "UPDATE orders SET weight = weight * 2, note = '[1.50]', at = at + '1 day' WHERE id = %s", "number"),
    (8, "UPDATE lines SET item = item || '!', count = count + 1 WHERE order_id = %s", "number"),
    (2, "DELETE FROM lines WHERE order_id = %s", "number"),
    (10, "UPDATE customers SET city_id = %s, name = name || '!' WHERE id = %s", "city one"),
    (5, "UPDATE customers SET name = 'hidden' WHERE id = %s", "one"),
    (
        5,
        "UPDATE customers SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM customers WHERE id = %s)",
        "one two one",
    ),
    (8, "DELETE FROM customers WHERE id = %s", "one"),
    (4, "INSERT INTO customers VALUES (%s, 'new', %s, NULL) ON CONFLICT DO NOTHING", "one city"),
    (3, "UPDATE cities SET name = name || '+' WHERE id = %s", "city"),
)


def statement(random: Random) -> tuple[bytes, tuple[Any, ...]]:
    """A change of one row, or of few."""
    ((_, said, wanted),) = random.choices(CHANGES, [weight for weight, *_ in CHANGES])
    number = random.randint(0, ORDERS + 50)
    values = {"one": random.randint(0, 45), "two": random.randint(0, 45), "city": random.randint(2, CITIES)}
    values["number"] = number
    given = order(random, number) if wanted == "order" else tuple(values[name] for name in wanted.split())
    return said.encode(), given
