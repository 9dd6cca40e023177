"""Spark SQL that fails for one row: that document's dead letter, no other's trouble, and verification says the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc.errors import ConfigError
from cdc.join.tree import Aggregate
from cdc.join.view import JoinedView
from cdc.view import View
from spark.join import child_expressions
from spark.join.records import RecordReader
from spark.machine.quiet import hush
from spark.reading.computed import reason
from spark.reading.entries import OWN, Decoded, Entry, EntryDecoder
from spark.reading.expressions import PREFIX, analyse, compute, entry_batch, refuse_unsteady, without_tallies
from spark.reading.spec import FlowSpec
from spark.warehouse.keyless import why_failed
from spark.warehouse.merge import ENTRY, GONE, LETTER, table_rows, with_expressions
from spark.write import NEW, from_arrow
from tests.support.plain_spark import engine_session
from tests.support.trees import node, table
from truth.spark_sql import FAILED, Broken, ask, computed, table_shape

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.sampled(part=0),
]

TABLE = table("t", "id", id="int4", a="int4", b="int4", s="text", n="numeric(4,2)", l="int4[]", d="text")
TOPIC = "p.public.t"
ROWS: dict[int, dict[str, Any]] = {
    1: {"a": 10, "b": 2, "s": "7", "n": "1.50", "l": list(range(12)), "d": "2013-01-01"},
    2: {"a": 10, "b": 0, "s": "x", "n": "99.99", "l": [1], "d": "2013-02-30"},
    3: {"a": 2**31 - 1, "b": None, "s": None, "n": None, "l": None, "d": None},
}
# Spark SQL that fails for row 2 alone -> the class of the error.
FAILING = {
    "a / b": "DIVIDE_BY_ZERO",
    "a % b": "REMAINDER_BY_ZERO",
    "CAST(s AS int)": "CAST_INVALID_INPUT",
    "CAST(n * 10 AS decimal(4,2))": "NUMERIC_VALUE_OUT_OF_RANGE",
    "l[b + 2]": "INVALID_ARRAY_INDEX",
    "element_at(l, a)": "INVALID_ARRAY_INDEX_IN_ELEMENT_AT",
    "CAST(d AS date)": "CAST_INVALID_INPUT",
    "transform(l, x -> x / b)": "DIVIDE_BY_ZERO",
    "if(b = 0, raise_error('no'), 'well')": "USER_RAISED_EXCEPTION",
    # What two of them share must not be computed once for both, outside of what guards each.
    "a / b + 1": "DIVIDE_BY_ZERO",
    "coalesce(a / b, 0)": "DIVIDE_BY_ZERO",
    # Any bytes are a string after a cast: Spark has no error for it.
    "CAST(unhex(if(b = 0, 'C0', '41')) AS string)": "",
    "array(struct(CAST(unhex(if(b = 0, 'C0', '41')) AS string) AS t))": "",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with engine_session() as session:
        yield session


def view_with(fields: Mapping[str, str], where: str | None = None) -> View:
    return replace(View.identity(TABLE), name="v", fields=dict(fields), where=where)


@pytest.mark.parametrize(
    ("expression", "why"),
    [("a < 5 AN b", r"PARSE_SYNTAX_ERROR.*'b'"), ("nothing + 1", r"UNRESOLVED_COLUMN.*nothing"), ("s[5]", "s")],
)
def test_what_spark_refuses_is_told_with_its_reason_and_nothing_else(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], expression: str, why: str
) -> None:
    hush()
    over = rf"is not Spark SQL over public\.t: \[.*{why}"
    with pytest.raises(ConfigError, match=over):
        analyse(spark, view_with({"f": expression}))
    with pytest.raises(ConfigError, match=over):
        child_expressions.analysed(spark, joined(Aggregate("n", TABLE, (("id", "id"),), "max", value=expression)))
    with pytest.raises(ConfigError, match=over) as refused:
        child_expressions.analysed(spark, joined(Aggregate("n", TABLE, (("id", "id"),), "count", where=expression)))
    assert "__t" not in str(refused.value) and "__row" not in str(refused.value)
    assert "ContextLogger" not in capfd.readouterr().err


def test_a_word_at_the_end_is_no_name_of_the_result(spark: SparkSession) -> None:
    """Spark alone reads ``a < 5 AND`` as ``a < 5 AS `AND` ``: the view would miss a condition, unsaid."""
    over = r"is not Spark SQL over public\.t: its last word is taken for a name"
    for said in ("a < 5 AND", "a < 5 and_more", "a < 5 AS b"):
        for view in (view_with({"f": said}), view_with({}, where=said)):
            with pytest.raises(ConfigError, match=over):
                analyse(spark, view)
        for aggregate in (
            Aggregate("n", TABLE, (("id", "id"),), "max", value=said),
            Aggregate("n", TABLE, (("id", "id"),), "count", where=said),
        ):
            with pytest.raises(ConfigError, match=over):
                child_expressions.analysed(spark, joined(aggregate))
    assert analyse(spark, view_with({"f": "a < 5 -- a comment"}, where="(a < 5)")).types == {"f": "boolean"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("sum(a)", "many rows to one"),
        ("count(*)", "many rows to one"),
        ("1 + max(a)", "many rows to one"),
        ("explode(l)", "makes rows of one row"),
        ("row_number() OVER (ORDER BY id)", "looks at other rows"),
        ("lag(a) OVER (ORDER BY id) + 1", "looks at other rows"),
        ("*", "several columns"),
    ],
)
def test_what_is_no_value_of_one_row_is_refused(spark: SparkSession, said: str, why: str) -> None:
    """Spark alone takes them: the flow would fail at each start, or number the rows of a batch."""
    over = rf"is not Spark SQL over public\.t: it .*{why}"
    with pytest.raises(ConfigError, match=over):
        analyse(spark, view_with({"f": said}))
    if said != "*":
        with pytest.raises(ConfigError, match=over):
            child_expressions.analysed(spark, joined(Aggregate("n", TABLE, (("id", "id"),), "max", value=said)))
    if "(a)" in said or "(*)" in said or "OVER" in said:
        with pytest.raises(ConfigError, match=over):
            analyse(spark, view_with({}, where=f"{said} > 1"))


def test_a_condition_of_an_aggregate_that_is_none_is_told_in_its_own_words(spark: SparkSession) -> None:
    counted = Aggregate("n", TABLE, (("id", "id"),), "count", where="a + 1")
    with pytest.raises(ConfigError, match=r"aggregate n: `where: a \+ 1` must be true or false for a row") as refused:
        child_expressions.analysed(spark, joined(counted))
    assert "__t" not in str(refused.value)


@pytest.mark.parametrize("said", ["rand()", "uuid()", "now()", "current_date() - a", "concat(current_user(), a)"])
def test_what_is_not_made_of_the_row_alone_is_refused_before_it_is_applied(spark: SparkSession, said: str) -> None:
    """Each sink, rebuild and verify would get another document of the same row."""
    view = view_with({"f": said, "steady": "a + 1"})
    assert "f" in analyse(spark, view).types  # what runs goes on
    with pytest.raises(ConfigError, match=r"`f: .* is not made of the row alone") as refused:
        refuse_unsteady(spark, view)
    assert "steady" not in str(refused.value)
    counted = joined(Aggregate("n", TABLE, (("id", "id"),), "max", value=said))
    with pytest.raises(ConfigError, match=r"aggregate n: .* is not made of the row alone"):
        child_expressions.refuse_unsteady_parts(spark, counted)


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ("conkat(a, 1)", "use a function that Spark SQL has"),
        ("a + + stage (", "write one expression"),
        ("date_add(l, 1)", "cast one side"),
        ("nothing + 1", "own column names"),
        ("a::text", "string"),
        ("a::varchar", "string"),
        ("s['a']", "get_json_object"),
        ("g + 1", "does not see the view's other fields"),
        ("sum(a)", "this row's own columns"),
    ],
)
def test_the_way_out_fits_what_is_wrong(spark: SparkSession, said: str, way: str) -> None:
    with pytest.raises(ConfigError) as refused:
        analyse(spark, view_with({"f": said, "g": "a"}))
    assert way in refused.value.fix, refused.value


def test_a_column_in_postgres_quotes_is_refused_of_a_file_and_not_of_what_runs(spark: SparkSession) -> None:
    view = view_with({"f": 'upper("S")'}, where="\"b\" = 'x'")
    assert "f" in analyse(spark, view).types
    with pytest.raises(ConfigError) as refused:
        refuse_unsteady(spark, view)
    assert 'f: in Spark SQL "S" is a text' in str(refused.value) and "where: in Spark" in str(refused.value)
    counted = joined(Aggregate("n", TABLE, (("id", "id"),), "max", value='concat("s", "x")'))
    with pytest.raises(ConfigError, match="aggregate n: in Spark SQL"):
        child_expressions.refuse_unsteady_parts(spark, counted)
    refuse_unsteady(spark, view_with({"f": "concat(`s`, \"x\", 's')"}))


@pytest.mark.parametrize("said", ["aggregate(l, 0, (x, y) -> x + y)", "size(filter(l, x -> x > 1))", "greatest(a, b)"])
def test_what_looks_into_one_row_is_taken(spark: SparkSession, said: str) -> None:
    assert analyse(spark, view_with({"f": said})).types == {"f": "int"}


def spec_of(view: View) -> FlowSpec:
    return FlowSpec("sink", {"v": view}, {TOPIC: ("v",)}, {TOPIC: TABLE}, {}, {})


def event(key: int, after: Mapping[str, Any] | None, lsn: int) -> tuple[bytes, bytes]:
    source = {"schema": "public", "table": "t", "lsn": lsn, "ts_ms": 1, "sequence": f'[null,"{lsn}"]'}
    row = None if after is None else {"id": key, **after}
    change = {"op": "d" if after is None else "u", "source": source, "before": None, "after": row}
    return orjson.dumps({"id": key}), orjson.dumps(change)


def records(rows: Mapping[int, Mapping[str, Any] | None]) -> pa.RecordBatch:
    made = [event(key, after, 80 + 8 * key) for key, after in rows.items()]
    columns = {
        "key": pa.array([key for key, _ in made], pa.binary()),
        "value": pa.array([value for _, value in made], pa.binary()),
        "topic": pa.array([TOPIC] * len(made)),
        "partition": pa.array([0] * len(made), pa.int32()),
        "offset": pa.array(range(len(made)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def entries(view: View, rows: Mapping[int, Mapping[str, Any] | None] = ROWS, **how: Any) -> pa.RecordBatch:
    spec = spec_of(view)
    decoded = EntryDecoder(spec, typed=True).decode(records(rows))
    assert not decoded.letters
    return entry_batch(spec, view, Decoded([one._replace(**how) for one in decoded.entries], [], len(rows)))


def applied(spark: SparkSession, view: View, batch: pa.RecordBatch) -> Decoded:
    """What the second half of a flow is given, and makes of it."""
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    (made,) = compute(frame, view).toArrow().combine_chunks().to_batches()
    return from_arrow(spec_of(view), made)


def documents(decoded: Decoded) -> dict[str, Any]:
    return {one.id: None if one.document is None else orjson.loads(one.document) for one in decoded.entries}


def test_each_way_to_fail_is_one_documents_dead_letter(spark: SparkSession) -> None:
    for said, error in FAILING.items():
        view = view_with({"x": said})
        decoded = applied(spark, view, entries(view))
        found = documents(decoded)
        assert found["1"] is not None and "x" in found["1"], said
        assert [one.id for one in decoded.entries if one.document is None] == ["2"], said
        assert [letter.key for letter in decoded.letters] == ["2"], said
        for letter in decoded.letters:
            assert f"field x: `{said}`" in letter.reason and letter.version > 0 and letter.document, said
            assert (letter.topic, letter.offset) == (TOPIC, int(letter.key) - 1)
        assert_verification_agrees(spark, view, found, error)


def assert_verification_agrees(spark: SparkSession, view: View, found: Mapping[str, Any], error: str) -> None:
    """The other way to the same values, by texts: the same rows have no document, and Spark's words are at hand."""
    shape = table_shape(TABLE, view.fields.values())
    rows = [{"id": key, **row} for key, row in ROWS.items()]
    for row, wanted in zip(rows, computed(spark, view, shape, rows, words=True), strict=True):
        held = found[str(row["id"])]
        if isinstance(wanted, Broken):
            assert held is None and (f"[{error}" if error else "not UTF-8") in wanted.words, (view.fields, wanted)
        else:
            assert wanted is not None and held is not None and held["x"] == plain(wanted["x"]), view.fields


