"""Which columns an expression names, and the same expression over a struct. Spark's own opinion: tests/integration."""

# ruff: noqa: E501 - tables of expressions

from __future__ import annotations

import pytest

from cdc.join.expressions import identifier, mentions, names, over_struct, tokens

WORDS = """end for from all any some exists and or not is in like between case when then else as div escape distinct
    interval"""
NAMES = ("cancelled", "year", "date", "Name", "a", "tags", "day", *WORDS.split())

# expression -> the same over the struct `t0`, whose columns are marked {so}
OVER = [
    ("NOT cancelled", "NOT {cancelled}"),
    ("year(date) + YEAR", "year({date}) + {year}"),
    ("NAME = 'a year' -- a day\n AND `a` = \"a\"", "{Name} = 'a year' -- a day\n AND {a} = \"a\""),
    ("a /* day /* year */ day */ + day", "{a} /* day /* year */ day */ + {day}"),
    ("name LIKE r'\\' AND a", "{Name} LIKE r'\\' AND {a}"),
    ("'it\\'s a' || name || 'a''a'", "'it\\'s a' || {Name} || 'a''a'"),
    ("CAST(a AS date) > date '2020-01-01'", "CAST({a} AS date) > date '2020-01-01'"),
    ("CAST(a AS struct<day:int, a:decimal(3,1)>) = day", "CAST({a} AS struct<day:int, a:decimal(3,1)>) = {day}"),
    ("CAST(a AS interval day to second) + day", "CAST({a} AS interval day to second) + {day}"),
    ("a::date < day", "{a}::date < {day}"),
    ("a::array<array<int>> = tags", "{a}::array<array<int>> = {tags}"),
    ("struct(a AS year, day)", "struct({a} AS year, {day})"),
    ("named_struct('a', a)", "named_struct('a', {a})"),
    ("transform(tags, a -> a + year)", "transform({tags}, a -> a + {year})"),
    ("aggregate(tags, 0, (a, day) -> a + day, a -> a) + a", "aggregate({tags}, 0, (a, day) -> a + day, a -> a) + {a}"),
    ("filter(tags, a -> exists(tags, day -> day = a)) = day", "filter({tags}, a -> exists({tags}, day -> day = a)) = {day}"),
    ("EXTRACT(year FROM date)", "EXTRACT(year FROM {date})"),
    ("trim(BOTH 'a' FROM name)", "trim(BOTH 'a' FROM {Name})"),
    ("dateadd(DAY, 1, date)", "dateadd(DAY, 1, {date})"),
    ("date_add(day, 1)", "date_add({day}, 1)"),
    ("date + interval 5 day - interval '1' year", "{date} + interval 5 day - interval '1' year"),
    ("CASE WHEN a THEN year ELSE day END + a", "CASE WHEN {a} THEN {year} ELSE {day} END + {a}"),
    ("a IS NOT DISTINCT FROM day", "{a} IS NOT DISTINCT FROM {day}"),
    ("a IN (day, year) OR a BETWEEN day AND year", "{a} IN ({day}, {year}) OR {a} BETWEEN {day} AND {year}"),
    ("a.year.day + tags[day].year", "{a}.year.day + {tags}[{day}].year"),
    ("-a * .5e3 - a*1L", "-{a} * .5e3 - {a}*1L"),
    ("1 + 2", "1 + 2"),
    ("airline.name", "airline.name"),
    ("to_json(struct(*))", "to_json(struct(`t0`.*))"),
    ("datediff(end, from) > 3 AND end - from < 5", "datediff({end}, {from}) > 3 AND {end} - {from} < 5"),
    ("-END || '' || (for * all)", "-{end} || '' || ({for} * {all})"),
    ("CASE WHEN end > 3 THEN end ELSE end END + end", "CASE WHEN {end} > 3 THEN {end} ELSE {end} END + {end}"),
    ("CASE end WHEN from THEN from END", "CASE {end} WHEN {from} THEN {from} END"),
    ("CASE when WHEN then THEN else ELSE then END", "CASE {when} WHEN {then} THEN {else} ELSE {then} END"),
    ("CASE + a WHEN 1 THEN case END", "CASE + {a} WHEN 1 THEN {case} END"),
    ("a + case * 2", "{a} + {case} * 2"),
    ("a NOT IN (in, is) AND in NOT BETWEEN and AND or", "{a} NOT IN ({in}, {is}) AND {in} NOT BETWEEN {and} AND {or}"),
    ("a NOT LIKE like ESCAPE '!' OR like LIKE ANY ('a', 'b')", "{a} NOT LIKE {like} ESCAPE '!' OR {like} LIKE ANY ('a', 'b')"),
    ("NOT not OR not IS NOT NULL AND (not = a)", "NOT {not} OR {not} IS NOT NULL AND ({not} = {a})"),
    ("end IS NOT DISTINCT FROM from AND is IS DISTINCT FROM end", "{end} IS NOT DISTINCT FROM {from} AND {is} IS DISTINCT FROM {end}"),
    ("EXTRACT(day FROM from) + EXTRACT(YEAR FROM end)", "EXTRACT(day FROM {from}) + EXTRACT(YEAR FROM {end})"),
    ("trim(BOTH FROM from) || trim(LEADING 'a' FROM end)", "trim(BOTH FROM {from}) || trim(LEADING 'a' FROM {end})"),
    ("substring(from FROM for FOR end)", "substring({from} FROM {for} FOR {end})"),
    ("exists(tags, any -> any > some) = exists", "exists({tags}, any -> any > {some}) = {exists}"),
    ("coalesce(all, any, distinct) div div", "coalesce({all}, {any}, {distinct}) div {div}"),
    ("transform(tags, end -> end + from)", "transform({tags}, end -> end + {from})"),
    ("CAST(end AS date) = from::date", "CAST({end} AS date) = {from}::date"),
    ("CASE WHEN a THEN interval 5 day END", "CASE WHEN {a} THEN interval 5 day END"),
    ("interval 1 day * a + interval '1' year", "interval 1 day * {a} + interval '1' year"),
    ("interval -1 day 2 hours - interval", "interval -1 day 2 hours - {interval}"),
    ("date + interval '1-2' year to month * day", "{date} + interval '1-2' year to month * {day}"),
    ("interval - a * from", "{interval} - {a} * {from}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "over"), OVER)
def test_columns_get_the_struct_s_name_and_nothing_else_does(text: str, over: str) -> None:
    expected = over
    for name in NAMES:
        expected = expected.replace("{" + name + "}", f"`t0`.`{name}`")
    assert over_struct(text, NAMES, "t0") == expected
    for name in NAMES:
        if "{" + name + "}" in over:
            assert name in mentions(text, NAMES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("upper(Flight) || 'carrier'", {"flight"}),
        ("year(carrier)", {"carrier"}),
        ("airline.name", {"name"}),
        ("`year` > 5 -- flight", {"year"}),
        ("f(carrier", {"carrier"}),
        ("'carrier", set()),
        ("struct(*)", {"flight", "year", "name", "carrier"}),
        ("struct(airline.*)", {"flight", "year", "name", "carrier"}),
        ("flight * year", {"flight", "year"}),
        ("interval 1 day * year", {"year"}),
        ("", set()),
    ],
)
def test_mentions(text: str, found: set[str]) -> None:
    assert mentions(text, ("flight", "year", "name", "carrier")) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("datediff(end, start) > 3", {"end"}),
        ("CASE WHEN start > 3 THEN END ELSE 0 END", {"end"}),
        ("CASE WHEN start > 3 THEN `end` END", {"end"}),
        ("CASE WHEN start > 3 THEN start END", set()),
        ("from * a", {"a"}),  # and `from`, of which nothing is asked
        ("interval 1 day * a", {"a"}),
        ("struct(*)", set()),
    ],
)
def test_names_of_columns_that_are_words_of_the_grammar(text: str, found: set[str]) -> None:
    assert names(text, ("end", "a")) == found


