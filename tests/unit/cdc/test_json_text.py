"""What Postgres calls JSON and no reader of JSON does: read all the same, and cut without being read."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.json_text import DEEPEST, elements, many_levels, members, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=20,
)


def nested(levels: int) -> str:
    return '[{"a":' * (levels // 2) + "1e400" + "}]" * (levels // 2)


@given(value=VALUES, blanks=st.booleans(), ascii_only=st.booleans())
def test_what_anybody_reads_is_read_alike(value: Any, blanks: bool, ascii_only: bool) -> None:
    text = json.dumps(value, indent=1 if blanks else None, ensure_ascii=ascii_only)
    assert read(text, int) == value and read(text.encode(errors="surrogatepass"), int) == value


@given(value=st.dictionaries(st.text(), VALUES), blanks=st.booleans())
def test_what_stands_in_an_object_or_array_is_cut_out_as_it_stands(value: dict[str, Any], blanks: bool) -> None:
    text = json.dumps(value, indent=1 if blanks else None)
    cut = members(text)
    assert {name: json.loads(one) for name, one in cut.items()} == value and all(one in text for one in cut.values())
    assert [json.loads(one) for one in elements(json.dumps(list(value.values())))] == list(value.values())


def test_digits_and_halves_and_depth_stay_when_it_is_cut() -> None:
    odd = ["1e400", "1" * 5_000, '"\\ud800"', nested(5_000), "0.10", '{"a":"]\\"}"}']
    assert elements(f"[ {' , '.join(odd)} ]") == odd
    assert members("{" + ",".join(f'"{n}" : {one}' for n, one in enumerate(odd)) + "}") == {
        str(n): one for n, one in enumerate(odd)
    }


def test_what_nobody_reads_becomes_what_everybody_writes() -> None:
    assert read('{"a":1e400,"b":1%s}' % ("0" * 5_000)) == {"a": float("inf"), "b": float("inf")}
    assert read(r'["\ud800","\\ud800","\ud83d\ude00","\udc00\ud83d\ude00","\ud800\ud800"]') == [
        r"\ud800", r"\ud800", "😀", r"\udc00😀", r"\ud800\ud800"
    ]  # fmt: skip
    for levels in (DEEPEST, DEEPEST + 2, 1_100, 20_000):
        text = nested(levels)
        found = read(text)
        orjson.dumps({"in": [found]})
        for _ in range(min(levels, DEEPEST) // 2):
            found = found[0]["a"]
        assert found == (float("inf") if levels <= DEEPEST else nested(levels - DEEPEST)), levels
    assert many_levels(nested(DEEPEST + 2)) and not many_levels(nested(DEEPEST).encode())


@pytest.mark.parametrize(
    "text", ["", "{", "[1,", '{"a"}', '{"a":1,}x', "[" * 5_000, "NaN", '["\x01"]', b'"\xff"', "1 2"]
)
def test_what_is_no_json_is_none(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        read(text)


@pytest.mark.parametrize("text", ["", "{", "7", "{1:2}", '{"a" 1}', '{"a":', '{"a":1', "[" * 5_000])
def test_what_is_no_object_is_not_cut(text: str) -> None:
    for cut in (members, elements):
        with pytest.raises(ValueError):
            cut(text)
