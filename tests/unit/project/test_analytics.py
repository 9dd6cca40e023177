"""The dbt example without dbt: its macro reads a cut as the product does, and its files fit the pipeline."""

from __future__ import annotations

import random
import re
import runpy
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import duckdb
import jinja2
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, IntegerType, LongType, NestedField, StringType
from ruamel.yaml import YAML

from cdc.pipeline import load
from cdc.records.history import as_of_sql
from sinks.iceberg.numbers import NUMBERS
from spark.warehouse.history.tables import former_column
from tests.support.analysed import HERE
from tests.unit.project.test_docs import ROOT

PROJECT = HERE / "project"
COLUMNS = "id int, part int, a text, _hw_op text, _hw_position bigint, _hw_after bigint, _hw_offset bigint"


def macro(cut: int) -> str:
    """What ``as_of`` renders for a table of two key columns."""

    text = (PROJECT / "macros/cuts.sql").read_text()
    known = "{% macro cut_of(table, name) %}" + str(cut) + "{% endmacro %}"
    text = re.sub(r"\{% macro cut_of.*?endmacro %\}", known, text, flags=re.DOTALL)
    template = jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text)
    module: Any = template.make_module({"source": lambda _, name: name})
    return str(module.as_of("t", ["id", "part"], "monday"))


def test_a_cut_is_read_as_the_product_reads_it() -> None:
    rng = random.Random(3)
    words = ("read", "insert", "update", "delete")
    rows = [
        (rng.randint(1, 5), rng.randint(1, 3), str(n), rng.choice(words), rng.randint(1, 40), n, n) for n in range(200)
    ]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t_history ({COLUMNS})")
        connection.executemany("INSERT INTO t_history VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        for cut in (0, 1, 17, 90, 200):
            ours = connection.execute(as_of_sql(["id", "part", "a"], ["id", "part"], "t_history", cut)).fetchall()
            theirs = connection.execute(f"SELECT * FROM {macro(cut)}").fetchall()
            assert sorted(theirs) == sorted(ours)
            assert bool(ours) == (cut > 0)


# Instead of Python: an environment whose `activate` does what the real one does.
PYTHON = """#!/bin/sh
mkdir -p dbt/bin
echo "PATH=$PWD/dbt/bin:\\$PATH" > dbt/bin/activate
for program in pip dbt; do printf '#!/bin/sh\\necho %s $1\\n' $program > dbt/bin/$program; done
chmod +x dbt/bin/pip dbt/bin/dbt
"""


def test_an_environment_of_ones_own_finds_its_dbt(tmp_path: Path) -> None:
    told = (HERE / "README.md").read_text().partition("In an environment of your own:\n\n")[2].partition("\n\n")[0]
    (tmp_path / "examples/analytics/project").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    command = ["sh", "-ec", told]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pip install\ndbt build\n", "")


def rendered(path: str, **known: Any) -> Any:
    """A file of the project, with what dbt would know of it."""
    text = (PROJECT / path).read_text()
    given = {"source": lambda _, name: name, **known}
    return jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text).make_module(given)


