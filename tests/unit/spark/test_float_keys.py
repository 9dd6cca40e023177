"""0.0 and -0.0 are one number and two rows: their ids are texts, and a change from one to the other is a delete and a
create. What Spark says of them is asked of DuckDB, to which they are equal as well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, NestedField
from pyspark.errors import AnalysisException

from cdc.catalogue import Column, Table
from cdc.records.history import as_of_sql, versions_sql
from cdc.view import View
from operations.as_of import statements as reading
from operations.query.histories import Past
from operations.query.uniting import GONE as TAIL_GONE
from operations.query.uniting import WINS, united
from operations.verify.repair.warehouse import statement
from sinks.iceberg.history import KEY
from spark.warehouse import merge
from spark.warehouse.history import tables
from spark.warehouse.keys import float_keys
from spark.warehouse.large_merge import LARGE_ROWS

LAT, N = Column("lat", "double precision", "float8"), Column("n", "integer", "int4")
PLACE = View.identity(Table("public", "place", (LAT, N, Column("v", "text", "text")), ("lat", "n")))
Row = tuple[float, int, str | None, int]


def test_which_keys_are_floats() -> None:
    short, many = Column("f", "real", "float4"), Column("l", "real[]", "float4", array=True)
    view = View.identity(Table("public", "t", (short, many, N), ("f", "l", "n")))
    assert float_keys(PLACE) == ["lat"] and float_keys(view) == ["f"]


@pytest.mark.parametrize(
    ("held", "changes", "left"),
    [
        ([(0.0, 5, "a", 10)], [(0.0, 5, None, 20), (-0.0, 5, "a", 20)], [(-0.0, 5, "a", 20)]),
        ([(-0.0, 5, "a", 20)], [(0.0, 5, None, 20)], [(-0.0, 5, "a", 20)]),
        ([(0.0, 5, "a", 10)], [(-0.0, 5, "a", 20)], [(-0.0, 5, "a", 20), (0.0, 5, "a", 10)]),
        ([(-0.0, 5, "a", 20)], [(-0.0, 5, "b", 30)], [(-0.0, 5, "b", 30)]),
    ],
    ids=["one batch", "the create came first", "the delete comes later", "itself"],
)
def test_a_merge_takes_them_for_two_rows(held: list[Row], changes: list[Row], left: list[Row]) -> None:
    said = merged("t", held_rows=LARGE_ROWS + 1)
    # DuckDB's spelling of the same.
    said = said.replace("`", '"').replace("SET t.", "SET ").replace(', t."', ', "')
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (lat double, n int, v text, _hw_version bigint)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", held)
        connection.execute("CREATE TABLE hw_changes (lat double, n int, v text, _hw_version bigint, _hw_gone boolean)")
        connection.executemany("INSERT INTO hw_changes VALUES (?, ?, ?, ?, ?)", [(*c, c[2] is None) for c in changes])
        connection.execute(said)
        assert texts(connection.execute("FROM t").fetchall()) == texts(left)


def merged(table: str, held_rows: int) -> str:
    """The one statement by which a table that has so many rows is changed."""
    said: list[str] = []
    session = SimpleNamespace(sql=said.append)
    columns = ["lat", "n", "v", "_hw_version", "_hw_gone"]
    rows: Any = SimpleNamespace(columns=columns, sparkSession=session, createOrReplaceTempView=lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "History", lambda *_: SimpleNamespace(rows=held_rows))
        merge.merge_changes(table, rows, PLACE, few=True)
    [one] = said
    return one


def texts(rows: list[Row]) -> list[str]:
    """Rows to be compared: to Python too both are equal."""
    return sorted(map(str, rows))


def test_a_cut_of_history_has_the_row_that_it_became() -> None:
    """The delete stands behind the create, at the same position: their offsets are of two partitions."""
    events = [
        (0.0, 5, "a", "insert", 10, 9, 0),
        (-0.0, 5, "a", "insert", 20, 19, 0),
        (0.0, 5, None, "delete", 20, 19, 7),
    ]
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE history (lat double, n int, v text, _hw_op text, _hw_position bigint, _hw_after bigint, "
            "_hw_offset bigint, _hw_tx bigint, _hw_commit_time bigint)"
        )
        connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, 1, 1)", events)
        asked = (["lat", "n", "v"], ["lat", "n"], "history")
        shown = connection.execute(as_of_sql(*asked, 30, floats=["lat"])).fetchall()
        versions = connection.execute(versions_sql(*asked, floats=["lat"])).fetchall()
    assert texts(shown) == ["(-0.0, 5, 'a')"]
    assert {(str(one[0]), one[5]) for one in versions} == {("0.0", False), ("-0.0", True)}


def test_whoever_asks_a_history_says_which_keys_are_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = (
        NestedField(1, "lat", DoubleType()),
        NestedField(2, "n", IntegerType()),
        NestedField(3, "v", DoubleType()),
    )
    held: Any = SimpleNamespace(
        properties={KEY: '["lat", "n"]'},
        schema=lambda: Schema(*fields),
        name=lambda: ("space", "place_history"),
        metadata_location="m.json",
    )
    by = "PARTITION BY CAST({0}lat{0} AS STRING), {0}n{0} ORDER"
    past = Past(SimpleNamespace(columns=["lat", "n", "v"], table=held), "p.public.place", {}, versions=True)  # type: ignore[arg-type]
    assert by.format('"') in past.select("rows")

    monkeypatch.setattr(reading, "catalog_name", lambda _: "lake")
    monkeypatch.setattr(reading, "pyiceberg_properties", lambda _: {})
    cut: Any = SimpleNamespace(sink="warehouse", tables={"public.place": held}, cut=30)
    said = reading.statements(SimpleNamespace(sinks={"warehouse": None}), cut)["public.place"]  # type: ignore[arg-type]
    assert {by.format(mark) in text for name, text in said.items() for mark in ("`" if name == "spark" else '"')} == {
        True
    }

    made: list[str] = []
    monkeypatch.setattr(tables, "columns_there", lambda *_: ["lat", "n", "v"])
    spark: Any = SimpleNamespace(sql=made.append)
    tables.HistoryPlace("lake", "space", "1", 1)._show_versions(spark, PLACE)
    assert len(made) == 1 and by.format("`") in made[0]


class House:
    """A catalogue of one history that is as it should be, and of the view of its versions."""

    def __init__(self, view: View, shown: str, *, tells: bool = True) -> None:
        self.wanted, self.shown, self.tells, self.made = view, shown, tells, list[str]()
        self.catalog = SimpleNamespace(tableExists=lambda _: True, refreshTable=lambda _: None)

    def table(self, _: str) -> Any:
        kinds = tables.columns_of(self.wanted).items()
        return SimpleNamespace(
            schema=[SimpleNamespace(name=n, dataType=SimpleNamespace(simpleString=lambda k=k: k)) for n, k in kinds]
        )

    def sql(self, text: str) -> Any:
        rows: list[Any] = []
        if text.startswith("SHOW CREATE TABLE"):
            if not self.tells:
                raise AnalysisException("no such command")
            rows = [(f"CREATE VIEW v (lat, n)\nAS\n{self.shown}\n",)]
        elif text.startswith("SHOW TBLPROPERTIES"):
            kept = {tables.TABLE: self.wanted.table.qualified, tables.SOURCE: "1"}
            rows = [{"key": key, "value": value} for key, value in kept.items()]
        elif text.startswith("CREATE OR REPLACE VIEW"):
            self.made.append(text)
        return SimpleNamespace(collect=lambda: rows)


WHOLE = View.identity(Table("public", "whole", (N, Column("v", "text", "text")), ("n",)))


@pytest.mark.parametrize(
    ("view", "floats", "tells", "anew"),
    [
        (PLACE, [], True, True),
        (PLACE, ["lat"], True, False),
        (PLACE, ["lat"], False, True),
        (WHOLE, ["n"], True, False),
    ],
    ids=["of an older Headwater", "as it is made now", "it can't be told", "no float"],
)
def test_a_view_of_versions_that_takes_them_for_one_is_made_anew(
    view: View, floats: list[str], tells: bool, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history of before the upgrade kept the view that it had: it is made with the history."""
    for name, found in {"create_namespace": None, "loaded": None, "ids_there": {}, "rename_back": False}.items():
        monkeypatch.setattr(tables, name, lambda *_, found=found: found)
    place = tables.HistoryPlace("lake", "space", "1", 1)
    columns = [column.name for column in view.table.columns]
    house = House(view, versions_sql(columns, view.key, place.name(view), "`", floats), tells=tells)
    place.make(cast(Any, house), view, new=False)
    assert len(house.made) == anew and all("CAST(`lat` AS STRING)" in text for text in house.made)


def test_a_query_of_a_table_and_its_tail_shows_it_too() -> None:
    tail = {"lat": [0.0], "n": [5], "v": [None], "_hw_version": [20], WINS: [20], TAIL_GONE: [True]}
    with duckdb.connect() as connection:
        connection.register("held", pa.table({"lat": [-0.0], "n": [5], "v": ["a"], "_hw_version": [20]}))
        connection.register("tail", pa.table(tail))
        said = united("held", "tail", ["lat", "n"], ["lat", "n", "v", "_hw_version"], ["lat"])
        assert texts(connection.execute(said).fetchall()) == ["(-0.0, 5, 'a', 20)"]


def test_a_repair_takes_them_for_two_rows() -> None:
    same = "t.`lat` <=> s.`lat` AND t.`n` <=> s.`n` AND CAST(t.`lat` AS STRING) <=> CAST(s.`lat` AS STRING)"
    assert statement("c.n.t", PLACE, ["lat", "n", "_hw_version"]).count(same) == 2
