"""Iceberg: two generations of a table, the swap of their names, and commits that race with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from cdc.errors import SinkRefused
from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogues.sql import SqlCatalogue
from sinks.iceberg.owners import GENERATION
from tests.support.servers import servers
from tests.support.source import source_database

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

CATALOG, OWNER = "hw_lake", "shop/lake"
# A commit whose table has another name by now: its row leads elsewhere, or there is no such name.
ASTRAY = (CommitFailedException, NoSuchTableError, ValueError)
ASTRAY_WORDS = r"UUID|not exist|another process"
SCHEMA = pa.schema([("id", pa.int64()), ("made_by", pa.string())])


def rows(*made_by: str) -> pa.Table:
    return pa.table({"id": list(range(len(made_by))), "made_by": list(made_by)}, schema=SCHEMA)


@pytest.fixture(params=["sqlite", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        yield lake(str(tmp_path / "catalog.db"), tmp_path)
        return
    stack = servers()
    stack.up(["postgres"])
    with source_database(stack.endpoints) as source:
        ends = source.endpoints
        login = f"user={source.owner}&password={source.password}"
        yield lake(f"jdbc:postgresql://{ends.postgres_host}:{ends.postgres_port}/{source.name}?{login}", tmp_path)


def lake(uri: str, folder: Path) -> Any:
    """A warehouse with two generations as an earlier version made them."""
    made = SimpleNamespace(catalog_uri=uri, warehouse=str(folder / "w"), namespace="shop")
    with iceberg.open_catalog(made, CATALOG) as catalog:
        catalog.create_namespace("shop")
        for number, told in ((1, rows("old")), (2, rows("new", "new"))):
            properties = {GENERATION: str(number)}
            catalog.create_table(iceberg.table_name(made, "order", number), SCHEMA, properties=properties).append(told)
    return made


def seen(sink: Any, generation: int | None = None) -> list[str]:
    return [
        name for batch in iceberg.scan(sink, CATALOG, "order", ["made_by"], generation) for name in batch[0].to_pylist()
    ]


def tables(sink: Any) -> set[str]:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        return {name[-1] for name in catalog.list_tables("shop")}


def test_promotion_swaps_the_names_and_back(sink: Any) -> None:
    assert (seen(sink), iceberg.living(sink, CATALOG, "order")) == (["old"], 1)
    assert iceberg.find_table(sink, CATALOG, "order", 2) == ("shop", "order__g2")
    for _ in range(2):  # the second time there is nothing left to do
        iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
        assert (seen(sink), iceberg.living(sink, CATALOG, "order")) == (["new", "new"], 2)
        assert (seen(sink, 1), seen(sink, 2)) == (["old"], ["new", "new"])
        assert iceberg.find_table(sink, CATALOG, "order", 1) == ("shop", "order__g1")
        assert iceberg.find_table(sink, CATALOG, "order", 2) == ("shop", "order")
        assert tables(sink) == {"order", "order__g1"}
    assert iceberg.count(sink, CATALOG, "order") == iceberg.count(sink, CATALOG, "order", 2) == 2
    iceberg.promote_table(sink, CATALOG, "order", 1, 2, OWNER)
    assert (seen(sink), seen(sink, 2)) == (["old"], ["new", "new"])
    assert tables(sink) == {"order", "order__g2"}


def test_both_are_committed_to_after_a_swap(sink: Any) -> None:
    iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
    for generation, name in ((1, "old"), (2, "new")):
        with iceberg.open_catalog(sink, CATALOG) as catalog:
            iceberg.load_table(catalog, sink, "order", generation).append(rows(name))
    assert (seen(sink, 1), seen(sink)) == (["old"] * 2, ["new"] * 3)


def test_drop_leaves_no_folder_and_warns_of_no_file_that_upkeep_has_removed(
    sink: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        table = iceberg.load_table(catalog, sink, "order", 2)
        folder = Path(table.location())
    [removed, *_] = sorted(folder.rglob("*.parquet"))
    removed.unlink()
    iceberg.drop_table(sink, CATALOG, "order", 2, OWNER)
    assert not folder.exists() and not [one for one in caplog.records if one.name.startswith("pyiceberg")]


def test_drop_removes_one_generation_wherever_it_is(sink: Any) -> None:
    iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
    for _ in range(2):
        iceberg.drop_table(sink, CATALOG, "order", 1, OWNER)
        assert (tables(sink), seen(sink)) == ({"order"}, ["new", "new"])
    iceberg.drop_table(sink, CATALOG, "order", 2, OWNER)
    assert (tables(sink), iceberg.living(sink, CATALOG, "order")) == (set(), None)


def test_what_can_not_be_promoted_is_refused_and_nothing_changes(sink: Any) -> None:
    with pytest.raises(SinkRefused, match="generation 3"):
        iceberg.promote_table(sink, CATALOG, "order", 3, 1, OWNER)
    with pytest.raises(SinkRefused, match="see generation 1, not 2"):
        iceberg.promote_table(sink, CATALOG, "order", 3, 2, OWNER)
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        catalog.create_table("shop.order__g1", SCHEMA)
    with pytest.raises(SinkRefused, match="order__g1 already"):
        iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
    assert (seen(sink), seen(sink, 2)) == (["old"], ["new", "new"])


def test_a_commit_that_was_begun_before_the_swap_fails(sink: Any) -> None:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        before = [iceberg.load_table(catalog, sink, "order", generation).transaction() for generation in (1, 2)]
        iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
        for transaction in before:
            transaction.append(rows("astray"))
            with pytest.raises(ASTRAY, match=ASTRAY_WORDS):
                transaction.commit_transaction()
    assert (seen(sink, 1), seen(sink)) == (["old"], ["new", "new"])


@pytest.mark.parametrize("generation", [1, 2])
def test_a_swap_between_a_commits_look_and_its_write_makes_it_fail(sink: Any, generation: int) -> None:
    """The narrowest race: metadata is loaded and compared, then the names are swapped, then the row is written."""
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        table = iceberg.load_table(catalog, sink, "order", generation)
        write = catalog._write_metadata  # type: ignore[attr-defined]

        def late(*arguments: Any, **named: Any) -> None:
            write(*arguments, **named)
            iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)

        catalog._write_metadata = late  # type: ignore[attr-defined, method-assign]
        with pytest.raises(ASTRAY, match=ASTRAY_WORDS):
            table.append(rows("astray"))
    assert (seen(sink, 1), seen(sink)) == (["old"], ["new", "new"])


def test_a_commit_between_a_swaps_look_and_its_write_is_not_lost(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, done = SqlCatalogue.swap, [0]

    def late(*arguments: Any) -> bool:
        done[0] += 1
        if done[0] <= 2:
            with iceberg.open_catalog(sink, CATALOG) as catalog:
                iceberg.load_table(catalog, sink, "order", done[0]).append(rows("quick"))
        return real(*arguments)

    monkeypatch.setattr(SqlCatalogue, "swap", late)
    iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
    assert done == [3]
    assert (sorted(seen(sink, 1)), sorted(seen(sink))) == (["old", "quick"], ["new", "new", "quick"])


def test_readers_see_one_generation_whole_while_writers_commit(sink: Any) -> None:
    over, wrong, failed, reads = threading.Event(), list[Any](), list[BaseException](), [0]
    committed = {1: 1, 2: 2}

    def read() -> None:
        while not over.is_set():
            reads[0] += 1
            try:
                found = set(seen(sink))
                if len(found) != 1:
                    wrong.append(found)
            except Exception as error:
                failed.append(error)

    def write(generation: int, name: str) -> None:
        while not over.is_set():
            try:
                with iceberg.open_catalog(sink, CATALOG) as catalog:
                    iceberg.load_table(catalog, sink, "order", generation).append(rows(name))
                committed[generation] += 1
            except Exception as error:
                # A swap may come between; that nothing was committed then, the count at the end tells.
                if not (isinstance(error, ASTRAY) and re.search(ASTRAY_WORDS, str(error))):
                    failed.append(error)
            time.sleep(0.02)

    threads = [threading.Thread(target=read, daemon=True)]
    threads += [threading.Thread(target=write, args=pair, daemon=True) for pair in ((1, "old"), (2, "new"))]
    for thread in threads:
        thread.start()
    try:
        for new, old in [(2, 1), (1, 2)] * 3:
            time.sleep(0.3)
            iceberg.promote_table(sink, CATALOG, "order", new, old, OWNER)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert (wrong, failed) == ([], [])
    assert reads[0] > 5
    assert (seen(sink, 1), seen(sink, 2)) == (["old"] * committed[1], ["new"] * committed[2])


# In a process of its own, as in test_sink_iceberg.py.
SPARK = """
import sys, json
from types import SimpleNamespace
from pyspark.sql import SparkSession
from sinks.iceberg import catalogue as iceberg
from spark.warehouse.table import TablePlace
made, jars = SimpleNamespace(**json.loads(sys.argv[1])), sys.argv[2]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
builder = builder.config("spark.sql.catalog.hw_lake", "org.apache.iceberg.spark.SparkCatalog")
for key, value in iceberg.spark_properties(made).items():
    builder = builder.config(f"spark.sql.catalog.hw_lake.{key}", value)
