"""A search server's indices of standing queries, in memory: what ``QueryStore`` asks of one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson


class QueryServer:
    """Stands for the client, too.

    Attributes:
        stored: index -> name -> a query's document.
        foreign: indices that somebody else has made.
        looked: called after each search: somebody may change something then.
        failing: what each bulk request's items say from now on; None: they are done.
    """

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, dict[str, Any]]] = {}
        self.foreign: set[str] = set()
        self.looked: Callable[[], object] = lambda: None
        self.failing: dict[str, Any] | None = None
        self._mappings: dict[str, Any] = {}
        self.indices = self

    def register(self, index: str, name: str, revision: int = 1, **query: Any) -> None:
        """As somebody has put it."""
        self.stored.setdefault(index, {})[name] = {"name": name, "revision": revision, "query": query}

    def names(self, index: str) -> set[str]:
        return set(self.stored.get(index, {}))

    def options(self, **_: Any) -> QueryServer:
        return self

    def close(self) -> None:
        pass

    def exists(self, index: str) -> bool:
        return index in self.stored

    def create(self, index: str, mappings: Any, settings: Any) -> None:
        self.stored[index], self._mappings[index] = {}, mappings

    def delete(self, index: str, ignore_unavailable: bool) -> None:
        self.stored.pop(index, None)

    def get_mapping(self, index: str) -> Any:
        ours = {"_meta": {"headwater": {"sink": "search", "view": "v", "queries": True, "pipeline": "p"}}}
        found = {index: {"mappings": {} if index in self.foreign else self._mappings.get(index, ours)}}
        return SimpleNamespace(body=found if index in self.stored else {"error": "no such index", "status": 404})

    def refresh(self, index: str) -> None:
        pass

    def search(self, index: str, **_: Any) -> Any:
        # A change gives a query another revision, so that stands for the number of the change here.
        hits = [
            {"_id": name, "_source": orjson.dumps(one), "_seq_no": one.get("revision"), "_primary_term": 1}
            for name, one in sorted(self.stored[index].items())
        ]
        self.looked()
        return SimpleNamespace(body={"hits": {"hits": hits}})

    def bulk(self, index: str, operations: list[bytes], refresh: bool) -> Any:
        lines, items = iter(orjson.loads(one) for one in operations), []
        for line in lines:
            ((what, told),) = line.items()
            body = next(lines) if what != "delete" else None
            items.append({what: {"_id": told["_id"], "status": 200, **self._done(index, what, told, body)}})
        return SimpleNamespace(body={"items": items})

    def _done(self, index: str, what: str, told: dict[str, Any], body: dict[str, Any] | None) -> dict[str, Any]:
        there = self.stored[index].get(told["_id"])
        if self.failing is not None:
            return self.failing
        if what == "create" if there is not None else "if_seq_no" in told:
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "it is there"}}
        if there is not None and told.get("if_seq_no", there["revision"]) != there["revision"]:
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "another one"}}
        if body is None:
            self.stored[index].pop(told["_id"], None)
        else:
            self.stored[index][told["_id"]] = body
        return {}
