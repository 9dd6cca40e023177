"""What a subscriber is told: events with their JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from cdc.json_text import members
from cdc.records.position import lsn_text
from operations.push.cursor import Cursor
from operations.push.lens import Lens
from sinks.contract import Held
from sinks.redis.stream.tail import Entry
from truth.values import exact

Name = Literal["change", "match", "reset", "snapshot", "ready", "alive", "slow"]
# Of one snapshot event: a page of documents becomes several.
SNAPSHOT_BYTES = 256 << 10


class Told(NamedTuple):
    """One event.

    Attributes:
        name: what it is.
        data: JSON in one line.
        cursor: to go on from behind it; None where one can't.
    """

    name: Name
    data: bytes
    cursor: str | None = None

    @property
    def value(self) -> Any:
        """The data, read to be shown: numbers have all of their digits when ``orjson`` writes it."""
        return exact(self.data)

    def parts(self) -> dict[str, str]:
        """What stands in the data, as it stands there."""
        return members(self.data.decode())


def change(entry: Entry, lens: Lens, generation: int, mark: str) -> Told | None:
    """A change as it is seen through a lens; None when nothing is to be seen of it."""
    op = lens.op(entry.before, entry.after)
    if op is None:
        return None
    body = {
        "key": entry.key,
        # As text: a browser's numbers end at 2^53.
        "version": str(entry.version),
        "lsn": lsn_text(entry.version),
        "op": op,
        "before": orjson.Fragment(lens.seen(entry.before)),
        "after": orjson.Fragment(lens.seen(entry.after)),
    }
    return Told("change", orjson.dumps(body), Cursor(generation, mark, entry.place).text())


def snapshot(documents: Iterable[Held], lens: Lens) -> Iterator[Told]:
    """Documents that match, some in an event."""
    return bundled(_shown(documents, lens))


def _shown(documents: Iterable[Held], lens: Lens) -> Iterator[bytes]:
    for one in documents:
        document = one.document if isinstance(one.document, bytes) else None
        if not document or not lens.matches(document):
            continue
        body = {
            "key": one.key,
            "version": str(max(one.version, 0)),
            "document": orjson.Fragment(lens.seen(document)),
        }
        yield orjson.dumps(body)


def bundled(shown: Iterable[bytes]) -> Iterator[Told]:
    """What is there, each as JSON, as events of a bounded size."""
    some: list[bytes] = []
    size = 0
    for one in shown:
        some.append(one)
        size += len(one)
        if size > SNAPSHOT_BYTES:
            yield _snapshot(some)
            some, size = [], 0
    if some:
        yield _snapshot(some)


def _snapshot(shown: list[bytes]) -> Told:
    return Told("snapshot", b'{"documents":[' + b",".join(shown) + b"]}")


@dataclass(frozen=True)
class Changes:
    """Sees a view's changes through a lens; those of equal lenses are told the same."""

    lens: Lens

    def change(self, entry: Entry, generation: int, mark: str) -> Told | None:
        """See ``follows.Sees``."""
        return change(entry, self.lens, generation, mark)

    def snapshot(self, documents: Iterable[Held]) -> Iterator[Told]:
        """See ``follows.Sees``."""
        return snapshot(documents, self.lens)


def reset(why: str) -> Told:
    """Forget all that was told: what follows is everything."""
    return Told("reset", orjson.dumps({"why": why}))


def ready(cursor: Cursor, view: str) -> Told:
    """All that was there before has been told; from now on changes."""
    body = {"view": view, "generation": cursor.generation, "cursor": cursor.text()}
    return Told("ready", orjson.dumps(body), cursor.text())


def alive(cursor: str) -> Told:
    """A sign of life after a silence. It is an event, as a browser's script is told of nothing else: not of a comment,
    nor of the id that goes with one."""
    return Told("alive", orjson.dumps({"cursor": cursor}), cursor)


def slow(cursor: str | None, seconds: float) -> Told:
    """A reader is let go."""
    why = f"nothing was taken for {seconds:g} s"
    return Told("slow", orjson.dumps({"why": why, "cursor": cursor}), cursor)
