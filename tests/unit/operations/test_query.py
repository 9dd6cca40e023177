"""SQL over the warehouse: what is refused, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

from cdc.errors import ConfigError, QueryRefused, QueryTooLarge, SinkUnavailable
from console.cli.query import _table
from operations.query import duck as inside
from operations.query.answer import Answer, Told
from operations.query.complete import AsOf
from operations.query.duck import Duck, Rows, scan_of
from operations.query.query import Queries
from operations.query.statement import checked
from operations.query.tables import Name, chosen, names
from operations.query.values import plain_rows


def test_a_duckdb_that_reads_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duckdb.__version__", "1.5.5")
    with pytest.raises(ConfigError, match="deletion vectors wrongly"):
        Duck([])


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_name_that_two_sinks_have_needs_its_sinks() -> None:
    all_of = names({"lake": ["a", "b"], "pond": ["b"]})
    assert [one.shown for one in all_of] == ["a", "lake.b", "pond.b"]
    assert chosen(all_of, {("", "A")}) == [Name("lake", "a")]
    assert chosen(all_of, {("pond", "b"), ("lake", "a")}) == [Name("lake", "a", "lake"), Name("pond", "b", "pond")]
    assert chosen(all_of, {("", "of_its_own")}) == []
    with pytest.raises(QueryRefused, match="several sinks have a table b") as refused:
        chosen(all_of, {("", "b")})
    assert '"lake".b, "pond".b' in str(refused.value)


def test_views_that_differ_only_in_large_and_small_letters_are_not_taken_for_each_other() -> None:
    all_of = names({"lake": ["Person", "person"]})
    assert chosen(all_of, {("", "person")}) == [Name("lake", "person")]
    assert chosen(all_of, {("lake", "Person")}) == [Name("lake", "Person", "lake")]
    for named in ({("", "Person"), ("", "person")}, {("", "PERSON")}):
        with pytest.raises(QueryRefused, match="differ only in large and small letters"):
            chosen(all_of, named)


# -- DuckDB ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def duck(folder: Path) -> Iterator[Duck]:
    made = Duck([str(folder)])
    yield made
    made.close()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM iceberg_scan('/etc/passwd')",
        "SELECT * FROM query('SELECT * FROM read_csv(''/etc/passwd'')')",
        "SELECT * FROM read_text('https://127.0.0.1:1/x')",
        "SELECT * FROM read_text('FOLDER/../outside')",
        "COPY (SELECT 1) TO 'FOLDER/out.csv'",
        "COPY (SELECT 1) TO '/tmp/headwater-out.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'FOLDER/out.csv'",
        "EXPORT DATABASE 'FOLDER/out'",
        "ATTACH 'FOLDER/out.db' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "-- SELECT\nPRAGMA version",
        "CALL pragma_version()",
        "CHECKPOINT",
        "SELECT * FROM enable_profiling(format='json', save_location='FOLDER/metadata.json')",
        "SELECT (SELECT count(*) FROM Enable_Logging(storage='file', storage_path='FOLDER/logs/'))",
        "SUMMARIZE FROM enable_logging()",
        "SELECT * FROM query('SELECT * FROM enable_logging()')",
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM enable_logging()'))",
        "SELECT * FROM set_iceberg_table_properties('FOLDER/t', MAP {'a': 'b'})",
        "CREATE TABLE t AS SELECT 1",
        "INSERT INTO t VALUES (1)",
        "DROP VIEW t",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO 'FOLDER/out.csv'",
        "",
        "-- nothing",
        "SELEC 1",
        "SELECT * FROM not_there",
        "SELECT nothing",
        "SELECT 'a'::INTEGER",
        "SELECT ?",
        "SELECT * FROM inside",
    ],
)
def test_what_does_not_read_the_tables_is_refused(duck: Duck, folder: Path, text: str) -> None:
    (folder.parent / "outside").write_text("secret")
    with pytest.raises(QueryRefused):
        statement = checked(duck.connection, text.replace("FOLDER", str(folder)))
        duck.run(statement.text, 10, 10)
    assert list(folder.iterdir()) == []
    assert not Path("/tmp/headwater-out.csv").exists()


def test_what_is_locked_is_locked_in_duckdb_too(duck: Duck, folder: Path) -> None:
    """The second gate, should something pass the first."""
    for text in (
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "INSTALL httpfs",
        "LOAD httpfs",
    ):
        with pytest.raises((duckdb.InvalidInputException, duckdb.PermissionException, duckdb.IOException)):
            duck.connection.execute(text)
    with pytest.raises(duckdb.PermissionException):
        duck.connection.execute("COPY (SELECT 1) TO '/tmp/headwater-out.csv'")
    with pytest.raises(duckdb.InvalidInputException, match="locked"):
        duck.connection.execute("SET memory_limit = '100GB'")
    secret = pa.table({"a": [1]})
    with pytest.raises(duckdb.CatalogException):
        duck.connection.execute("FROM secret")
    assert secret.num_rows == 1


def test_a_statement_tells_which_tables_it_names(duck: Duck) -> None:
    def named(text: str) -> set[tuple[str, str]]:
        return set(checked(duck.connection, text).named)

    assert named('WITH a AS (SELECT 1) SELECT * FROM b JOIN lake.c USING (id) WHERE x IN (FROM "D")') == {
        ("", "b"),
        ("lake", "c"),
        ("", "D"),
    }
    assert named("DESCRIBE a") == named("SUMMARIZE a") == named("FROM a;") == {("", "a")}
    assert checked(duck.connection, "SHOW TABLES").lists and checked(duck.connection, "SHOW ALL TABLES").lists
    assert not checked(duck.connection, "SELECT 1").lists


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT count(*), max(at), sum(ms) FROM plays", 'quote the column: "at" '),
        ('SELECT "größe", AT, offset FROM plays', 'quote the column: "at", "Offset" '),
        ('SELECT max("at"), sum(ms FROM plays', None),  # it is quoted
        ("SELECT sum(ms, FROM plays -- at", None),
        ("SELECT max(time FROM plays", None),  # DuckDB takes it as a name
        ("SELECT CASE WHEN id = 1 THEN 2 END sum( FROM plays", None),  # what is wrong is not there
    ],
)
def test_a_column_whose_name_is_a_word_of_duckdbs_is_to_be_quoted(duck: Duck, text: str, hint: str | None) -> None:
    """Postgres takes `max(at)`; what to do was "correct the SQL"."""
    with pytest.raises(QueryRefused) as refused:
        checked(duck.connection, text, lambda: ["id", "at", "ms", "Offset", "time", "größe", "end", "from"])
    assert hint in refused.value.fix if hint else refused.value.fix == "correct the SQL"


def test_a_comment_before_a_statement_may_have_other_letters(duck: Duck) -> None:
    """DuckDB counts bytes: `LECT is not run here`."""
    assert checked(duck.connection, "-- größte\nSELECT 1").text == "-- größte\nSELECT 1"


def test_a_name_that_is_not_there_is_looked_for_among_our_tables(duck: Duck) -> None:
    with pytest.raises(QueryRefused) as refused:
        duck.run("FROM Wheel", 10, 5.0, "wheels, dairy")
    said = str(refused.value)
    assert "the tables are wheels, dairy (did you mean wheels?)" in said and "pg_" not in said


@pytest.mark.parametrize(("columns", "below"), [(3, False), (40, True)])
def test_rows_that_are_wider_than_the_screen_are_shown_one_below_the_other(
    columns: int, below: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [(f"column_{n}", "INTEGER") for n in range(columns)]
    answer = Answer(Rows(kinds, [tuple(range(columns)), (None,) * columns], False), False, [], AsOf(1), 0.1)
    _table(answer)
    said = capsys.readouterr().out.splitlines()
    assert ("-[ row 1 ]-" in said) == below
    assert len(said) == (2 * (columns + 1) if below else 4)


def test_views_are_read_and_forgotten(duck: Duck) -> None:
    duck.put("hw_0", pa.table({"id": [1, 2]}))
    duck.view("", "t", "SELECT * FROM hw_0")
    duck.view("a sink", "t", "SELECT * FROM hw_0")
    assert duck.run('SELECT count(*) FROM t JOIN "a sink".t u USING (id)', 10, 10).rows == [(2,)]
    duck.forget(["hw_0"])
    with pytest.raises(QueryRefused, match="t does not exist") as refused:
        duck.run("FROM t", 10, 10, "flight, plane")
    assert "the tables are flight, plane" in str(refused.value)


def test_a_list_of_tables_has_those_that_two_sinks_have(duck: Duck) -> None:
    duck.put("hw_0", pa.table({"id": [1]}))
    for schema, name in (("", "only"), ("warehouse", "order"), ("Lake 2", "order")):
        duck.view(schema, name, "SELECT 1 AS id")
    for text in ("SHOW TABLES", " show\n tables ; "):
        shown = duck.run(checked(duck.connection, text).text, 10, 10)
        assert shown.columns == [("name", "VARCHAR")]
        assert [tuple(row) for row in shown.rows] == [("Lake 2.order",), ("only",), ("warehouse.order",)]
    duck.forget(["hw_0"])


def test_a_list_of_tables_reads_none_from_a_bucket(duck: Duck) -> None:
    columns = pa.schema([("id", pa.int64())])
    table = SimpleNamespace(schema=lambda: SimpleNamespace(as_arrow=lambda: columns))
    held = SimpleNamespace(metadata="s3://b/t/m.json", rows=10**9, table=table, name=Name("lake", "far"))
    queries, put = Queries.__new__(Queries), list[str]()
    queries._duck = duck
    told = cast(Told, SimpleNamespace(held=held, tail=None, view=None, past=None))
    queries._show(told, put, empty=True)
    assert ("far",) in [tuple(row) for row in duck.run("SHOW TABLES", 10, 10).rows]
    duck.forget(put)
    with pytest.raises(QueryTooLarge, match="1,000,000,000 rows on a server"):
        queries._show(told, put, empty=False)


def test_a_query_is_bounded_in_rows_and_time(duck: Duck) -> None:
    found = duck.run("SELECT range AS n FROM range(100000000000)", 5, 30)
    assert found.rows == [(n,) for n in range(5)] and found.truncated
    exact = duck.run("SELECT range AS n FROM range(5)", 5, 30)
    assert (exact.rows, exact.truncated, exact.columns) == (found.rows, False, [("n", "BIGINT")])
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 1"
    with pytest.raises(QueryTooLarge, match=r"longer than 0.2 s"):
        duck.run(endless, 5, 0.2)
    first_some = "SELECT range FROM range(1000000000000) WHERE range < 5000 OR md5(range::VARCHAR) = 'x'"
    with pytest.raises(QueryTooLarge, match=r"longer than 0.3 s"):
        duck.run(first_some, 100_000, 0.3)
    assert duck.run("SELECT 1", 5, 10).rows == [(1,)]  # and goes on


def test_what_fails_behind_the_first_rows_is_told_as_in_front_of_them(duck: Duck) -> None:
    with pytest.raises(QueryRefused, match="Could not convert string 'x'"):
        duck.run("SELECT (CASE WHEN range = 300000 THEN 'x' ELSE '1' END)::INT FROM range(400000)", 500_000, 300)


def test_a_query_that_nobody_has_interrupted_says_why_it_failed(duck: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread's error interrupts the others: `took longer than 300 s` was told of a query of three seconds."""
    asked, real = list[str](), duck.connection

    def execute(text: str) -> Any:
        asked.append(text)
        if len(asked) < 3:
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
        return real.execute(text)

    monkeypatch.setattr(duck, "connection", SimpleNamespace(execute=execute, interrupt=real.interrupt))
    with pytest.raises(QueryRefused, match="Could not convert string 'x'"):
        duck.run("SELECT 'x'::INT", 5, 300)
    assert len(asked) == 3