spark = builder.getOrCreate()
columns = "(id bigint, made_by string) USING iceberg TBLPROPERTIES"
spark.sql("CREATE NAMESPACE IF NOT EXISTS hw_lake.shop")
for name, number in (("order", 1), ("order__g2", 2)):
    said = f"'format-version'='2', 'headwater.generation'='{number}'"
    spark.sql(f"CREATE TABLE hw_lake.shop.{name} {columns} ({said})")
for name, text, count in (("order", "old", 3), ("order__g2", "new", 5)):
    spark.range(count).selectExpr("id", f"'{text}' made_by").writeTo(f"hw_lake.shop.{name}").append()
def seen(name):
    spark.catalog.refreshTable(f"hw_lake.shop.{name}")
    return sorted(row[0] for row in spark.table(f"hw_lake.shop.{name}").select("made_by").collect())
util = spark._jvm.org.apache.iceberg.spark.Spark3Util
handles = {name: util.loadIcebergTable(spark._jsparkSession, f"hw_lake.shop.{name}") for name in ("order", "order__g2")}
begun = {name: table.newDelete().deleteFromRowFilter(spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue())
         for name, table in handles.items()}
said = {"before": seen("order")}
# What a writer does: load, look at the property, then write by name; the swap comes in between.
spark.catalog.refreshTable("hw_lake.shop.order")
[said_of] = spark.sql("SHOW TBLPROPERTIES hw_lake.shop.order").where("key = 'headwater.generation'").collect()
assert said_of["value"] == "1"
iceberg.promote_table(made, "hw_lake", "order", 2, 1, "shop/lake")
spark.range(9).selectExpr("id", "'astray' made_by").createOrReplaceTempView("changes")
merge = ("MERGE INTO hw_lake.shop.order t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET made_by = "
         "s.made_by WHEN NOT MATCHED THEN INSERT *")