def test_names_that_need_quoting() -> None:
    assert over_struct("`x ``y`` z` + 1", ["x `y` z"], "t`0") == "`t``0`.`x ``y`` z` + 1"
    assert over_struct("größe + Größe", ["größe"], "t") == "`t`.`größe` + `t`.`größe`"


def test_columns_that_differ_in_letter_case_only_stay_as_they_are_written() -> None:
    assert over_struct("a + A", ["a", "A"], "t") == "`t`.`a` + `t`.`A`"


@pytest.mark.parametrize(
    ("text", "name"),
    [("distance", "distance"), (" `a b` ", "a b"), ("2nd", "2nd"), ("a.b", None), ("1", None), ("'a'", None), ("", None)],
)  # fmt: skip
def test_identifier(text: str, name: str | None) -> None:
    assert identifier(text) == name


def test_tokens_know_their_places() -> None:
    text = "a>= `b``c` /* x */ + 1.5D -- end"
    found = tokens(text)
    assert [(token.kind, token.text) for token in found] == [
        ("word", "a"),
        ("symbol", ">="),
        ("quoted", "b`c"),
        ("symbol", "+"),
        ("number", "1.5D"),
    ]
    assert [text[token.start : token.end] for token in found] == ["a", ">=", "`b``c`", "+", "1.5D"]
