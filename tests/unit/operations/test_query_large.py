"""What a fresh question keeps of the log has a bound in bytes: a million records may be a million megabytes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from cdc.errors import QueryTooLarge
from cdc.view import View
from operations.query import tail
from spark.reading.spec import FlowSpec
from tests.support.trees import table

NOTES = table("notes", "id", id="int4", body="text")
VIEW = View.identity(NOTES)
TOPIC = "p.public.notes"
SPEC = FlowSpec("lake", {"notes": VIEW}, {TOPIC: ("notes",)}, {TOPIC: NOTES}, {}, {})
LARGE = 10_000


def message(offset: int, row: int, size: int) -> Any:
    """A record of the log as the connector writes it."""
    source = {
        "schema": "public",
        "table": "notes",
        "lsn": 80 + offset,
        "ts_ms": 1,
        "sequence": f'[null,"{80 + offset}"]',
    }
    value = {"before": None, "after": {"id": row, "body": "x" * size}, "source": source, "op": "u"}
    said = {
        "topic": TOPIC,
        "partition": 0,
        "offset": offset,
        "key": orjson.dumps({"id": row}),
        "value": orjson.dumps(value),
        "timestamp": (1, 1 << 60),
    }
    return SimpleNamespace(**{name: lambda told=told: told for name, told in said.items()})


def read(messages: Iterator[Any]) -> tail.Tail:
    reader: Any = SimpleNamespace(read=lambda _parts: messages)
    name = SimpleNamespace(shown="lake.notes")
    there = SimpleNamespace(properties={})
    held: Any = SimpleNamespace(snapshot=None, name=name, columns=("id", "body", "_hw_version"), table=there)
    return tail.read_tail(reader, SPEC, held, [], float("inf"), 0.0)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were decoded at once; with bounds that a test can come to."""
    counts, decode = list[int](), tail.EntryDecoder.decode

    def noted(self: Any, batch: Any) -> Any:
        counts.append(batch.num_rows)
        return decode(self, batch)

    monkeypatch.setattr(tail.EntryDecoder, "decode", noted)
    monkeypatch.setattr(tail, "PIECE_BYTES", 5 * LARGE)
    monkeypatch.setattr(tail, "MOST_BYTES", 50 * LARGE)
    return counts


def test_documents_that_are_too_large_together_are_refused(pieces: list[int]) -> None:
    """A million of them might have been kept, with their rows, until the process was killed."""
    read_of = list[int]()

    def messages() -> Iterator[Any]:
        for at in range(1_000):
            read_of.append(at)
            yield message(at, at, LARGE)

    with pytest.raises(QueryTooLarge, match=r"lake\.notes lacks, too large together"):
        read(messages())
    assert 100 <= len(read_of) <= 110 and max(pieces) <= 5


def test_a_few_rows_that_are_changed_again_and_again_are_not(pieces: list[int]) -> None:
    """Of each only the newest is kept."""
    found = read(message(at, at % 20, LARGE) for at in range(1_000))
    assert (found.rows.num_rows, found.records) == (20, 1_000) and max(pieces) <= 5


def test_small_ones_are_decoded_by_thousands(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "PIECE_BYTES", 8 << 20)
    found = read(message(at, at, 10) for at in range(tail.PIECE + 1))
    assert found.rows.num_rows == tail.PIECE + 1 and pieces == [tail.PIECE, 1]


def test_as_many_as_fit_are_told(pieces: list[int]) -> None:
    assert read(message(at, at, LARGE) for at in range(45)).rows.num_rows == 45
