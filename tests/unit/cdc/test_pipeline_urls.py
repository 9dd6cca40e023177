"""Addresses that would be misread are refused where the file is read."""

from __future__ import annotations

import pytest

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline, loads

GOOD = {
    "CONNECT": "http://c:8083",
    "SEARCH": "https://user:p@ss/w@[::1]:9200/path",
    "CACHE": "redis://:pass:word@r:6379/0",
    "STORE": "unix:///run/redis.sock",
    "MASTER": "spark://one:7077,two:7077",
}
TEXT = """
version: 1
name: shop
source: {host: h, database: shop, user: u, password: p, tables: [public.orders]}
kafka: {bootstrap: "b:9092"}
connect: {url: "CONNECT"}
row_store: {url: "STORE"}
views: {card: {root: orders}}
sinks:
  search: {type: elasticsearch, url: "SEARCH", view: card}
  cache: {type: redis, url: "CACHE", view: card}
engine: {master: "MASTER"}
"""


def load(**edits: str) -> Pipeline:
    text = TEXT
    for name, url in (GOOD | edits).items():
        text = text.replace(name, url)
    return loads(text, "shop.yaml", {})


def test_these_are_addresses() -> None:
    assert load().engine.master == GOOD["MASTER"]
    assert load(STORE="rediss://r", CONNECT="http://127.0.0.1:65535/").name == "shop"


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("CACHE", "redis://r:6379/7x"),  # which the client takes for database 0
        ("CACHE", "redis://r:6379/abc"),
        ("CACHE", "redis://r:port/0"),
        ("STORE", "redis://r:99999/0"),
        ("STORE", "redis://"),
        ("SEARCH", "http://e:port"),
        ("SEARCH", "http://e:65536"),
        ("CONNECT", "http://c:0"),
        ("MASTER", "spark://host"),
        ("MASTER", "spark://host:7077/"),
        ("MASTER", "spark://a,b:1"),
        ("MASTER", "spark://[::1]:7077"),  # which Spark does not reach
    ],
)
def test_what_a_client_would_misread_is_refused_with_its_line(place: str, url: str) -> None:
    with pytest.raises(HeadwaterError, match=r"shop\.yaml:\d+"):
        load(**{place: url})