def test_a_name_that_another_cut_has_now_is_reported_anew_and_what_it_was_goes() -> None:
    cuts = {"monday": "30::bigint", "tuesday": "20::bigint"}
    model = rendered(
        "models/marts/revenue_as_it_was.sql",
        config=lambda **_: "",
        this="report",
        is_incremental=lambda: True,
        held_cuts=lambda _: [["monday", "10::bigint"], ["tuesday", "20::bigint"], ["gone", "5::bigint"]],
        cut_names=lambda _: list(cuts),
        cut_of=lambda _, name: cuts[name],
        as_of=lambda table, *_: table,
    )
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT 1 AS order_id, 'paid' AS status, DATE '2026-10-01' AS ordered_on"
        )
        connection.execute("CREATE TABLE order_lines AS SELECT 1 AS order_id, 2 AS quantity, 5 AS price")
        for name in ("orders", "order_lines"):
            connection.execute(f"CREATE TABLE {name}_history AS FROM {name}")
        anew = connection.execute(f"SELECT cut, cut_position, revenue FROM ({model})").fetchall()
        assert anew == [("monday", 30, 10)]
        connection.execute("CREATE TABLE _hw_cuts (history VARCHAR, name VARCHAR, cut BIGINT)")
        connection.execute(
            "INSERT INTO _hw_cuts VALUES ('orders_history', 'monday', 30), ('orders_history', 'tuesday', 20)"
        )
        connection.execute("CREATE TABLE report (cut VARCHAR, cut_position BIGINT)")
        connection.execute("INSERT INTO report VALUES ('monday', 10), ('tuesday', 20), ('gone', 5)")
        connection.execute(str(rendered("macros/cuts.sql").forget_moved("report", "orders")))
        assert connection.execute("SELECT cut FROM report ORDER BY cut").fetchall() == [("gone",), ("tuesday",)]


def test_without_a_cut_a_report_has_the_types_that_one_will_have() -> None:
    """Else the run that meets the first cut, or another type of a column, rounds, or is refused for nothing."""
    known: dict[str, Any] = {"config": lambda **_: "", "is_incremental": lambda: False, "as_of": lambda one, *_: one}
    with duckdb.connect() as connection:
        for price in ("DECIMAL(10,2)", "DECIMAL(16,6)"):
            connection.execute("CREATE OR REPLACE TABLE orders (order_id INT, status VARCHAR, ordered_on DATE)")
            connection.execute(f"CREATE OR REPLACE TABLE order_lines (order_id INT, quantity INT, price {price})")
            for name in ("orders", "order_lines"):
                connection.execute(f"CREATE OR REPLACE TABLE {name}_history AS FROM {name}")
            kinds = []
            for cuts in ([], ["monday"]):
                cut: dict[str, Any] = {"cut_names": lambda _, cuts=cuts: cuts, "cut_of": lambda *_: "1::bigint"}
                model = rendered("models/marts/revenue_as_it_was.sql", **known, **cut)
                kinds.append([row[:2] for row in connection.execute(f"DESCRIBE {model}").fetchall()])
            assert kinds[0] == kinds[1]
            assert kinds[0][-1] == ("revenue", f"DECIMAL(38,{price[-2]})")


def test_an_incremental_model_refuses_a_type_that_its_table_has_not() -> None:
    """DuckDB rounded what was added to it: 1.123456 became 1.1235."""
    for path in (PROJECT / "models").rglob("*.sql"):
        text = path.read_text()
        assert ("'incremental'" in text) == ("on_schema_change='fail'" in text), path


def test_a_history_that_begins_anew_is_gained_whole_and_what_was_taken_stays() -> None:
    """Its topic was made anew: its offsets begin with 0 again, and all up to the former one's were skipped."""
    columns = "order_id INT, _hw_op VARCHAR, status VARCHAR, total INT, _hw_commit_time TIMESTAMP, _hw_tx BIGINT"

    def gained(*, first: bool = False) -> list[tuple[Any, ...]]:
        known: dict[str, Any] = {"config": lambda **_: "", "refuse_without": lambda *_: "", "this": "report"}
        model = rendered("models/marts/order_events.sql", is_incremental=lambda: not first, **known)
        connection.execute(f"CREATE TABLE report AS {model}" if first else f"INSERT INTO report BY NAME {model}")
        return connection.execute("SELECT history, part, place FROM report ORDER BY ALL").fetchall()

    def happened(*places: tuple[int, int]) -> None:
        connection.executemany("INSERT INTO orders_history VALUES (1, 'read', 'paid', 5, NULL, 7, ?, ?)", places)

    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE orders_history ({columns}, _hw_partition INT, _hw_offset BIGINT)")
        connection.execute("CREATE TABLE _hw_tables AS SELECT 'orders_history' AS name, 'a' AS uuid")
        happened((0, 0), (0, 1), (1, 0))
        former = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0)]
        assert gained(first=True) == gained() == former
        happened((1, 1))
        former.append(("a", 1, 1))
        assert gained() == former
        connection.execute("DELETE FROM orders_history")
        connection.execute("UPDATE _hw_tables SET uuid = 'b'")
        happened((0, 0), (1, 0))
        assert gained() == gained() == [*former, ("b", 0, 0), ("b", 1, 0)]
        ids = connection.execute("SELECT count(*), count(DISTINCT event_id) FROM report").fetchone()
        assert ids == (6, 6)


