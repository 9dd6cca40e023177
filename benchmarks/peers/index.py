"""An Elasticsearch index over plain HTTP: both sides are looked at through this, whatever client they write with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests

from cdc.errors import StackError

ANSWER_SECONDS = 30.0
PAGE = 1000


class Index:
    """One index or alias.

    Args:
        url: of the server, 7.17 or 8.
        name: of the index.
        exact: what to put behind a text field's name for an exact comparison; the default is dynamic mapping's.
    """

    def __init__(self, url: str, name: str, exact: str = ".keyword") -> None:
        self.url, self.name, self.exact = url, name, exact
        self.http = requests.Session()

    def close(self) -> None:
        """Let go of the connection."""
        self.http.close()

    def get(self, key: str) -> dict[str, Any] | None:
        """A document by key, as it is now; None if there is none."""
        answer = self._ask("GET", f"_doc/{key}")
        return None if answer is None or not answer["found"] else answer["_source"]

    def count(self, field: str = "", value: str | int | None = None) -> int:
        """Documents in the index, or those with a value; everything written before the call counts."""
        self._ask("POST", "_refresh")
        name = field + self.exact if isinstance(value, str) else field
        body = {"query": {"term": {name: value}}} if field else None
        answer = self._ask("GET", "_count", body)
        return 0 if answer is None else int(answer["count"])

    def writes(self) -> int:
        """How many times a document has been written since the index was made; costs the server next to nothing."""
        answer = self._ask("GET", "_stats/indexing")
        return 0 if answer is None else int(answer["_all"]["primaries"].get("indexing", {}).get("index_total", 0))

    def merges(self) -> int:
        """How many merges of it are under way."""
        answer = self._ask("GET", "_stats/merge")
        return 0 if answer is None else int(answer["_all"]["total"].get("merges", {}).get("current", 0))

    def scan(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Key and content of every document."""
        self._ask("POST", "_refresh")
        page = self._ask("POST", "_search?scroll=1m", {"size": PAGE, "sort": ["_doc"]})
        while page is not None and page["hits"]["hits"]:
            yield from ((hit["_id"], hit["_source"]) for hit in page["hits"]["hits"])
            again = {"scroll": "1m", "scroll_id": page["_scroll_id"]}
            page = self.http.post(f"{self.url}/_search/scroll", json=again, timeout=ANSWER_SECONDS).json()

    def delete(self) -> None:
        """Remove the index; missing is fine."""
        self._ask("DELETE", "")

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        address = f"{self.url}/{self.name}/{path}".rstrip("/")
        try:
            answer = self.http.request(verb, address, json=body, timeout=ANSWER_SECONDS)
        except requests.RequestException as error:
            raise StackError(
                f"Elasticsearch at {self.url} does not answer ({type(error).__name__})",
                fix="look at its log below HEADWATER_HOME/logs; then run the benchmark again",
            ) from error
        if answer.status_code == 404:
            return None
        if not answer.ok:
            raise StackError(f"Elasticsearch refused {verb} {path} with {answer.status_code}: {answer.text[:300]}")
        return answer.json()
