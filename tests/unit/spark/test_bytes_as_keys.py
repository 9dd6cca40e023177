"""Bytes by which windows group and matches find: Java's text of them is not their own, so they are refused.

What only some rows show, a text made of bytes that are none, fails for those events inside of Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from cdc.errors import ConfigError
from cdc.fold import folded
from cdc.timed import Kind, Measure
from cdc.utf8 import whole
from spark.events import matches, measures, steady, windows
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

        for module in (windows, matches, steady):
            monkeypatch.setattr(module, "empty_frame", lambda spark, view: SimpleNamespace(columns=[]))
            monkeypatch.setattr(module, "type_of", type_of)
        monkeypatch.setattr(steady, "unsteady", lambda empty, text: "")
        monkeypatch.setattr(measures, "empty_frame", lambda spark, view: None)
        monkeypatch.setattr(measures, "_kind", lambda empty, name, said, refuse: known.get(said, TEXT))

    return types


def test_a_group_of_bytes_is_refused_and_hex_is_named(typed: Any) -> None:
    typed({"addr": BYTES})
    with pytest.raises(ConfigError, match=r"addr` is a binary, by which") as refused:
        windows.analyse_windows(SPARK, replace(VIEWS["session"], by={"about": "addr"}, measures={}))
    assert "hex(…)" in refused.value.fix and "AS string" not in refused.value.fix


@pytest.mark.parametrize(
    ("view", "analyse", "what"),
    [
        (replace(MATCHES["all"], first=Kind("true", "addr")), matches.analyse_matches, "`first.key: addr`"),
        (replace(MATCHES["all"], then=Kind("true", "addr")), matches.analyse_matches, "`then.key: addr`"),
        (
            replace(VIEWS["session"], measures={"users": Measure("approx_count_distinct", "addr")}),
            windows.analyse_windows,
            "`users: addr`",
        ),
    ],
)
def test_a_key_and_a_distinct_value_of_bytes_are_refused_of_a_file_and_not_of_what_runs(
    typed: Any, view: Any, analyse: Any, what: str
) -> None:
    typed({"addr": BYTES})
    known = analyse(SPARK, view)  # as each start of a flow does
    with pytest.raises(ConfigError, match=f"{what} is a binary, by which") as refused:
        steady.refuse_unsteady_events(SPARK, known)
    assert "hex(…)" in refused.value.fix and "AS string" not in refused.value.fix


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


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (T.ArrayType(TEXT), "(a)"),
        (T.StructType().add("t", TEXT).add("n", NUMBER), "(a)"),
        # The cast of what has bytes, too, is none of texts alone.
        (T.StructType().add("t", TEXT).add("b", BYTES).add("n", NUMBER), "struct((a).`t`)"),
        (T.ArrayType(T.StructType().add("t", TEXT).add("b", BYTES)), "transform((a), __text0 -> struct(__text0.`t`))"),
        (T.MapType(TEXT, BYTES), "struct(map_keys((a)))"),
        (T.MapType(NUMBER, T.ArrayType(T.MapType(BYTES, TEXT))),
         "struct(transform(map_values((a)), __text0 -> transform(__text0, __text1 -> struct(map_values(__text1)))))"),
    ],
)  # fmt: skip
def test_what_has_texts_in_it_is_held_against_utf_8_as_a_whole(kind: T.DataType, texts: str) -> None:
    checked = f"CASE WHEN validate_utf8(CAST({texts} AS string)) IS NOT NULL THEN (a) END"
    assert whole("(a)", kind.jsonValue()) == checked


def test_what_has_none_is_let_be() -> None:
    assert whole("(a)", T.ArrayType(NUMBER).jsonValue()) == whole("(a)", BYTES.jsonValue()) == "(a)"
    assert whole("(a)", T.StructType().add("b", BYTES).jsonValue()) == "(a)"


def test_the_state_of_a_fold_is_held_against_utf_8_at_each_event_and_one_without_texts_is_let_be() -> None:
    """Of a batch's last event alone, it would depend on what comes in one batch whether an aggregate fails."""
    texts, numbers = (T.StructType().add("s", one).jsonValue() for one in (TEXT, NUMBER))
    said = folded("event", "x", "struct<s: string>", texts)
    stepped = "element_at(transform(array(coalesce(held, CAST(x AS struct<s: string>))), state -> CAST((event) AS"
    checked = "made -> CASE WHEN validate_utf8(CAST(made AS string)) IS NOT NULL THEN made END), 1)"
    assert said.startswith(f"aggregate(events, held, (held, event) -> element_at(transform(array({stepped}")
    assert said.endswith(f"), 1)), {checked})")
    assert "validate_utf8" not in folded("event", "x", "struct<s: int>", numbers)


def test_verification_counts_a_value_of_which_it_asks_no_more_than_whether_it_is_there() -> None:
    assert _asked(Measure("count", "cast(addr as string)")) == "CASE WHEN (cast(addr as string)) IS NOT NULL THEN 1 END"
