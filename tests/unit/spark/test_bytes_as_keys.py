"""Bytes by which windows group and matches find: Java's text of them is not their own, so they are refused.

What only some rows show, a text made of bytes that are none, fails for those events inside of Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import types as T

from cdc.errors import ConfigError
from cdc.timed import Kind, Measure
from spark.events import matches, measures, windows
from spark.reading.guard import whole
from tests.support.timed import MATCHES, VIEWS
from truth.events.measured import _asked

TEXT, BYTES, NUMBER = T.StringType(), T.BinaryType(), T.IntegerType()
SPARK: Any = None


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, T.DataType]], None]:
    """Says of which type expressions are, in Spark's place; others are texts."""

    def types(known: dict[str, T.DataType]) -> None:
        def type_of(empty: Any, view: Any, path: Any, said: str, refuse: Any, name: str = "") -> T.DataType:
            return T.BooleanType() if path[-1] == "where" else known.get(said, TEXT)

        for module in (windows, matches):
            monkeypatch.setattr(module, "empty_frame", lambda spark, view: None)
            monkeypatch.setattr(module, "type_of", type_of)
        monkeypatch.setattr(measures, "empty_frame", lambda spark, view: None)
        monkeypatch.setattr(measures, "_kind", lambda empty, name, said, refuse: known.get(said, TEXT))

    return types


def test_a_group_a_key_and_a_distinct_value_of_bytes_are_refused_and_hex_is_named(typed: Any) -> None:
    typed({"addr": BYTES})
    window = replace(VIEWS["session"], by={"about": "addr"}, measures={})
    match = replace(MATCHES["all"], first=Kind("true", "addr"))
    follows = replace(MATCHES["all"], then=Kind("true", "addr"))
    for analyse, view in ((windows.analyse_windows, window), (matches.analyse_matches, match)):
        with pytest.raises(ConfigError, match=r"addr` is a binary, by which") as refused:
            analyse(SPARK, view)  # type: ignore[arg-type]
        assert "hex(…)" in refused.value.fix and "AS string" not in refused.value.fix
    with pytest.raises(ConfigError, match=r"then\.key: addr"):
        matches.analyse_matches(SPARK, follows)
    distinct = replace(VIEWS["session"], measures={"users": Measure("approx_count_distinct", "addr")})
    with pytest.raises(ConfigError, match=r"addr is a binary: make a text of it: hex"):
        windows.analyse_windows(SPARK, distinct)


def test_another_type_is_still_told_to_be_cast(typed: Any) -> None:
    typed({"price": T.DoubleType()})
    with pytest.raises(ConfigError) as refused:
        windows.analyse_windows(SPARK, replace(VIEWS["session"], by={"about": "price"}))
    assert "AS string" in refused.value.fix


def test_texts_of_a_window_are_held_against_utf_8_and_nothing_else_is(typed: Any) -> None:
    typed({"n": NUMBER})
    view = replace(
        VIEWS["session"],
        by={"about": "cast(addr as string)", "n": "n"},
        measures={
            "users": Measure("approx_count_distinct", "n"),
            "word": Measure("max", "type"),
            "top": Measure("max", "n"),
            "all": Measure("count", "type"),
        },
        state={"about": "string", "n": "int"},
    )
    assert windows._parts(view, measures.planned(SPARK, view, lambda name, why: AssertionError(why)))[1:] == [
        "validate_utf8((cast(addr as string))) AS `about`",
        "(n) AS `n`",
        "(validate_utf8(CAST((n) AS string))) AS `__0`",
        "(validate_utf8((type))) AS `__1`",
        "(CAST((n) AS bigint)) AS `__2`",
        "(CASE WHEN (type) IS NOT NULL THEN 1L END) AS `__3`",
    ]


def test_the_key_and_the_texts_of_a_match_are_held_against_utf_8() -> None:
    kind = Kind("true", "addr", {"user": "type", "n": "n"})
    _, key, fields = matches._computed(kind, [TEXT, NUMBER])
    assert key == "CASE WHEN (true) THEN validate_utf8(CAST((addr) AS string)) END"
    said = ("validate_utf8((type)) END AS `user`", "(n) END AS `n`")
    assert fields == "struct(" + ", ".join(f"CASE WHEN (true) THEN {one}" for one in said) + ")"
    assert matches._computed(Kind("true", "addr"), [])[2] == "struct(true AS `__`)"


def test_what_has_texts_in_it_is_held_against_utf_8_as_a_whole() -> None:
    assert whole("(a)", T.ArrayType(TEXT)) == "CASE WHEN validate_utf8(CAST((a) AS string)) IS NOT NULL THEN (a) END"
    assert whole("(a)", T.ArrayType(NUMBER)) == whole("(a)", BYTES) == "(a)"


def test_verification_counts_a_value_of_which_it_asks_no_more_than_whether_it_is_there() -> None:
    assert _asked(Measure("count", "cast(addr as string)")) == "CASE WHEN (cast(addr as string)) IS NOT NULL THEN 1 END"
