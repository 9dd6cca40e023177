"""A scenario over joined views: several pipeline files merged into one, so that one runner serves them all."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import psycopg
import pytest
from elasticsearch import Elasticsearch
from redis import Redis
from ruamel.yaml import YAML

from examples.common import REPLICATION_ROLE, Passwords, conninfo
from tests.support.scenario import Scenario

Documents = dict[str, Any]
# On a loaded machine a change takes some seconds to its document; what takes longer than this will never come.
SETTLE_SECONDS = 90.0
BOUNDARIES = {"BEGIN", "COMMIT"}


def statements(path: Path) -> Iterator[str]:
    """The statements of an SQL file, one by one: sent as one text they would be one transaction."""
    text = re.sub("--.*", "", path.read_text(encoding="utf-8"))
    return (statement.strip() for statement in text.split(";") if statement.strip())


@dataclass
class Joined(Scenario):
    """Examples with joined views in one database, behind one pipeline.

    Attributes:
        loaders: ``load`` modules of the examples; a ``pipeline.yaml`` lies beside each.
    """

    loaders: Sequence[ModuleType] = field(default_factory=tuple)

    @staticmethod
    def folder_of(loader: ModuleType) -> Path:
        """The example's folder."""
        assert loader.__file__ is not None
        return Path(loader.__file__).parent

    def prepare(self, *_: object) -> None:
        """Database, pipeline file, capture."""
        for loader in self.loaders:
            self.conninfo = loader.load(self.stack.endpoints, self.name, self.owner)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    @property
    def owner(self) -> str:
        """Role that owns the tables: the first example's, which other tests on this server use too."""
        return str(self.loaders[0].OWNER)

    def write_pipeline(self) -> None:
        """All examples in one file: tables and views side by side, each sink under a name of its own."""
        merged: dict[str, Any] = {}
        for loader in self.loaders:
            folder = self.folder_of(loader)
            one = YAML(typ="safe").load((folder / "pipeline.yaml").read_text(encoding="utf-8"))
            merged = merged or {**one, "name": self.name, "views": {}, "sinks": {}, "tables": []}
            merged["tables"] += one["source"]["tables"]
            merged["views"] |= {self.view(name): view for name, view in one["views"].items()}
            for name, sink in one["sinks"].items():
                merged["sinks"][f"{folder.name}_{name}"] = self._sink(sink)
        merged["source"] |= {"database": self.name, "setup_user": self.owner, "tables": merged.pop("tables")}
        merged["engine"] = {"state_dir": str(self.folder / "state")}
        with self.file.open("w") as out:
            YAML().dump({**merged, **self.extra}, out)

    def _sink(self, sink: dict[str, Any]) -> dict[str, Any]:
        names = [self.view(name) for name in sink.get("views", [sink.get("view")])]
        rest = {key: value for key, value in sink.items() if key not in ("view", "views", "key_prefix")}
        return rest | {"views": names} | ({"key_prefix": f"{self.name}:"} if sink["type"] == "redis" else {})

    # -- what the source gives and the sinks hold ---------------------------------------------------------------------

    def apply_script(self, path: Path) -> None:
        """Run an SQL file as the owner, statement by statement; each must do something."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for statement in statements(path):
                done = connection.execute(statement.encode())
                assert done.rowcount > 0 or statement in BOUNDARIES, f"nothing was changed by: {statement}"

    def truth(self, query: str) -> dict[str, Documents]:
        """view -> id -> document, by plain SQL that gives these three columns."""
        with psycopg.connect(self.conninfo) as connection:
            rows = connection.execute(query.encode()).fetchall()
        found: dict[str, Documents] = {}
        for view, key, document in rows:
            found.setdefault(view, {})[key] = document
        return found

    def in_redis(self, view: str) -> Documents:
        """id -> document, as readers get them."""
        prefix = f"{self.name}:{self.view(view)}:"
        with Redis.from_url(self.stack.endpoints.redis_cache_url) as redis:
            keys = list(redis.scan_iter(match=f"{prefix}*", count=1000))
            values = redis.mget(keys) if keys else []
        pairs = zip(keys, values, strict=True)
        return {key.decode().removeprefix(prefix): orjson.loads(value) for key, value in pairs if value is not None}

    def in_elasticsearch(self, view: str) -> Documents:
        """id -> document, by search after a refresh."""
        with Elasticsearch(self.stack.endpoints.elasticsearch_url) as client:
            client.indices.refresh(index=self.view(view))
            found = client.search(index=self.view(view), size=10_000, query={"match_all": {}})
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    def settled(self, read: Callable[[], Any], wanted: Any, seconds: float = SETTLE_SECONDS) -> Any:
        """Read until it is what is wanted, or time is over; the caller asserts, so that pytest shows the difference."""
        until = time.monotonic() + seconds
        while (found := read()) != wanted and time.monotonic() < until:
            assert self.runner is None or self.runner.poll() is None, f"the runner ended:\n{self.log()}"
            time.sleep(0.3)
        return found

    # -- the source closed to the pipeline ----------------------------------------------------------------------------

    def assert_closed(self) -> None:
        """The pipeline's role can read none of the captured tables."""
        tables = YAML(typ="safe").load(self.file.read_text(encoding="utf-8"))["source"]["tables"]
        password = Passwords.load(home=self.stack.site.home).source
        info = conninfo(self.stack.endpoints, self.name, REPLICATION_ROLE, password)
        with psycopg.connect(info, autocommit=True) as connection:
            for table in tables:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT 1 FROM {table} LIMIT 1".encode())