def plain(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value, default=str))


def test_all_at_once_each_row_has_its_own_reasons(spark: SparkSession) -> None:
    view = view_with({f"x{number}": said for number, said in enumerate(FAILING)} | {"fine": "upper(s)"})
    decoded = applied(spark, view, entries(view))
    assert documents(decoded)["1"]["fine"] == "7"
    reasons = {letter.key: letter.reason for letter in decoded.letters}
    assert list(reasons) == ["2"], "nulls are no failures"
    assert all(f"`{said}`" in reasons["2"] for said in FAILING) and "`upper(s)`" not in reasons["2"]
    assert '"b":0' in reasons["2"]


def test_the_condition_goes_first(spark: SparkSession) -> None:
    guarding = view_with({"x": "a / b"}, where="b <> 0")
    decoded = applied(spark, guarding, entries(guarding))
    assert {key: document is not None for key, document in documents(decoded).items()} == {
        "1": True,
        "2": False,
        "3": False,
    }
    assert not decoded.letters, "a row that the condition leaves out may be anything"
    failing = view_with({"x": "a"}, where="a / b > 1")
    [letter] = applied(spark, failing, entries(failing)).letters
    assert letter.key == "2" and "where: `a / b > 1`" in letter.reason and "field" not in letter.reason


def test_deletes_are_not_computed_and_a_good_change_brings_the_document_back(spark: SparkSession) -> None:
    view = view_with({"x": "10 / a"})
    rows: dict[int, dict[str, Any] | None] = {4: None, 5: {**ROWS[1], "a": 0}}
    decoded = applied(spark, view, entries(view, rows))
    assert documents(decoded) == {"4": None, "5": None} and [letter.key for letter in decoded.letters] == ["5"]
    [entry] = applied(spark, view, entries(view, {5: {**ROWS[1], "a": 5}})).entries
    assert entry.document is not None and orjson.loads(entry.document)["x"] == 2.0


