"""What the pipeline file takes for a sink, the sink takes too: keys arrive, and no bound is wider than its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.pipeline import ElasticsearchSink, OpenSearchSink, RedisSink, loads
from cdc.pipeline.sink import SinkPart
from cdc.view import View
from sinks.configure import sink_config
from sinks.elasticsearch.settings import read_settings as read_elasticsearch
from sinks.iceberg import catalogue as iceberg
from sinks.redis.settings import read_settings as read_redis

VIEW = View.identity(Table("public", "orders", (Column("id", "int", "int4"),), ("id",)))
HEAD = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
sinks:
  s:
    tables: all
"""
FULL = {
    "elasticsearch": {
        "url": "https://h:9200",
        "user": "u",
        "password": "pw1",
        "ca_certs": "ca.pem",
        "bulk_bytes": 4096,
        "bulk_count": 7,
        "bulk_workers": 5,
        "request_timeout_seconds": 2.5,
        "give_up_seconds": 11.0,
        "fence_seconds": 99,
    },
    "redis": {
        "url": "rediss://h:6380/2",
        "user": "u",
        "password": "pw1",
        "ca_certs": "ca.pem",
        "key_prefix": "p:",
        "ttl_seconds": 60,
        "fence_seconds": 99,
        "request_timeout_seconds": 2.5,
        "give_up_seconds": 11.0,
    },
}
FULL["opensearch"] = FULL["elasticsearch"] | {"url": "https://o:9200"}
READ = {"elasticsearch": read_elasticsearch, "opensearch": read_elasticsearch, "redis": read_redis}
PARTS: dict[str, type[SinkPart]] = {
    "elasticsearch": ElasticsearchSink,
    "opensearch": OpenSearchSink,
    "redis": RedisSink,
}


def settings(kind: str, keys: dict[str, Any]) -> Any:
    text = HEAD + f"    type: {kind}\n" + "".join(f"    {key}: {json.dumps(value)}\n" for key, value in keys.items())
    return READ[kind](sink_config("s", loads(text, "p.yaml", {}).sinks["s"], [VIEW], {}))


@pytest.mark.parametrize("kind", sorted(FULL))
def test_every_key_arrives(kind: str) -> None:
    read = settings(kind, FULL[kind])
    assert {key: getattr(read, key) for key in FULL[kind]} == FULL[kind]


@pytest.mark.parametrize("kind", sorted(FULL))
def test_the_defaults_are_the_sink_s_own(kind: str) -> None:
    read = settings(kind, {"url": FULL[kind]["url"]})
    part = PARTS[kind].model_fields
    shared = [key for key in FULL[kind] if key not in ("url", "give_up_seconds")]
    fields = type(read).__dataclass_fields__
    assert {key: part[key].default for key in shared} == {key: fields[key].default for key in shared}
    # Not the sink's own "for ever": a batch that never ends would look like one that works.
    assert read.give_up_seconds == 30


def test_changes_are_told() -> None:
    assert settings("redis", {"url": "redis://h", "changes": {"keep": 700}}).keep == 700
    assert settings("redis", {"url": "redis://h", "changes": {}}).keep == 100_000
    assert settings("redis", {"url": "redis://h"}).keep == 0


def test_a_cluster_is_told() -> None:
    assert settings("redis", {"url": "redis://h", "cluster": True}).cluster is True
    assert settings("redis", {"url": "redis://h"}).cluster is False


@pytest.mark.parametrize("kind", sorted(FULL))
def test_the_bounds_are_bounds_for_the_sink_too(kind: str) -> None:
    """Both ends of every number: the sink itself must not refuse what the file took."""
    tried = 0
    for key, field in PARTS[kind].model_fields.items():
        for limit in field.metadata:
            for name in ("ge", "le"):
                if (value := getattr(limit, name, None)) is not None:
                    settings(kind, {"url": FULL[kind]["url"], key: value})
                    tried += 1
    assert tried >= 6


def test_certificates_are_for_encrypted_addresses_only() -> None:
    assert settings("elasticsearch", {"url": "http://h:9200", "ca_certs": "ca.pem"}).ca_certs is None


@pytest.mark.parametrize("namespace", ["n", "_n", "N9_" + "x" * 60])
def test_a_namespace_is_one_for_the_warehouse_too(namespace: str) -> None:
    text = HEAD + f"    type: iceberg\n    catalog_uri: c.db\n    warehouse: w\n    namespace: {namespace}\n"
    sink = loads(text, "p.yaml", {}).sinks["s"]
    assert iceberg.table_name(sink, "orders") == (namespace, "orders")
