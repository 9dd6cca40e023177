"""``over_struct`` against Spark's own parser: over columns and over a struct, an expression gives the same values."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc.join.expressions import mentions, over_struct, quoted

COLUMNS = {
    "cancelled": "true",
    "year": "2013",
    "date": "date '2013-01-02'",
    "Name": "'aBc'",
    "a": "7",
    "tags": "array(1, 2, 3)",
    "day": "4",
    "inner": "named_struct('year', 5, 'a', 6)",
    # Words of the grammar, of which Spark reserves none.
    "end": "date '2013-02-01'",
    "from": "date '2013-01-30'",
    "for": "3",
    "all": "5",
    "any": "6",
    "case": "8",
    "when": "9",
    "then": "10",
    "else": "11",
    "in": "12",
    "is": "13",
    "and": "14",
    "or": "15",
    "not": "false",
    "like": "'a%'",
    "div": "2",
    "distinct": "16",
    "exists": "17",
    "interval": "interval 3 day",
}
EXPRESSIONS = [
    "NOT cancelled",
    "year(date) + YEAR",
    "name = 'a year' -- a\n AND `a` = 7",
    "a /* day /* year */ day */ + day",
    "'it\\'s a' || NAME || 'a''a' || r'\\a'",
    "CAST(a AS string) || CAST(date AS string)",
    "CAST(year AS decimal(10,2)) = day",
    "CAST(inner AS struct<year:string, a:decimal(3,1)>)",
    "a::string || date::string",
    "a::int < day",
    "struct(a AS year, day)",
    "named_struct('a', a, 'day', day)",
    "transform(tags, a -> a + year)",
    "aggregate(tags, 0, (a, day) -> a + day, a -> a * 10) + a",
    "filter(tags, a -> exists(tags, day -> day = a + 1))",
    "EXTRACT(year FROM date) + EXTRACT(DAY FROM date)",
    "trim(BOTH 'a' FROM name)",
    "substring(name FROM 2 FOR 1)",
    "dateadd(DAY, a, date)",
    "date_add(date, day)",
    "datediff(DAY, date, date '2014-01-01')",
    "date + interval 5 day - interval '1' year",
    "CASE WHEN a > 5 THEN year ELSE day END + a",
    "CASE a WHEN day THEN 1 WHEN year THEN 2 END",
    "a IS NOT DISTINCT FROM day OR NOT a IS NULL",
    "a IN (day, year) OR a BETWEEN day AND year",
    "inner.year + tags[day - 4] + inner.a",
    "-a * .5e3 - a*1L % day",
    "name LIKE 'a%' AND name RLIKE '^a'",
    "coalesce(null, if(cancelled, a, day))",
    "map(name, a)[name]",
    "date > date '2012-01-01' AND timestamp '2012-01-01 00:00:00' < date",
    "to_json(struct(*))",
    "size(array(a, day, year))",
    "datediff(end, from) > 1 AND end - from < interval 5 day",
    "-for || '' || (for * all)",
    "CASE WHEN end > from THEN end ELSE from END",
    "CASE end WHEN from THEN from ELSE end END",
    "CASE when WHEN then THEN else ELSE then END",
    "CASE + a WHEN 7 THEN case END",
    "a + case * 2",
    "a NOT IN (in, is) AND in NOT BETWEEN and AND or",
    "name NOT LIKE like ESCAPE '!' OR like LIKE ANY ('a', 'b')",
    "NOT not OR not IS NOT NULL AND (not = cancelled)",
    "end IS NOT DISTINCT FROM from AND is IS DISTINCT FROM in",
    "EXTRACT(day FROM from) + EXTRACT(YEAR FROM end)",
    "trim(BOTH 'a' FROM like) || trim(LEADING FROM like)",
    "substring(name FROM for FOR div)",
    "exists(tags, any -> any > for) = exists(tags, a -> a > exists)",
    "coalesce(all, any, distinct) div div",
    "transform(tags, all -> all + any)",
    "CAST(end AS string) = from::string",
    "CASE WHEN cancelled THEN interval 5 day END + end",
    "interval 1 day * a + interval '1' hour",
    "interval -1 day 2 hours - interval",
    "interval - interval 1 day * all",
    "from + interval '1 2' day to hour * day",
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .getOrCreate()
    )
    yield session
    session.stop()


def first(frame: DataFrame) -> Row:
    """The first row; PySpark leaves the socket that it came through to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        row = frame.collect()[0]
        gc.collect()
    return row


def test_the_same_over_a_struct(spark: SparkSession) -> None:
    # Columns below the struct hold other values: an expression that reaches one of them shows.
    flat = spark.range(1).select(*(F.expr(value).alias(name) for name, value in COLUMNS.items()))
    packed = flat.select(F.struct(*map(quoted, COLUMNS)).alias("t0"), F.lit("other").alias("other"))
    direct = first(flat.select(*(F.expr(text).alias(f"e{n}") for n, text in enumerate(EXPRESSIONS))))
    texts = [over_struct(text, COLUMNS, "t0") for text in EXPRESSIONS]
    nested = first(packed.select(*(F.expr(text).alias(f"e{n}") for n, text in enumerate(texts))))
    for text, over, one, other in zip(EXPRESSIONS, texts, direct, nested, strict=True):
        assert one == other, (text, over)


def test_what_an_expression_mentions_is_enough_for_it(spark: SparkSession) -> None:
    flat = spark.range(1).select(*(F.expr(value).alias(name) for name, value in COLUMNS.items()))
    for text in EXPRESSIONS:
        flat.select(*map(quoted, mentions(text, COLUMNS) or {"a"})).select(F.expr(text))  # analysed at once
