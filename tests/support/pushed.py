"""A pipeline of one cached view with changes on a real Redis, written by the sink itself, and served over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cdc.pipeline import load
from console.http.server import serving
from operations.push.source import Source, place_of
from sinks.contract import Item
from sinks.redis import RedisSink
from tests.support.sinks import VIEW, Subject

FILE = """
version: 1
name: pushed
source: {{host: 127.0.0.1, port: 1, database: x, user: y, password: z, tables: [public.t]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{{view}: {{root: t}}}}
sinks: {{tested: {{type: redis, url: "{url}", key_prefix: "{name}:", view: {view}, changes: {{keep: {keep}}}}}}}
engine: {{state_dir: {folder}/state}}
"""


@dataclass
class Event:
    """One server-sent event."""

    name: str
    data: Any
    id: str | None = None


@dataclass
class Pushed:
    """The world of a test."""

    subject: Subject
    folder: Path
    keep: int = 1_000
    more: str = ""
    sink: RedisSink = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.folder / "pushed.yaml"
        text = FILE.format(
            view=VIEW, url=self.subject.url, name=self.subject.name, folder=self.folder, keep=max(self.keep, 100)
        )
        self.file.write_text(text + self.more)
        self.sink = self.generation(1)

    def generation(self, number: int) -> RedisSink:
        sink = self.subject.open(number, keep=self.keep)
        assert isinstance(sink, RedisSink)
        sink.setup()
        return sink

    def source(self) -> Source:
        return Source(place_of(load(self.file), VIEW))

    def write(self, version: int, **documents: Any) -> None:
        """Values are documents; None deletes."""
        self.sink.write(
            VIEW,
            [
                Item(key, version, None if value is None else json.dumps(value).encode())
                for key, value in documents.items()
            ],
        )

    @contextmanager
    def served(self) -> Iterator[str]:
        said: list[str] = []
        with serving([self.file], "127.0.0.1", 0, said.append):
            yield said[0].rpartition(" ")[2]


class Listening:
    """An EventSource in a thread: what has come, in order."""

    def __init__(self, url: str, cursor: str | None = None, path: str = f"/v1/stream/{VIEW}", **query: str) -> None:
        headers = {} if cursor is None else {"Last-Event-ID": cursor}
        self._connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        self._connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
        assert self._connection.sock is not None
        self._socket: socket.socket = self._connection.sock
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.events: list[Event] = []
        self.ended = threading.Event()
        self._came = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        name, data, marked = "", "", None
        try:
            while line := self.answer.readline().decode():
                kind, _, text = line.rstrip("\n").partition(": ")
                if kind == "event":
                    name = text
                elif kind == "data":
                    data = text
                elif kind == "id":
                    marked = text
                elif line == "\n" and data:
                    with self._came:
                        self.events.append(Event(name, json.loads(data), marked))
                        self._came.notify_all()
                    name, data, marked = "", "", None
        except (OSError, HTTPException):
            pass
        finally:
            self.answer.close()
            self._connection.close()
            self._socket.close()
            self.ended.set()

    def until(self, name: str, count: int = 1, seconds: float = 20.0) -> list[Event]:
        """What has come by the time that so many events of a name have."""

        def there() -> bool:
            return sum(one.name == name for one in self.events) >= count

        with self._came:
            assert self._came.wait_for(there, seconds), (name, count, self.events[-5:])
            return list(self.events)

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):  # it has ended by itself
            self._socket.shutdown(socket.SHUT_RDWR)
        self.ended.wait(5)


def folded(events: list[Event]) -> dict[str, Any]:
    """The documents that a client has which does what docs/push.md says."""
    state: dict[str, Any] = {}
    for one in events:
        if one.name == "reset":
            state = {}
        elif one.name == "snapshot":
            state |= {each["key"]: each["document"] for each in one.data["documents"]}
        elif one.name == "change":
            state.pop(one.data["key"], None)
            if one.data["op"] not in ("deleted", "left"):
                state[one.data["key"]] = one.data["after"]
    return state
