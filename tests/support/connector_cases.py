"""A pipeline, its tables and what Postgres says of them, for who makes a connector of them."""

from __future__ import annotations

from typing import Any

from cdc.catalogue import Catalogue, Column, Table
from cdc.pipeline import Pipeline
from connectors.tables.facts import TableFacts

SECRET = "hunter2-hunter2"


def pipeline(**parts: dict[str, Any]) -> Pipeline:
    raw: dict[str, Any] = {
        "version": 1,
        "name": "flights",
        "source": {
            "host": "db.example",
            "port": 5433,
            "database": "flights",
            "user": "headwater",
            "password": SECRET,
            "tables": ["public.flights"],
        },
        "kafka": {"bootstrap": "127.0.0.1:9092"},
        "connect": {"url": "http://127.0.0.1:8083"},
        "views": {"flight": {"root": "flights"}},
        "sinks": {"cache": {"type": "redis", "url": "redis://127.0.0.1", "view": "flight"}},
        "policy": {"toast": "full"},
    }
    for part, keys in parts.items():
        raw[part] = {**raw[part], **keys}
    return Pipeline.model_validate(raw)


def catalogue(*tables: Table) -> Catalogue:
    given = tables or (Table("public", "flights", (Column("flight_id", "integer", "int4"),), ("flight_id",)),)
    return Catalogue({table.qualified: table for table in given})


def fact(**other: object) -> TableFacts:
    values = {
        "name": "s.t",
        "kind": "r",
        "persistence": "p",
        "replica_identity": "d",
        "owner": "o",
        "row_security": False,
        "rows": 1.0,
        "has_primary_key": True,
        "toasted": True,
        "parent": None,
        "is_partition": False,
        "has_children": False,
        "generated": (),
        "virtual": False,
        "unique_keys": 1,
        "partitions": ("s.t1",),
        "partial": (),
    }
    return TableFacts(**{**values, **other})  # type: ignore[arg-type]