class Warned:
    """dbt's log."""

    def __init__(self, _: str) -> None: ...

    said: ClassVar = list[str]()

    def warning(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What dbt makes of the plugin's class, with its settings."""
    for name, known in (
        ("dbt.adapters.duckdb.plugins", "BasePlugin"),
        ("dbt.adapters.events.logging", "AdapterLogger"),
    ):
        module = ModuleType(name)
        setattr(module, known, SimpleNamespace if known == "BasePlugin" else Warned)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Warned, "said", [])
    made = runpy.run_path(str(PROJECT / "headwater_warehouse.py"))["Plugin"]

    def opened(**more: str) -> Any:
        one = made(creds=None)
        one.initialize({"catalog": "hw_warehouse", "namespace": "analytics", **more})
        return one

    return opened


@pytest.fixture
def there(tmp_path: Path) -> dict[str, str]:
    """Where a catalogue is, or will be."""
    return {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}


def test_the_plugin_tells_a_table_from_another_one_that_got_its_name(plugin: Any, there: dict[str, str]) -> None:
    opened = plugin(**there)
    told = []
    with closing(SqlCatalog("hw_warehouse", **there)) as catalog, duckdb.connect() as connection:
        catalog.create_namespace("analytics")
        for name in ("orders_history_by_id", None):
            made = catalog.create_table(("analytics", "orders_history"), pa.schema({"id": pa.int32()}))
            opened.configure_connection(connection)
            asked = "SELECT uuid FROM warehouse._hw_tables WHERE name = 'orders_history'"
            told.append((connection.execute(asked).fetchall(), [(str(made.metadata.table_uuid),)]))
            if name is not None:
                catalog.rename_table(("analytics", "orders_history"), ("analytics", name))
    assert told[0][0] == told[0][1] and told[1][0] == told[1][1] and told[0] != told[1]


@pytest.mark.parametrize("path", ["c.db", "no folder/c.db", "a file", "empty"])
def test_where_there_is_no_catalogue_none_is_made_and_it_is_said_in_a_line(
    plugin: Any, tmp_path: Path, path: str
) -> None:
    """pyiceberg made an empty one, in which there is no namespace; what dbt showed was all that Python was in."""
    (tmp_path / "a file").write_text("no catalogue")
    (tmp_path / "empty").touch()
    before = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
    with duckdb.connect() as connection, pytest.raises(RuntimeError, match=f"no catalogue in {tmp_path}/{path}: .*run"):
        plugin(uri=f"sqlite:///{tmp_path}/{path}").configure_connection(connection)
    assert {one.name: one.stat().st_size for one in tmp_path.iterdir()} == before


@pytest.mark.parametrize("wrong", [{"catalog": "hw_lake"}, {"namespace": "shop"}])
def test_another_name_than_the_catalogue_has_is_said_in_a_line(
    plugin: Any, there: dict[str, str], wrong: dict[str, str]
) -> None:
    with closing(SqlCatalog("hw_warehouse", **there)) as catalog:
        catalog.create_namespace("analytics")
        catalog.create_table(("analytics", "orders_history"), pa.schema({"id": pa.int32()}))
    with duckdb.connect() as connection, pytest.raises(RuntimeError, match=r"has no tables in .*has the pipeline run"):
        plugin(**there, **wrong).configure_connection(connection)