for name, write in (("merge", lambda: spark.sql(merge)),
                    ("append", lambda: spark.table("changes").writeTo("hw_lake.shop.order").append())):
    try:
        write()
        said[name] = "written"
    except Exception as error:
        said[name] = str(error)
# This session knows the name's table from before. A flow of the second generation that starts now must not believe it.
spark.table("hw_lake.shop.order")
place = TablePlace(made, "hw_lake", "order", 2, 0, "shop/lake")
place.check(spark, place.find())
said["after"], said["aside"] = seen("order"), seen("order__g1")
for name, commit in begun.items():
    try:
        commit.commit()
        said[name] = "committed"
    except Exception as error:
        said[name] = str(getattr(error, "java_exception", error)).splitlines()[0]
spark.sql("DELETE FROM hw_lake.shop.order WHERE id = 0")
said["changed"], said["unchanged"] = seen("order"), seen("order__g1")
print(json.dumps(said))
spark.stop()
"""


def test_spark_reads_the_promoted_table_and_its_begun_commits_fail(tmp_path: Path) -> None:
    made = {"catalog_uri": str(tmp_path / "catalog.db"), "warehouse": str(tmp_path / "w"), "namespace": "shop"}
    jars = ",".join(str(jar) for jar in artifacts.spark_jars())
    argv = [sys.executable, "-c", SPARK, json.dumps(made), jars]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": root}
    ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert (said["before"], said["after"], said["aside"]) == (["old"] * 3, ["new"] * 5, ["old"] * 3)
    for begun in ("order", "merge", "append"):
        assert "UUID does not match" in said[begun]
    assert said["order__g2"] != "committed"
    assert (said["changed"], said["unchanged"]) == (["new"] * 4, ["old"] * 3)


# A view's table whose sink was paused while its source's columns changed, more than once.
FOLLOWED = """
import json, sys
from dataclasses import replace
from pathlib import Path
from cdc.catalogue import Column, Table
from cdc.view import View
from spark.warehouse.table import create_table
from tests.support.plain_spark import lake_session
ID, A, C = (Column(name, "text", "text", ordinal=number) for number, name in enumerate("iac", 1))
def follow(*columns):
    view = View.identity(Table("public", "t", (ID, *columns), ("i",), oid=7))
    create_table(spark, "hw_lake.shop.t", view, {}, version=3)
    return [row.asDict() for row in spark.table("hw_lake.shop.t").drop("_hw_version").collect()]
with lake_session(Path(sys.argv[1])) as spark:
    follow(A, C)
    spark.sql("INSERT INTO hw_lake.shop.t VALUES ('1', 'in a', 'in c', 5)")
    said = [
        follow(replace(A, name="c"), replace(C, name="a")),
        follow(replace(A, name="b"), replace(C, name="c"), replace(A, ordinal=4)),
        follow(replace(C, name="C"), replace(A, ordinal=5)),
        follow(replace(C, name="C"), replace(A, ordinal=5)),
    ]
print(json.dumps(said))
"""


def test_a_table_that_has_missed_two_changes_has_each_columns_values_under_its_name(tmp_path: Path) -> None:
    """By names the one that is called `a` now had kept what the former `a` held."""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": root}
    argv = [sys.executable, "-c", FOLLOWED, str(tmp_path)]
    ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    swapped, added, dropped, again = json.loads(ran.stdout.splitlines()[-1])
    assert swapped == [{"i": "1", "c": "in a", "a": "in c"}]
    assert added == [{"i": "1", "b": "in a", "c": "in c", "a": None}]
    assert dropped == again == [{"i": "1", "C": "in c", "a": None}]
