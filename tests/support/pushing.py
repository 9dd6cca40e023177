"""A pipeline whose cache keeps changes, and a subscriber that comes again as a browser does."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import requests
from ruamel.yaml import YAML

from tests.support.migrating import Migrating
from tests.support.pushed import Event, folded
from tests.support.receiver import SECRET


@dataclass
class Pushing(Migrating):
    """Its cache keeps changes.

    Attributes:
        hook: an address that is sent them, too; none if it is empty.
    """

    hook: str = ""

    def write_pipeline(self) -> None:
        super().write_pipeline()
        if self.hook:
            push = {"hook": {"view": self.view("thing"), "url": self.hook, "secret": SECRET}}
            with self.file.open("a") as out:
                YAML().dump({"push": push}, out)

    def kinds(self) -> dict[str, dict[str, Any]]:
        kinds = super().kinds()
        return {**kinds, "cache": {**kinds["cache"], "changes": {"keep": 10_000}}}

    def spares(self) -> dict[str, str | None]:
        """What Postgres holds: a column that writers change, by the documents' keys."""
        with psycopg.connect(self.conninfo) as connection:
            return {str(key): spare for key, spare in connection.execute("SELECT id, spare FROM things").fetchall()}


class Coming(threading.Thread):
    """Subscribes, and when the connection ends, again from the last event's id.

    Args:
        url: of the stream.

    Attributes:
        events: all that came, in order.
        connected: how often.
    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.over = url, threading.Event()
        self.events: list[Event] = []
        self.connected = 0
        self._last: str | None = None

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(requests.RequestException):
                self._listen()
            self.over.wait(0.1)

    def _listen(self) -> None:
        headers = {} if self._last is None else {"Last-Event-ID": self._last}
        with requests.get(self.url, headers=headers, stream=True, timeout=(5, 30)) as answer:
            answer.raise_for_status()
            self.connected += 1
            name, data, marked = "", "", self._last
            for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
                kind, _, text = line.partition(": ")
                if kind == "event":
                    name = text
                elif kind == "data":
                    data = text
                elif kind == "id":
                    marked = text
                elif not line:  # what was cut before its empty line is not there
                    self._last = marked
                    if data:
                        self.events.append(Event(name, json.loads(data), marked))
                    name, data = "", ""
                if self.over.is_set():
                    return

    def named(self, name: str) -> list[Event]:
        """Those of one name."""
        return [one for one in self.events if one.name == name]

    def more(self, count: int, seconds: float = 120.0) -> None:
        """Wait until so many changes more have come; before the first, until all that there is was told."""
        self._until("ready", 1, seconds)
        self._until("change", len(self.named("change")) + count, seconds)

    def _until(self, name: str, count: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while len(self.named(name)) < count:
            assert time.monotonic() < until, f"{len(self.named(name))} of {count} events {name} came"
            time.sleep(0.05)

    def state(self) -> dict[str, Any]:
        """The documents that it has."""
        return folded(list(self.events))

    def __enter__(self) -> Coming:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()


def broken(events: list[Event]) -> list[str]:
    """Where events do not follow each other: a version that does not rise, a state that nobody was told of."""
    known: dict[str, tuple[int, Any]] = {}
    found = []
    for one in events:
        if one.name == "reset":
            known = {}
        elif one.name == "snapshot":
            for each in one.data["documents"]:
                known[each["key"]] = int(each["version"]), each["document"]
        elif one.name == "change":
            key, version = one.data["key"], int(one.data["version"])
            before, document = known.get(key, (-1, None))
            if version <= before:
                found.append(f"{key}: version {version} after {before}")
            if one.data["before"] != document:
                found.append(f"{key}: it was {one.data['before']}, and {document} was told of")
            if one.data["before"] == one.data["after"]:
                found.append(f"{key}: nothing has changed")
            known[key] = version, one.data["after"]
    return found
