"""A server of ``headwater serve`` inside the test, over a state folder and servers that are not there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from console.http.app import make_app
from console.http.guard import Access
from console.http.served import Pipelines, Served
from operations.overview.watching import Watching
from operations.state.folder import note_captured

ROOT = Path(__file__).parents[2]
NOWHERE = {
    "HEADWATER_SOURCE_PASSWORD": "x",
    "HEADWATER_SETUP_PASSWORD": "x",
    "HEADWATER_POSTGRES_PORT": "1",
    "HEADWATER_KAFKA": "127.0.0.1:1",
    "HEADWATER_CONNECT": "http://127.0.0.1:1",
    "HEADWATER_ELASTICSEARCH": "http://127.0.0.1:1",
    "HEADWATER_REDIS_CACHE": "redis://127.0.0.1:1/0",
}
ORIGIN = "http://127.0.0.1:8470"


def nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Set the environment in which the examples' files load: servers that nobody has, and a home of the test's own."""
    for name, value in {**NOWHERE, "HEADWATER_HOME": str(folder)}.items():
        monkeypatch.setenv(name, value)


def documented(verb: str) -> dict[str, Any]:
    """The example of a verb's ``--json`` in the documentation, whose keys tests compare with the real ones."""
    page = (ROOT / "docs" / "json-output.md").read_text(encoding="utf-8")
    [section] = [part for part in re.split(r"^## ", page, flags=re.MULTILINE) if part.startswith(f"{verb}\n")]
    found: dict[str, Any] = json.loads(re.findall(r"^```json\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)[0])
    return found


def status(**sinks: Mapping[str, Any]) -> dict[str, Any]:
    """A status in the documented shape: each of these sinks as the example's, but for what is said of it."""
    told = documented("status")
    # The example's slot keeps too much.
    told["source"]["wal"] |= {"retained_bytes": 2**20, "level": "none", "pinned_by": []}
    told["source"]["wal"] |= {"seconds_to_full": None, "growth_bytes_per_second": 0.0}
    [like] = told["sinks"]
    told["sinks"] = [{**deepcopy(like), "sink": name, **of} for name, of in sinks.items()]
    return told


class World:
    """A server for examples/flights in a folder of its own.

    Args:
        folder: of the test.
        tokens: of ``Access``.
        told: what the questions answer, in place of servers that are not there.
    """

    def __init__(self, folder: Path, tokens: Mapping[str, Any] | None = None, told: Mapping[str, Any] | None = None):
        file = folder / "pipeline.yaml"
        file.write_text((ROOT / "examples/flights/pipeline.yaml").read_text())
        self.pipelines = Pipelines([file])
        self.served: Served = self.pipelines.get(None)
        note_captured(self.served.pipeline)
        if told is not None:
            asked = {name: lambda _, value=value: deepcopy(value) for name, value in told.items()}
            self.served.watching = Watching(lambda: self.served.pipeline, lambda: self.served.waits, asked)
        self.access = Access(dict(tokens or {}))
        self.app: FastAPI = make_app(self.pipelines, self.access)
        self.browser = TestClient(self.app, base_url=ORIGIN, follow_redirects=False)

    def look(self) -> None:
        """As the server does in the background."""
        self.served.watching.look()

    def csrf(self, path: str = "/sinks/search") -> str:
        """What the forms of a page have with them."""
        [found, *_] = re.findall(r'name="csrf" value="([0-9a-f]+)"', self.browser.get(path).text)
        return str(found)

    def send(self, path: str, **fields: str) -> Any:
        """A form, as a browser sends it."""
        return self.browser.post(path, data=fields, headers={"Origin": ORIGIN})


@contextmanager
def world(folder: Path, **more: Any) -> Iterator[World]:
    """One for the time of a block."""
    made = World(folder, **more)
    try:
        yield made
    finally:
        made.pipelines.close()