RETYPED = [
    (DecimalType(12, 4), DecimalType(14, 6), "1.5000", "1.500000"),
    (IntegerType(), DecimalType(12, 2), "15", "15.00"),
    (LongType(), StringType(), "15", "15"),
    (DecimalType(12, 4), StringType(), "1.5000", "1.5000"),
    (IntegerType(), DoubleType(), "15", "15.0"),
    (DecimalType(12, 4), DecimalType(14, 2), "1.5000", None),
    (DecimalType(12, 4), DecimalType(13, 6), "1.5000", None),
    (LongType(), DecimalType(20, 2), "15", None),
    (LongType(), DoubleType(), "15", None),
    (StringType(), DecimalType(14, 6), "1.5", None),
]


@pytest.mark.parametrize(("former", "now", "was", "shown"), RETYPED, ids=str)
def test_what_was_written_under_a_former_type_is_read_too(
    plugin: Any, there: dict[str, str], former: Any, now: Any, was: str, shown: str | None
) -> None:
    """Of earlier cuts every price was NULL, and the tests passed. What can't be cast whole is warned of."""
    kind = former_column("price", "decimal(12,4)", {})
    with closing(SqlCatalog("hw_warehouse", **there)) as catalog, duckdb.connect() as connection:
        catalog.create_namespace("analytics")
        columns = (NestedField(1, "id", IntegerType()), NestedField(2, "price", former), NestedField(3, kind[:9], now))
        owned = {NUMBERS: '{"id": 1, "price": 2}'}
        table = catalog.create_table(("analytics", "t_history"), Schema(*columns), properties=owned)
        with table.update_schema() as change:
            change.rename_column("price", kind).rename_column(kind[:9], "price__net")
        with table.update_schema() as change:
            change.add_column("price", now)
        found = table.schema().as_arrow()
        value = duckdb.sql(f"SELECT '{was}'::{duck_name(former)} AS v").to_arrow_table()["v"][0].as_py()
        table.append(pa.Table.from_pylist([{"id": 1, kind: value}, {"id": 2}], schema=found))
        plugin(**there).configure_connection(connection)
        asked = "SELECT price::VARCHAR, typeof(price) FROM warehouse.t_history ORDER BY id"
        rows = connection.execute(asked).fetchall()
    assert rows == [(shown, duck_name(now)), (None, duck_name(now))]
    warned = [f"t_history.price is null where it was written under a former type: that is in {kind}"]
    assert Warned.said == ([] if shown else warned)


def duck_name(kind: Any) -> str:
    """A type's name in DuckDB."""
    names = {"int": "INTEGER", "long": "BIGINT", "string": "VARCHAR"}
    return names.get(str(kind), str(kind).upper().replace(" ", ""))


def test_the_sources_are_what_the_pipeline_keeps() -> None:
    nowhere = {"HEADWATER_SOURCE_PASSWORD": "x", "HEADWATER_SETUP_PASSWORD": "x"}
    sink = load(HERE / "pipeline.yaml", nowhere).sinks["warehouse"]
    views = set(sink.view_names)
    [source] = YAML(typ="safe").load((PROJECT / "models/sources.yml").read_text())["sources"]
    named = {table["name"] for table in source["tables"]}
    assert named == views | {"orders_history", "order_lines_history", "_hw_cuts", "_hw_tables"}
    profile = YAML(typ="safe").load((PROJECT / "profiles.yml").read_text())["analytics"]["outputs"]["local"]
    [plugin] = profile["plugins"]
    assert "'hw_warehouse'" in plugin["config"]["catalog"] and "'analytics'" in plugin["config"]["namespace"]


def test_dbt_has_the_duckdb_that_we_test_and_nothing_of_it_is_ours() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["query"]
    locked = (HERE / "dbt.lock").read_text()
    assert all(f"{one} \\" in locked for one in ours)
    assert "dbt-" not in (ROOT / "requirements.lock").read_text()
