"""Wrong documents, planted in sinks behind Headwater's back: one missing, one too many, one changed, one old."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from elasticsearch import Elasticsearch
from redis import Redis

from cdc.pipeline import Pipeline, load
from operations.holding import Holding, Holds, holding
from operations.opened import peek
from operations.state.catalogue import source_catalogue
from operations.state.folder import register_of
from sinks.iceberg.catalogue import catalog_name
from tests.support.scenario import Scenario

# Run by itself, so that the tests' process has no JVM: SQL statements, and a row copied under another key.
SPARK = """
import json, sys
from pathlib import Path
from pyspark.sql import functions as F
from cdc.pipeline import load
from operations.run.session import open_spark
pipeline, sink, table, work = load(Path(sys.argv[1])), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
spark = open_spark(pipeline, [sink], "planting")
key, copied, ghost = work["key"], work["copied"], work["ghost"]
spark.table(table).where(F.col(key) == copied).withColumn(key, F.lit(ghost)).writeTo(table).append()
for statement in work["statements"]:
    spark.sql(statement.format(table=table))
"""


@dataclass(frozen=True)
class Target:
    """One view of one sink.

    Attributes:
        sink, view: their names; the view's in the scenario.
        ghost: a key that no row has.
        field: a field of text in each document.
    """

    sink: str
    view: str
    ghost: str
    field: str

    @property
    def label(self) -> str:
        """For test ids."""
        return f"{self.sink}-{self.view}"


@dataclass(frozen=True)
class Planted:
    """Keys that are wrong now."""

    missing: str
    extra: str
    changed: str
    old: str

    @property
    def keys(self) -> set[str]:
        """All of them."""
        return {self.missing, self.extra, self.changed, self.old}

    def as_reported(self) -> dict[str, list[str]]:
        """How ``verify --json`` names them."""
        return {"missing": [self.missing], "extra": [self.extra], "changed": sorted((self.changed, self.old))}


class Planter:
    """Plants in a scenario's sinks."""

    def __init__(self, scenario: Scenario, environment: Any) -> None:
        self.scenario = scenario
        for name, value in scenario.environment().items():
            environment.setenv(name, value)
        self.pipeline: Pipeline = load(scenario.file)

    def name(self, target: Target) -> str:
        """The view's name; a warehouse has the tables' own."""
        return target.view if target.sink == "warehouse" else self.scenario.view(target.view)

    def held(self, target: Target) -> dict[str, Holds]:
        """Everything that is there: key -> version and digest."""
        with self._holding(target) as opened:
            return dict(opened.scan())

    def plant(self, target: Target, keys: list[str]) -> Planted:
        """Spoil three of these keys and add one."""
        planted = Planted(keys[0], target.ghost, keys[1], keys[2])
        with self._holding(target) as opened:
            if target.sink == "cache":
                self._redis(target, opened, planted)
            elif target.sink == "search":
                self._elasticsearch(target, opened, planted)
            else:
                self._iceberg(target, planted)
        return planted

    def _holding(self, target: Target) -> Any:
        generation = register_of(self.pipeline, target.sink).generation(1)
        build = peek(self.pipeline, source_catalogue(self.pipeline), generation)
        (view,) = (view for view in build.views if view.name == self.name(target))
        return holding(build, view)

    def _documents(self, opened: Holding, target: Target, planted: Planted) -> Mapping[str, Any]:
        found = opened.target.get(opened.view.name, [planted.changed, planted.old])
        documents = {key: orjson.loads(held.document) for key, held in found.items()}
        for document in documents.values():
            document[target.field] = "planted"
        return documents

    def _redis(self, target: Target, opened: Holding, planted: Planted) -> None:
        documents, prefix = self._documents(opened, target, planted), f"{self.scenario.name}:{opened.view.name}:"
        versions = f"hw:v:{{{prefix}"
        with Redis.from_url(self.scenario.stack.endpoints.redis_cache_url) as redis:
            redis.delete(prefix + planted.missing)
            redis.set(prefix + planted.changed, orjson.dumps(documents[planted.changed]))
            redis.set(prefix + planted.old, orjson.dumps(documents[planted.old]))
            redis.set(f"{versions}{planted.old}}}", 0)
            redis.set(prefix + planted.extra, orjson.dumps(documents[planted.old]))
            redis.set(f"{versions}{planted.extra}}}", 5)

    def _elasticsearch(self, target: Target, opened: Holding, planted: Planted) -> None:
        documents = self._documents(opened, target, planted)
        index = opened.target._settings.targets[opened.view.name].concrete  # type: ignore[attr-defined]
        with Elasticsearch(self.scenario.stack.endpoints.elasticsearch_url, request_timeout=60) as client:
            client.delete(index=index, id=planted.missing)
            client.index(index=index, id=planted.changed, document=documents[planted.changed])
            ghost = documents[planted.old]
            client.index(index=index, id=planted.extra, document=ghost, version=5, version_type="external")
            # Only an index that forgets deletes at once takes an older version.
            kept = client.indices.get_settings(index=index).body[index]["settings"]["index"].get("gc_deletes")
            client.indices.put_settings(index=index, settings={"gc_deletes": "0s"})
            client.delete(index=index, id=planted.old)
            client.indices.refresh(index=index)
            time.sleep(1)
            client.index(index=index, id=planted.old, document=documents[planted.old], version=1,
                         version_type="external")  # fmt: skip
            client.indices.put_settings(index=index, settings={"gc_deletes": kept or "1h"})
            client.indices.refresh(index=index)

    def _iceberg(self, target: Target, planted: Planted) -> None:
        key = {"orders": "order_id"}[target.view]
        statements = [
            f"DELETE FROM {{table}} WHERE {key} = {planted.missing}",
            f"UPDATE {{table}} SET {target.field} = 'planted' WHERE {key} = {planted.changed}",
            f"UPDATE {{table}} SET {target.field} = 'planted', _hw_version = 1 WHERE {key} = {planted.old}",
        ]
        work = {"key": key, "copied": int(planted.old), "ghost": int(planted.extra), "statements": statements}
        table = f"{catalog_name(target.sink)}.{self.scenario.name}.{target.view}"
        words = [sys.executable, "-c", SPARK, str(self.scenario.file), target.sink, table, json.dumps(work)]
        done = subprocess.run(
            words, env=self.scenario.environment(), capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
