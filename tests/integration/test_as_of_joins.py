"""Rows as they were when the row above says, end to end: prices at the time of a sale, beside the price of today.

The test writes the source, so it knows which version every sale must show: of each change it notes a moment before and
one after. Commits have milliseconds; the moments that are asked for are further away from them than that.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
import pytest
from redis import Redis
from ruamel.yaml import YAML

from cdc.log.client import Kafka
from cdc.pipeline import load
from connectors.topics import FOR_EVER
from examples.filling import fill
from examples.social import load as social
from tests.support.joined import Documents, Joined
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

SCHEMA = """
CREATE TABLE products (shop int, id int, name text NOT NULL, price numeric(8, 2), PRIMARY KEY (shop, id));
CREATE TABLE stores (id int PRIMARY KEY, city text);
CREATE TABLE sales (id int PRIMARY KEY, shop int, product int, store int, sold_at timestamptz, noted timestamp);
"""
VIEWS = """
sale:
  root: sales
  columns: [id]
  refs:
    product: {table: products, on: {shop: shop, product: id}, as_of: sold_at, columns: [name, price]}
    city: {table: stores, on: {store: id}, as_of: noted, value: city}
  fields:
    dear: "product.price > 100"
store:
  root: stores
  columns: [id]
  children:
    sales:
      table: sales
      on: {id: store}
      columns: [id]
      refs:
        price: {table: products, on: {shop: shop, product: id}, as_of: sold_at, value: price}
