"""Rows as they were: what of JSON a version has, is shown."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.trees import node, table
from truth.joins import used_columns
from truth.versions import Logged, history

PRODUCTS = table("products", "id", id="int4", j="jsonb", js="json", many="jsonb[]", name="text")
ORDERS = table("orders", "id", id="int4", product="int4", at="timestamptz")
ROOT = node(ORDERS, refs=(node(PRODUCTS, "product", "ref", [("product", "id")], as_of="at"),))
NAMES = ("j", "js", "many", "name")


def shown(row: dict[str, Any]) -> list[Any] | None:
    """What a row that was read once has in these columns."""
    found = Logged("public.products", 1, 10, "c", {"id": 1}, {"id": 1, **row})
    with history(ROOT, used_columns(ROOT), lambda: [found]) as was:
        return was.shown("public.products", [1], "2026-01-01T00:00:00Z", NAMES)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1.10, "b": 12345678901234567890123}',
        '{"a": 1e400}',
        '"half \\ud800"',
        "[" * 1_100 + "1e400" + "]" * 1_100,
    ],
    ids=["digits", "beyond a double", "half a surrogate pair", "deep"],
)
def test_json_is_shown_as_it_was_written(text: str) -> None:
    """In any column of a table: a reader of JSON lost digits, or ended the whole of `verify`."""
    few = text.count("[") < 1_000  # json itself is refused so deep: its keys are looked at
    found = shown({"j": text, "js": text if few else None, "many": [text, None], "name": text})
    assert found is not None
    wanted = b"[%s,%s,[%s,null],%s]" % ((raw := text.encode()), raw if few else b"null", raw, orjson.dumps(text))
    assert orjson.dumps(found) == wanted


def test_a_null_of_json_is_a_value_and_of_sql_none() -> None:
    found = shown({"j": "null", "many": ["null", None]})
    assert found is not None
    assert [type(one) for one in (found[0], *found[2])] == [orjson.Fragment, orjson.Fragment, type(None)]
    assert found[1] is found[3] is None
