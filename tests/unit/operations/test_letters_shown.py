"""What `letters show` tells of documents and records: the digits that they have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson

from operations.letters import listing
from truth.values import exact

WIDE = b'{"id":9007199254740993,"price":1.10,"sum":12345678901234567890123,"tiny":1e-400}'


def written(value: Any) -> bytes:
    return orjson.dumps(value, default=str)


def pipeline() -> Any:
    return SimpleNamespace(source=SimpleNamespace(reader=lambda: None))


def test_numbers_of_documents_and_records_keep_their_digits() -> None:
    assert written(listing._plain(WIDE)) == written(exact(WIDE))
    shown = written(listing._record(pipeline(), b'{"after":' + WIDE + b"}"))
    assert b"9007199254740993" in shown and b"12345678901234567890123" in shown and b"1e-400" in shown


def test_what_is_no_json_is_its_text() -> None:
    assert listing._plain(b"\xff{") == "\\xff{"
    assert listing._plain(None) is None and listing._record(pipeline(), None) is None
    assert listing._record(pipeline(), b"{broken") == "{broken"