def test_a_query_is_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MEMORY", "20MB")
    small = Duck([])
    try:
        with pytest.raises(QueryTooLarge, match="more than 20MB of memory"):
            small.run("SELECT list(range) FROM range(500000000)", 5, 60)
        assert small.run("SELECT 1", 5, 10).rows == [(1,)]  # and goes on
    finally:
        small.close()


def test_a_table_whose_files_went_away_may_be_asked_again(duck: Duck, folder: Path) -> None:
    with pytest.raises(SinkUnavailable, match="can't be read") as refused:
        duck.view("", "t", f"SELECT * FROM {scan_of(f'{folder}/metadata/00001.metadata.json')}")
    assert refused.value.transient


def test_without_duckdb_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_EXTENSIONS", ("not_there",))
    with pytest.raises(ConfigError, match=r"not_there.* is not installed") as refused:
        Duck([])
    assert "headwater[query]" in str(refused.value)


def test_values_are_those_of_documents(duck: Duck) -> None:
    text = """
        SELECT 170141183460469231731687303715884105727::HUGEINT, 1.50::DECIMAL(10,2), 'NaN'::DOUBLE, 'ab'::BLOB, NULL,
               DATE '12024-02-29', TIMESTAMP '2031-02-03 04:05:06.7', TIMESTAMPTZ '12024-01-01 00:00:00+00',
               [1, NULL], {'a': 1.5::DECIMAL(3,1)}, INTERVAL 1 MONTH, MAP {'k': 1}, TIME '10:00:00', true,
               [DATE '2024-01-01'], 'x'::ENUM ('x')
    """
    [row] = duck.run(text, 5, 10).rows
    assert list(row[:12]) == [
        str(2**127 - 1), "1.50", "NaN", "YWI=", None,
        "+12024-02-29", "2031-02-03T04:05:06.7", "+12024-01-01T00:00:00Z",
        [1, None], {"a": "1.5"}, row[10], {"k": 1},
    ]  # fmt: skip
    assert list(row[12:]) == ["10:00:00", True, ["2024-01-01"], "x"]
    assert duck.run("SELECT sum(n) FROM (VALUES (9e18::BIGINT), (9e18::BIGINT)) t(n)", 5, 10).rows == [(18 * 10**18,)]
    [row] = duck.run(
        """SELECT DATE 'infinity', TIMESTAMP '-infinity', TIMESTAMPTZ 'infinity', {'a': [{'day': DATE '12024-02-29'}]},
                  [DATE '12024-02-29']::DATE[1], {'a': DATE '12024-02-29'} WHERE true
           UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL LIMIT 1""",
        5,
        10,
    ).rows
    far = {"a": "+12024-02-29"}
    assert row == ("infinity", "-infinity", "infinity", {"a": [{"day": "+12024-02-29"}]}, ["+12024-02-29"], far)
    assert plain_rows(pa.record_batch({"a": pa.array([{"b": 1}, None]).slice(1)})) == [(None,)]
    assert plain_rows(pa.record_batch({"a": pa.array([[1], None, [2, 3]]).slice(1)})) == [(None,), ([2, 3],)]


def test_an_interval_of_months_is_written_as_a_column_of_that_type_is(duck: Duck) -> None:
    [row] = duck.run(
        """SELECT INTERVAL 1 MONTH, INTERVAL '-14 months', [INTERVAL '3 days -04:05:06.789'], INTERVAL 0 DAY,
                  INTERVAL '36 hours'""",
        5,
        10,
    ).rows
    assert row == ("P1M", "P-1Y-2M", ["P3DT-4H-5M-6.789S"], "PT0S", "PT36H")


def test_a_real_is_what_postgres_and_the_other_sinks_say_it_is() -> None:
    reals = [1.1, 1.3333334, 1e38, 16777216.0, None]
    assert plain_rows(pa.record_batch({"a": pa.array(reals, pa.float32())})) == [(one,) for one in reals]
    assert plain_rows(pa.record_batch({"a": pa.array([[1.1, None]], pa.list_(pa.float32()))})) == [([1.1, None],)]
    odd = plain_rows(pa.record_batch({"a": pa.array([float("nan"), float("-inf")], pa.float32())}))
    assert odd == plain_rows(pa.record_batch({"a": pa.array([float("nan"), float("-inf")], pa.float64())}))