def test_a_document_that_was_never_written_is_not_deleted(spark: SparkSession) -> None:
    view = view_with({"x": "a / b"})
    decoded = applied(spark, view, entries(view, {2: ROWS[2]}, offset=NEW))
    assert decoded.entries == [] and [letter.key for letter in decoded.letters] == ["2"]


def test_a_warehouse_leaves_the_row_out_and_says_why(spark: SparkSession) -> None:
    view = view_with({"x": "a / b"}, where="id < 3")
    own = F.struct(*(F.col(PREFIX + name).alias(name) for name in OWN)).alias(ENTRY)
    frame = without_tallies(spark.createDataFrame(pa.Table.from_batches([entries(view)])))
    rows = {row[ENTRY]["id"]: row for row in table_rows(with_expressions(frame, view), view, own).toArrow().to_pylist()}
    assert {key: row[GONE] for key, row in rows.items()} == {"1": False, "2": True, "3": True}
    assert rows["1"]["x"] == 5.0 and rows["1"][LETTER] is None and rows["3"][LETTER] is None
    letter = rows["2"][LETTER]
    assert "field x: `a / b`" in reason(view, letter["columns"], letter["seen"])
    assert Entry(*(rows["2"][ENTRY][name] for name in OWN)).version > 0


def joined(*aggregates: Aggregate) -> JoinedView:
    parents = table("p", "id", id="int4")
    tree = node(parents, aggregates=aggregates)
    return JoinedView("v", parents, ("id",), tuple((c, c) for c in ("id",)), root=tree)


