"""What an older version has not remembered of a key is told by what the sinks know, before anything is compared."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.pipeline import loads
from cdc.same_key import KeyPart, key_parts
from cdc.shapes import Shape
from connectors.captured import tablewatch
from connectors.captured.captured import Captured
from connectors.captured.changed import complete_keys
from connectors.captured.tablewatch import TableWatch
from connectors.database.sightings import Seen, Sighting
from connectors.names import Names
from operations.run.source_watch import SourceWatch
from operations.state.evolution import Evolution, write_evolution
from operations.state.keys import kept_keys
from tests.support.watched_file import TEXT

ORDERS = "public.orders"
INT, UUID = KeyPart("id", 1, "int4", "integer"), KeyPart("id", 1, "uuid", "uuid")
OLDER = Sighting(7, ("id",), "default", True, 10, "500", 90)  # without the key's types


def shape(kind: str, base: str, since: int, oid: int = 7) -> Shape:
    return Shape(Table("public", "orders", (Column("id", kind, base, ordinal=1),), ("id",)), since, oid)


def entry(known: Sighting) -> dict[str, Captured]:
    return {ORDERS: Captured(ORDERS, "done", None, datetime.now(UTC), identity=known)}


class Database:
    """Takes what is written to the list of captured tables."""

    def __init__(self, rows: int = 1) -> None:
        self.rows, self.written = rows, list[Any]()

    def execute(self, _query: object, values: list[Any]) -> Any:
        self.written.append(values)
        return SimpleNamespace(rowcount=self.rows)


def completed(known: Sighting, oid: int, *parts: KeyPart, rows: int = 1) -> Sighting:
    database: Any = Database(rows)
    found = complete_keys(database, Names("headwater", "shop"), entry(known), {ORDERS: (oid, parts)})
    held = found[ORDERS].identity
    assert held is not None
    assert held == known or [json.loads(text) for text in database.written[0][::2]] == [held.to_dict(), known.to_dict()]
    return held


def test_what_is_not_remembered_of_a_key_is_completed_and_what_is_stays() -> None:
    assert completed(OLDER, 7, INT) == replace(OLDER, parts=(INT,))
    assert completed(OLDER, 8, INT) == OLDER  # another table
    assert completed(OLDER, 7, replace(INT, name="no")) == OLDER
    assert completed(OLDER, 7, INT, rows=0) == OLDER  # somebody else has noted it meanwhile
    typed = replace(OLDER, parts=(UUID,))
    assert completed(typed, 7, INT) == typed
    unlabelled, mood = KeyPart("id", 1, "enum", "mood"), KeyPart("id", 1, "enum", "mood", ("sad", "ok"))
    assert completed(replace(OLDER, parts=(unlabelled,)), 7, mood) == replace(OLDER, parts=(mood,))


def test_a_keys_type_that_was_changed_before_the_first_look_of_this_version_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flows were frozen for another key, and `apply`, which compared names alone, found nothing to mend."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    write_evolution(pipeline, "cache", Evolution(acted={ORDERS: shape("integer", "int4", 5)}))
    watch = SourceWatch(pipeline)._tables
    # What the sinks are brought to from then on is of the key as it is.
    write_evolution(pipeline, "cache", Evolution(acted={ORDERS: shape("uuid", "uuid", 9)}))
    now, database = replace(OLDER, name=ORDERS, parts=(UUID,)), Database()
    monkeypatch.setattr(TableWatch, "_may", lambda *_: True)
    monkeypatch.setattr(tablewatch, "connect", lambda *_: database)
    monkeypatch.setattr(tablewatch, "read_moment", lambda *_: None)
    monkeypatch.setattr(tablewatch, "read_captured", lambda *_: entry(OLDER))
    monkeypatch.setattr(tablewatch, "look_at", lambda *_: Seen({ORDERS: now}, {7: now}))
    noted: list[Any] = []
    monkeypatch.setattr(tablewatch, "note_gaps", lambda _c, _n, captured, found: noted.append((captured, found)))
    error = watch.look()[ORDERS]
    assert "has the key (id uuid), and had (id integer)" in error.what
    ((captured, found),) = noted
    assert found[ORDERS].key and captured[ORDERS].identity == replace(OLDER, parts=(INT,))


def test_of_several_sinks_the_one_that_is_furthest_behind_tells_the_key(tmp_path: Path) -> None:
    text = TEXT.replace("view: order}}", 'view: order}, two: {type: redis, url: "redis://127.0.0.1:2", view: order}}')
    pipeline = loads(text.replace("STATE", str(tmp_path)), "shop.yaml", {})
    old, new = shape("integer", "int4", 5), shape("uuid", "uuid", 9)
    assert kept_keys(pipeline) == {}
    for first, second in ((old, new), (new, old)):
        write_evolution(pipeline, "cache", Evolution(acted={ORDERS: first}))
        write_evolution(pipeline, "two", Evolution(acted={ORDERS: second}))
        assert kept_keys(pipeline) == {ORDERS: (7, key_parts(old.table))}
