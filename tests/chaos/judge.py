"""The verdict: every row of every sink against SQL, by `headwater verify` and by plain queries of our own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg
from elasticsearch import Elasticsearch
from elasticsearch.helpers import scan
from redis import Redis

from sinks.iceberg import catalogue as iceberg
from tests.chaos.world import World
from tests.support import bank

VERIFY_SECONDS = 240
# Of each order: how many pieces, what they come to, how many lines.
ORDERS = """
SELECT o.order_id::text, sum(i.quantity)::text, sum(i.quantity * i.unit_price)::text, count(i.line)
FROM orders o LEFT JOIN order_items i USING (order_id) GROUP BY o.order_id
"""
COUNTS = {
    "search/customer": "SELECT count(*) FROM customers",
    "search/product": "SELECT count(*) FROM products WHERE NOT discontinued",
    "search/order_item": "SELECT count(*) FROM order_items",
    "cache/customer": "SELECT count(*) FROM customers",
    "warehouse/accounts": "SELECT count(*) FROM bank.accounts",
}


@dataclass
class Verdict:
    """What was found.

    Attributes:
        wrong: rows that are missing or not as they should be.
        ghosts: rows that should not be there.
        rows: how many were compared.
        words: what differs, a line each.
    """

    wrong: int = 0
    ghosts: int = 0
    rows: int = 0
    words: list[str] = field(default_factory=list)

    def note(self, where: str, missing: Any, extra: Any, changed: Any) -> None:
        """Count differences of one view, by key."""
        self.wrong += len(missing) + len(changed)
        self.ghosts += len(extra)
        for kind, keys in (("missing", missing), ("extra", extra), ("changed", changed)):
            if keys:
                self.words.append(f"{where}: {len(keys)} {kind}: {', '.join(sorted(map(str, keys))[:10])}")


def compare(verdict: Verdict, where: str, wanted: Mapping[str, Any], held: Mapping[str, Any]) -> None:
    """Two maps from key to value."""
    verdict.rows += len(wanted)
    changed = [key for key in wanted.keys() & held.keys() if wanted[key] != held[key]]
    verdict.note(where, wanted.keys() - held.keys(), held.keys() - wanted.keys(), changed)


def judge(world: World, verdict: Verdict) -> None:
    """Compare everything; nobody writes any more."""
    _verify(world, verdict)
    _bank(world, verdict)
    _orders(world, verdict)
    _counts(world, verdict)


def _verify(world: World, verdict: Verdict) -> None:
    report = json.loads(world.run("verify", "--json", "--wait", str(VERIFY_SECONDS), ok=(0, 2)))
    for sink in report["sinks"]:
        for view in sink.get("views", ()):
            verdict.rows += view["expected"]
            named = [view[kind] for kind in ("missing", "extra", "changed")]
            verdict.note(f"verify {sink['sink']}/{view['view']}", *named)
            unnamed = view["differences"] - sum(map(len, named))
            verdict.wrong += max(0, unnamed) + view["undecided"] + view["invisible"]
    if not report["equal"] and not verdict.words:
        verdict.wrong += 1
        verdict.words.append(f"verify says that they are not equal: {json.dumps(report)[:1000]}")


def _documents(world: World, sink: str, view: str) -> dict[str, Any]:
    """id -> document, as readers get them, past the proxies."""
    endpoints = world.stack.endpoints
    if sink == "search":
        with Elasticsearch(endpoints.elasticsearch_url) as client:
            client.indices.refresh(index=view)
            return {hit["_id"]: hit["_source"] for hit in scan(client, index=view, size=2000)}
    prefix = f"shop:{view}:"
    with Redis.from_url(endpoints.redis_cache_url) as redis:
        keys: list[bytes] = list(redis.scan_iter(match=f"{prefix}*", count=1000))
        values: Any = redis.mget(keys) if keys else []
    pairs = zip(keys, values, strict=True)
    # Not by a parser that takes a number for a float: Postgres' own may be larger than any.
    return {key.decode().removeprefix(prefix): json.loads(value) for key, value in pairs if value is not None}


def _bank(world: World, verdict: Verdict) -> None:
    """Every bank and account as SQL shows them; no cent was made or lost, in any sink."""
    with psycopg.connect(world.bank_conninfo) as connection:
        rows = connection.execute(bank.TRUTH.encode()).fetchall()
    truth: dict[str, dict[str, Any]] = {"bank": {}, "account": {}}
    for view, key, document in rows:
        truth[view][key] = document
    for sink, view in (("search", "bank"), ("cache", "account")):
        held = _documents(world, sink, view)
        compare(verdict, f"bank: {sink}/{view}", truth[view], held)
        field_name = "total" if view == "bank" else "balance"
        total = sum((Decimal(one[field_name]) for one in held.values() if one.get(field_name)), Decimal(0))
        if total != Decimal(bank.GRAND_TOTAL):
            verdict.wrong += 1
            verdict.words.append(f"bank: {sink}/{view} has {total} in all, not {bank.GRAND_TOTAL}")


def _orders(world: World, verdict: Verdict) -> None:
    """The sums of every order."""
    with psycopg.connect(world.conninfo) as connection:
        rows = connection.execute(ORDERS.encode()).fetchall()
    wanted = {key: (pieces and Decimal(pieces), worth and Decimal(worth), lines) for key, pieces, worth, lines in rows}
    held = {
        key: (_decimal(one.get("pieces")), _decimal(one.get("worth")), len(one["items"]))
        for key, one in _documents(world, "cache", "order_card").items()
    }
    compare(verdict, "orders: cache/order_card", wanted, held)


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _counts(world: World, verdict: Verdict) -> None:
    with psycopg.connect(world.conninfo) as connection:
        for place, query in COUNTS.items():
            row = connection.execute(query.encode()).fetchone()
            wanted, held = row[0] if row else 0, _count(world, *place.split("/"))
            verdict.rows += wanted
            if held != wanted:
                verdict.wrong += max(0, wanted - held)
                verdict.ghosts += max(0, held - wanted)
                verdict.words.append(f"count: {place} has {held}, not {wanted}")


def _count(world: World, sink: str, view: str) -> int:
    if sink != "warehouse":
        return len(_documents(world, sink, view))
    return iceberg.count(world.pipeline().sinks["warehouse"], "hw_warehouse", view)