def read_rows(spark: SparkSession, view: JoinedView, rows: Mapping[int, Mapping[str, Any]]) -> tuple[list[Any], Any]:
    """The stored rows of the table below, and the letters."""
    spec = FlowSpec("sink", {"v": view}, {TOPIC: ("v",)}, {TOPIC: TABLE}, {}, {})
    (batch,) = child_expressions.with_structs(spec.pack(), iter([records(rows)]))
    frame = spark.createDataFrame(pa.Table.from_batches([batch])).select(*child_expressions.computed_columns(view))
    (made,) = frame.toArrow().combine_chunks().to_batches()
    taken = RecordReader(spec, view).read(made)
    return [change.row for change in taken.changes], taken.letters


def test_a_row_below_adds_nothing_where_it_can_not_be_computed(spark: SparkSession) -> None:
    on = (("id", "a"),)
    ratio = Aggregate("ratio", TABLE, on, "sum", value="n / b")
    many = Aggregate("many", TABLE, on, "count", where="CAST(s AS int) > 0")
    view = child_expressions.analysed(spark, joined(ratio, many))
    stored, letters = read_rows(spark, view, ROWS)
    assert [row[-2:] for row in stored] == [[stored[0][-2], 1], [None, None], [None, None]]
    assert float(stored[0][-2]) == 0.75
    [letter] = letters
    assert (letter.key, letter.table) == (
        "2",
        TABLE.qualified,
    ) and "aggregate ratio: `n / b`" in letter.reason
    assert "aggregate many: `* where CAST(s AS int) > 0`" in letter.reason and '"b":0' in letter.reason
    answers = ask(spark, table_shape(TABLE, ["n / b"]), [{"id": k, **row} for k, row in ROWS.items()], ["n / b"])
    assert [row[0] is FAILED for row in answers.rows] == [False, True, False], "verification leaves the same row out"
    again, none = read_rows(spark, view, {2: {**ROWS[2], "b": 1, "s": "4"}})
    assert again[0][-1] == 1 and none == []


