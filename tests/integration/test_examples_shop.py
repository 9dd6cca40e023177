"""The shop: its generator is a function of its seed, its values reach Postgres as they are, its workload survives."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic, sleep

import psycopg
import pytest

from cdc.errors import ConfigError, SourceError
from examples.common import Server, connect, conninfo, drop_database, ensure_database
from examples.shop.generate import OWNER, TABLES, Sizes, fill, generate, load
from examples.shop.workload import run_workload

pytestmark = pytest.mark.stack
SMALL = Sizes(customers=60, products=40, orders=80)


@pytest.fixture
def shops(server: Server) -> Iterator[list[str]]:
    """Connection strings of two shops with the same rows."""
    names = [f"shop_test_{secrets.token_hex(4)}" for _ in range(2)]
    try:
        yield [load(server, name, seed=5, sizes=SMALL) for name in names]
    finally:
        for name in names:
            drop_database(server, name)


@pytest.fixture
def shop(shops: list[str]) -> str:
    return shops[0]


def content(info: str) -> dict[str, list[tuple[str]]]:
    """Every row of every table as text, in a fixed order."""
    with connect(info) as conn:
        return {table: conn.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall() for table in TABLES}


def test_generator_is_a_function_of_seed_and_sizes() -> None:
    assert generate(7, SMALL) == generate(7, SMALL)
    assert generate(7, SMALL) != generate(8, SMALL)
    assert [len(rows) for rows in generate(7, SMALL)[:3]] == list(SMALL)


@pytest.mark.parametrize("theirs", ["products (product_id int, description text)", "orders (customer_id int)"])
def test_somebodys_own_shop_is_left_as_it_is(server: Server, theirs: str) -> None:
    name = f"shop_test_{secrets.token_hex(4)}"
    info = ensure_database(server, name, OWNER)
    relations = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    try:
        with connect(info, autocommit=True) as conn:
            conn.execute(f"CREATE TABLE {theirs}".encode())
            with pytest.raises(ConfigError, match=f"{name} has a table {theirs.partition(' ')[0]} of its own"):
                load(server, name, sizes=SMALL)
            assert conn.execute(relations).fetchall() == [(theirs.partition(" ")[0],)]
    finally:
        drop_database(server, name)


def test_values_reach_postgres_as_generated(shop: str) -> None:
    rows = generate(5, SMALL)
    with connect(shop) as conn:
        for table, expected in zip(TABLES, rows, strict=True):
            assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (len(expected),)
        for key, name, profile, credit in conn.execute(
            "SELECT customer_id::text, name, profile::text, credit::text FROM customers"
        ):
            row = next(row for row in rows.customers if row["customer_id"] == key)
            assert (name, profile) == (row["name"], row["profile"])
            assert (credit is None) == (row["credit"] is None)


def test_the_edges_are_really_there(server: Server) -> None:
    name = f"shop_test_{secrets.token_hex(4)}"
    wanted = {
        "NaN numeric": "SELECT count(*) FROM customers WHERE credit = 'NaN'",
        "NaN real": "SELECT count(*) FROM customers WHERE rating = 'NaN'",
        "infinite double": "SELECT count(*) FROM customers WHERE affinity IN ('Infinity', '-Infinity')",
        "infinite date": "SELECT count(*) FROM customers WHERE born IN ('infinity', '-infinity')",
        "year 10000": "SELECT count(*) FROM customers WHERE last_seen >= '10000-01-01' AND isfinite(last_seen)",
        "microseconds": "SELECT count(*) FROM customers WHERE date_part('microseconds', last_seen)::int % 1000 <> 0",
        "empty text": "SELECT count(*) FROM customers WHERE name = ''",
        "four bytes": "SELECT count(*) FROM customers WHERE octet_length(name) > char_length(name) * 2",
        "null": "SELECT count(*) FROM customers WHERE tags IS NULL",
        "null in array": "SELECT count(*) FROM customers WHERE array_position(tags, NULL) IS NOT NULL",
        "NUL in json": r"SELECT count(*) FROM customers WHERE profile::text LIKE '%\\u0000%'",
        "24:00": "SELECT count(*) FROM customers WHERE wakes_at = '24:00'",
        "padded": "SELECT count(*) FROM customers WHERE octet_length(language) = 5 AND language = 'en'",
        "large value": "SELECT count(*) FROM products WHERE octet_length(description) > 8000",
        "generated": "SELECT count(*) FROM products WHERE price_gross = round(price * 1.19, 2)",
    }
    try:
        with connect(load(server, name, seed=1, sizes=Sizes(customers=600, products=50, orders=10))) as conn:
            counts = {what: conn.execute(query).fetchone() for what, query in wanted.items()}
    finally:
        drop_database(server, name)
    assert not [what for what, row in counts.items() if row is None or row[0] == 0], counts


def test_large_values_are_stored_out_of_line(shop: str) -> None:
    with connect(shop) as conn:
        query = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'products'::regclass"
        row = conn.execute(query).fetchone()
    assert row is not None and row[0] > 100_000


def test_filling_twice_changes_nothing(shop: str) -> None:
    before = content(shop)
    with connect(shop) as conn:
        assert fill(conn, seed=6, sizes=SMALL) == 0
    assert content(shop) == before


def test_workload_is_the_same_every_time(shops: list[str]) -> None:
    first, second = (run_workload(info, 3, transactions=400) for info in shops)
    assert (first.committed, first.rolled_back, first.rows) == (second.committed, second.rolled_back, second.rows)
    assert content(shops[0]) == content(shops[1])
    assert content(shops[0]) != {}
    assert first.committed + first.rolled_back + first.refused == 400
    assert first.rolled_back > 0
    assert set(first.rows) == {"insert", "update", "delete", "key change"}
    assert first.last_lsn is not None


def test_another_seed_does_something_else(shops: list[str]) -> None:
    run_workload(shops[0], 3, transactions=50)
    run_workload(shops[1], 4, transactions=50)
    assert content(shops[0]) != content(shops[1])


def test_workload_keeps_its_rate_and_its_time(shop: str) -> None:
    report = run_workload(shop, 1, seconds=3, rate=20)
    assert 3 <= report.seconds < 4.5
    assert 40 <= report.committed + report.rolled_back + report.refused <= 62


def test_workload_survives_lost_connections(server: Server, shop: str) -> None:
    stop = Event()
    with ThreadPoolExecutor(1) as pool, connect(conninfo(server, "postgres"), autocommit=True) as admin:
        running = pool.submit(run_workload, shop, 2, stop=stop, rate=200)
        killed = 0
        deadline = monotonic() + 30
        while killed < 4 and monotonic() < deadline:
            sleep(0.4)
            killed += admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [psycopg.conninfo.conninfo_to_dict(shop)["dbname"]],
            ).rowcount
        sleep(0.5)
        stop.set()
        report = running.result(timeout=30)
    assert killed >= 4
    assert report.reconnects >= 3
    assert report.committed > 20  # wanted are 200 a second; a busy machine has less


def test_two_workloads_at_once_end_consistent(shop: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        reports = [job.result(60) for job in [pool.submit(run_workload, shop, n, transactions=150) for n in (11, 12)]]
    assert all(report.committed > 100 for report in reports)
    with connect(shop) as conn:
        orphans = "SELECT count(*) FROM order_items i LEFT JOIN orders o USING (order_id) WHERE o.order_id IS NULL"
        assert conn.execute(orphans).fetchone() == (0,)


def test_workload_gives_up_with_a_clear_error() -> None:
    with pytest.raises(SourceError, match="No server for 1 s"):
        run_workload("host=127.0.0.1 port=1 dbname=x connect_timeout=1", 1, transactions=1, patience=1)
    with pytest.raises(ConfigError, match="must end"):
        run_workload("host=127.0.0.1", 1)