"""
# Further than a commit's time can be wrong: it has milliseconds.
APART = 0.02
PRODUCTS, SHOPS = 4, 2


class Was(NamedTuple):
    """A version: between which moments it began, and what it is; None when the row was deleted."""

    before: float
    after: float
    row: dict[str, Any] | None


class Shop(Joined):
    """Sales with the product and the store's city as they were."""

    def prepare(self, *_: object) -> None:
        schema = self.folder / "schema.sql"
        schema.write_text(SCHEMA)
        self.was: dict[tuple[str, str], list[Was]] = {}
        self.sales: dict[int, tuple[Any, ...]] = {}
        self.conninfo = fill(self.stack.endpoints, self.name, social.OWNER, schema, lambda: iter(()))
        with psycopg.connect(self.conninfo) as connection:
            for shop in range(SHOPS):
                for number in range(PRODUCTS):
                    row = {"name": f"p{number}", "price": f"{number * 50}.00"}
                    connection.execute(
                        "INSERT INTO products VALUES (%s, %s, %s, %s)", (shop, number, row["name"], row["price"])
                    )
                    self.was["product", f"{shop}|{number}"] = [Was(0, 0, row)]
            for store in (1, 2):
                connection.execute("INSERT INTO stores VALUES (%s, %s)", (store, f"city {store}"))
                self.was["store", str(store)] = [Was(0, 0, {"city": f"city {store}"})]
        self.sell(random.Random(1), 30)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        yaml = YAML(typ="safe")
        document = yaml.load((self.folder_of(social) / "pipeline.yaml").read_text())
        cache = document["sinks"]["cache"] | {"views": [self.view("sale"), self.view("store")]}
        cache["key_prefix"] = f"{self.name}:"
        search = {"type": "elasticsearch", "url": self.stack.endpoints.elasticsearch_url, "views": [self.view("sale")]}
        lake = self.folder / "lake"
        lake.mkdir(exist_ok=True)
        warehouse = {
            "type": "iceberg",
            "catalog_uri": str(lake / "catalog.db"),
            "warehouse": str(lake),
            "namespace": self.name,
            "trigger_seconds": 1,
            "views": [self.view("sale")],
        }
        views = yaml.load(VIEWS)
        document |= {
            "name": self.name,
            "views": {self.view(name): view for name, view in views.items()},
            "sinks": {"cache": cache, "search": search, "warehouse": warehouse},
            "engine": {"state_dir": str(self.folder / "state")},
        }
        tables = [f"public.{name}" for name in ("products", "stores", "sales")]
        document["source"] |= {"database": self.name, "setup_user": social.OWNER, "tables": tables}
        with self.file.open("w") as out:
            YAML().dump(document, out)

    # -- what the shop does -------------------------------------------------------------------------------------------

    def change(self, kind: str, key: str, sql: str, row: dict[str, Any] | None) -> None:
        """One change of a product or a store, and when it was."""
        time.sleep(APART)
        before = time.time()
        self.execute(sql)
        after = time.time()
        time.sleep(APART)
        self.was[kind, key].append(Was(before, after, row))

    def reprice(self, rng: random.Random) -> None:
        """A product gets another price, goes, or comes back."""
        shop, number = rng.randrange(SHOPS), rng.randrange(PRODUCTS)
        key, where = f"{shop}|{number}", f"WHERE shop = {shop} AND id = {number}"
        known = self.was["product", key][-1].row
        if known is None:
            row = {"name": f"p{number}'", "price": "1.00"}
            sql = f"INSERT INTO products VALUES ({shop}, {number}, 'p{number}''', 1)"
        elif rng.random() < 0.25:
            row, sql = None, f"DELETE FROM products {where}"
        else:
            row = known | {"price": f"{rng.randrange(0, 20000) / 100:.2f}"}
            # Twice in one transaction: the last one counts.
            sql = f"UPDATE products SET price = 0 {where}; UPDATE products SET price = {row['price']} {where}"
        self.change("product", key, sql, row)

    def move(self, rng: random.Random) -> None:
        """A store moves."""
        store, city = rng.choice((1, 2)), f"city {rng.randrange(1000)}"
        self.change("store", str(store), f"UPDATE stores SET city = '{city}' WHERE id = {store}", {"city": city})

    def sell(self, rng: random.Random, count: int) -> None:
        """Sales of now, of before, of long before and of tomorrow; some of nothing that is, and some of no time."""
        with psycopg.connect(self.conninfo) as connection:
            for number in range(len(self.sales), len(self.sales) + count):
                shop, product = rng.randrange(SHOPS), rng.choice((*range(PRODUCTS), None, 99))
                at = [self.moment(rng), self.moment(rng)]
                self.sales[number] = (number, shop, product, rng.choice((1, 2)), *at)
                moments = [None if one is None else datetime.fromtimestamp(one, UTC) for one in at]
                plain = moments[1] and moments[1].replace(tzinfo=None)
                values = (*self.sales[number][:4], moments[0], plain)
                connection.execute("INSERT INTO sales VALUES (%s, %s, %s, %s, %s, %s)", values)

    def moment(self, rng: random.Random) -> float | None:
        """A moment that no change is near."""
        ends = [one.after for versions in self.was.values() for one in versions[1:]]
        around = rng.choice([time.time(), *ends[-12:]])
        return rng.choice((None, 86_400.0, around + APART / 2, around + APART / 2, time.time() + 86_400))

    # -- what documents must be ---------------------------------------------------------------------------------------

    def shown(self, kind: str, key: str, at: float | None) -> dict[str, Any] | None:
        """The version of a moment; what is older than all is the first: a snapshot has read it."""
        versions = self.was.get((kind, key), [])
        if at is None or not versions:
            return None
        assert all(one.before <= 0 or not one.before - APART / 4 < at < one.after + APART / 4 for one in versions)
        return [one for one in versions if one.after <= at][-1].row

    def wanted(self) -> dict[str, Documents]:
        """All documents."""
        sales, stores = Documents(), {str(store): {"id": store, "sales": []} for store in (1, 2)}
        for number, shop, product, store, sold, noted in sorted(self.sales.values()):
            was = self.shown("product", f"{shop}|{product}", sold)
            city = self.shown("store", str(store), noted)
            dear = None if was is None else float(was["price"]) > 100
            sales[str(number)] = {"id": number, "product": was, "city": city and city["city"], "dear": dear}
            stores[str(store)]["sales"].append({"id": number, "price": was and was["price"]})
        return {"sale": sales, "store": stores}

    def settle(self) -> dict[str, Documents]:
        """Wait until all sinks show it."""
        wanted = self.wanted()

        def held() -> dict[str, Any]:
            return {
                "cache": {view: self.in_redis(view) for view in wanted},
                "search": self.in_elasticsearch("sale"),
            }

        want = {"cache": wanted, "search": wanted["sale"]}
        assert self.settled(held, want) == want
        return wanted


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Captured and followed."""
    stack = servers()
    stack.up()
    made = Shop(stack, tmp_path_factory.mktemp("shop"))
    with made.running():
        yield made


def test_what_a_sale_shows_stays_what_it_was(shop: Shop) -> None:
    first = shop.settle()
    assert any(one["product"] for one in first["sale"].values())
    rng = random.Random(2)
    for _ in range(12):
        rng.choice((shop.reprice, shop.reprice, shop.move))(rng)
        shop.sell(rng, 4)
    after = shop.settle()
    prices = {one["product"]["price"] for one in after["sale"].values() if one["product"]}
    assert len(prices) > PRODUCTS  # of former prices too


def test_it_is_the_same_after_a_kill_and_after_a_rebuild_from_the_log(shop: Shop) -> None:
    rng = random.Random(3)
    for number in range(12):
        rng.choice((shop.reprice, shop.move))(rng)
        shop.sell(rng, 3)
        if number == 6:
            shop.kill()
    shop.start()
    before = shop.settle()
    shop.readable(allowed=True)
    shop.run("rebuild", "cache", "--auto")
    shop.readable(allowed=False)
    assert shop.settle() == before


def test_verify_reads_it_in_the_log_and_explain_shows_the_version(shop: Shop) -> None:
    wanted = shop.settle()["sale"]
    report = shop.assert_equal()
    assert {view["view"] for sink in report["sinks"] for view in sink["views"]} == {
        shop.view("sale"),
        shop.view("store"),
    }
    key = next(key for key, sale in wanted.items() if sale["product"] and sale["city"])
    shop.readable(allowed=True)
    found = json.loads(shop.run("explain", "search", key, "--expected", "--json"))
    shop.readable(allowed=False)
    assert found["expected"]["differences"] == [] and found["row_store"]["equal"]
    assert not shop.dead_letters()


def test_a_wrong_version_is_found_and_repaired(shop: Shop) -> None:
    wanted = shop.settle()["sale"]
    key = next(key for key, sale in wanted.items() if sale["product"])
    name = f"{shop.name}:{shop.view('sale')}:{key}"
    with Redis.from_url(shop.stack.endpoints.redis_cache_url) as redis:
        held = redis.get(name)
        assert held is not None
        redis.set(name, held.replace(b'"price":"', b'"price":"7'))
    shop.readable(allowed=True)
    report = json.loads(shop.run("verify", "--sink", "cache", "--repair", "--wait", "60", "--json", ok=(0, 2)))
    shop.readable(allowed=False)
    assert key in json.dumps(report)
    shop.settle()
    shop.assert_equal("--sink", "cache", seconds=60)


def test_an_erasure_that_would_take_other_rows_versions_is_refused(shop: Shop) -> None:
    shop.readable(allowed=True)
    done = shop._call("erase", ("public.stores", "9"))
    shop.readable(allowed=False)
    assert done.returncode == 1 and "all versions of the rows of public.stores are kept" in done.stderr + done.stdout


def test_the_topic_keeps_all_versions(shop: Shop) -> None:
    pipeline = load(shop.file, shop.environment())
    names = {pipeline.topic(f"public.{table}"): table for table in ("products", "stores", "sales")}
    found = Kafka(pipeline).describe([*names])
    kept = {names[name] for name, topic in found.items() if topic.config["min.compaction.lag.ms"] == FOR_EVER}
    assert kept == {"products", "stores"} and len(found) == len(names)
    assert "topic" not in shop.run("plan", ok=(0, 2))