def test_a_key_that_a_table_can_not_hold_fails_where_the_condition_takes_the_row(spark: SparkSession) -> None:
    """With null in its key each change would add a row, and no delete would find one (spark/warehouse/keyless.py)."""
    keyed = table("k", "id", id="date", a="int4")
    view = replace(View.identity(keyed), name="v", where="a < 5")
    spec = FlowSpec("sink", {"v": view}, {TOPIC: ("v",)}, {TOPIC: keyed}, {}, {})
    days = {"infinity": 1, "-infinity": 9, "2026-01-01": 1}
    given = enumerate(days.items())
    made = [Entry("v", day, 7, orjson.dumps({"id": day, "a": a}), TOPIC, 0, at, 0) for at, (day, a) in given]
    typed = [one._replace(row=(None if "infinity" in one.id else date(2026, 1, 1), days[one.id])) for one in made]
    batch = entry_batch(spec, view, Decoded(typed, [], 3))
    frame = without_tallies(spark.createDataFrame(pa.Table.from_batches([batch])))
    own = F.struct(*(F.col(PREFIX + name).alias(name) for name in OWN)).alias(ENTRY)
    rows = {row[ENTRY]["id"]: row for row in table_rows(with_expressions(frame, view), view, own).toArrow().to_pylist()}
    assert {day: row[GONE] for day, row in rows.items()} == {"infinity": True, "-infinity": True, "2026-01-01": False}
    assert {day: row[LETTER] is not None for day, row in rows.items()} == {
        "infinity": True,
        "-infinity": False,
        "2026-01-01": False,
    }
    assert "key column id is infinity" in why_failed(view, "infinity", rows["infinity"][LETTER])


def test_a_row_below_as_a_whole_has_its_own_columns_and_no_other(spark: SparkSession) -> None:
    """What tells a row from none showed as one of its columns."""
    whole = Aggregate("whole", TABLE, (("id", "a"),), "min", value="to_json(struct(*))")
    always = Aggregate("always", TABLE, (("id", "a"),), "count", where="1 = 1")
    stored, letters = read_rows(spark, child_expressions.analysed(spark, joined(whole, always)), ROWS)
    assert not letters and [row[-1] for row in stored] == [1, 1, 1]
    assert [list(orjson.loads(row[-2])) for row in stored] == [[*TABLE.by_name], [*TABLE.by_name], ["id", "a"]]
    stored, _ = read_rows(spark, child_expressions.analysed(spark, joined(always)), ROWS)
    assert [row[-1] for row in stored] == [1, 1, 1]


def test_the_greatest_interval_is_refused_and_its_length_is_not(spark: SparkSession) -> None:
    taken = Aggregate("longest", TABLE, (("id", "a"),), "max", value="CAST(a AS interval day)")
    with pytest.raises(ConfigError, match="gives interval day, which has no order here") as refused:
        child_expressions.analysed(spark, joined(taken))
    assert "`unix_micros(CAST(b AS timestamp)) - " in str(refused.value)
    moments = [f"{kind} '2013-01-0{day}'" for day, kind in enumerate(("timestamp", "timestamp_ntz", "date"), 1)]
    lengths = [
        f"unix_micros(CAST({one} AS timestamp)) - unix_micros(CAST({moments[0]} AS timestamp))" for one in moments
    ]
    for value in (*lengths, "CAST(a AS tinyint)"):
        view = child_expressions.analysed(spark, joined(replace(taken, value=value)))
        assert view.arrow_schema().field("longest") is not None
