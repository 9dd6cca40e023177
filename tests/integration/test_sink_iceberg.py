"""One catalogue, three readers: Spark writes and merges, pyiceberg and DuckDB read the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest

from cdc.errors import QueryRefused, SinkRefused
from deploy.local import artifacts
from operations.query.duck import Duck, scan_of
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.owners import GENERATION
from sinks.iceberg.storage import location
from tests.support.source import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

CATALOG = "hw_lake"

# In a process of its own: a Spark session is one per process, and other tests want theirs otherwise.
SPARK = """
import sys, json
from pyspark.sql import SparkSession
properties, jars = json.loads(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
builder = builder.config("spark.sql.catalog.hw_lake", "org.apache.iceberg.spark.SparkCatalog")
for key, value in properties.items():
    builder = builder.config(f"spark.sql.catalog.hw_lake.{key}", value)
spark = builder.getOrCreate()
spark.sql("CREATE NAMESPACE IF NOT EXISTS hw_lake.flights")
for name, form in (("plane", 2), ("plane_v3", 3)):
    table = "hw_lake.flights." + name
    spark.sql(f"CREATE TABLE {table} (id bigint, name string) USING iceberg TBLPROPERTIES "
              f"('format-version'='{form}', 'write.merge.mode'='merge-on-read')")
    spark.range(1000).selectExpr("id", "concat('p', id) name").writeTo(table).append()
    spark.range(0, 1000, 10).createOrReplaceTempView("s")
    spark.sql(f"MERGE INTO {table} t USING s ON t.id = s.id WHEN MATCHED AND s.id < 500 THEN DELETE "
              "WHEN MATCHED THEN UPDATE SET name = 'new'")
# Three files' deletion vectors in one file of theirs, a long one before short ones.
spark.conf.set("spark.sql.shuffle.partitions", "1")
table = "hw_lake.flights.plane_files"
spark.sql(f"CREATE TABLE {table} (id bigint, name string) USING iceberg TBLPROPERTIES "
          "('format-version'='3', 'write.merge.mode'='merge-on-read')")
for first, rows in json.loads(sys.argv[3]):
    spark.range(first, first + rows, 1, 1).selectExpr("id", "concat('p', id) name").writeTo(table).append()
spark.range(0, 1000000, 17).createOrReplaceTempView("gone")
spark.sql(f"MERGE INTO {table} t USING gone s ON t.id = s.id WHEN MATCHED THEN DELETE")
spark.stop()
"""
# First id and rows of each data file of the table with several.
FILES = ((0, 70_000), (100_000, 600), (200_000, 900))


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("lake") / "not yet there"
    made = SimpleNamespace(catalog_uri=str(folder / "catalog.db"), warehouse=str(folder / "w"), namespace="flights")
    jars = ",".join(str(jar) for jar in artifacts.spark_jars())
    argv = [sys.executable, "-c", SPARK, json.dumps(iceberg.spark_properties(made)), jars, json.dumps(FILES)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(argv, env=env, cwd=folder.parent, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    yield made


def expected() -> dict[int, str]:
    return {n: "new" if n % 10 == 0 else f"p{n}" for n in range(1000) if n % 10 or n >= 500}


def test_pyiceberg_streams_what_spark_merged(sink: Any) -> None:
    rows: dict[int, str] = {}
    for batch in iceberg.scan(sink, CATALOG, "plane"):
        assert isinstance(batch, pa.RecordBatch)
        rows.update(zip(batch["id"].to_pylist(), batch["name"].to_pylist(), strict=True))
    assert rows == expected()
    assert iceberg.count(sink, CATALOG, "plane") == len(rows)


def test_columns_can_be_chosen(sink: Any) -> None:
    assert {tuple(batch.schema.names) for batch in iceberg.scan(sink, CATALOG, "plane", ["id"])} == {("id",)}


def test_a_scan_may_be_left_early(sink: Any) -> None:
    rows = iceberg.scan(sink, CATALOG, "plane")
    next(rows)
    rows.close()  # type: ignore[attr-defined]


def test_duckdb_reads_the_same_rows(sink: Any) -> None:
    place = iceberg.metadata_location(sink, CATALOG, "plane")
    assert Path(place).is_file()
    with duckdb.connect() as connection:
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension)
            connection.execute(f"LOAD {extension}")
        rows = connection.execute("SELECT id, name FROM iceberg_scan(?)", [place]).fetchall()
    assert dict(rows) == expected()


@pytest.mark.parametrize("name", ["plane", "plane_v3"])
def test_a_query_reads_position_deletes_and_deletion_vectors_and_nothing_beside_them(sink: Any, name: str) -> None:
    duck = Duck([location(sink.warehouse)])
    try:
        duck.view("", "t", f"SELECT * FROM {scan_of(iceberg.metadata_location(sink, CATALOG, name))}")
        assert dict(duck.run("SELECT id, name FROM t", 1000, 60).rows) == expected()
        with pytest.raises(QueryRefused, match="beyond the warehouse"):
            duck.run(f"SELECT * FROM read_text('{sink.catalog_uri}')", 1, 60)
    finally:
        duck.close()


def test_each_file_has_its_own_deletion_vector(sink: Any) -> None:
    """DuckDB 1.5.5 applies the long one to the files after it as well: rows were missing, and others there again."""
    wanted = [n for first, rows in FILES for n in range(first, first + rows) if n % 17]
    place = iceberg.metadata_location(sink, CATALOG, "plane_files")
    duck = Duck([location(sink.warehouse)])
    try:
        duck.view("", "t", f"SELECT * FROM {scan_of(place)}")
        found = [row[0] for row in duck.run("SELECT id FROM t ORDER BY id", 100_000, 60).rows]
    finally:
        duck.close()
    assert found == wanted
    vectors = [
        delete for task in iceberg_table(sink, "plane_files").scan().plan_files() for delete in task.delete_files
    ]
    assert len(vectors) == len(FILES) and len({one.file_path for one in vectors}) == 1, "nothing was tried"


def iceberg_table(sink: Any, name: str) -> Any:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        return catalog.load_table(f"{sink.namespace}.{name}")


def test_a_catalogue_in_postgres_opens_too(tmp_path: Path, source: SourceDatabase) -> None:
    """pyiceberg's side of it; the JDBC address is the same one that Spark is given."""
    ends = source.endpoints
    login = f"user={source.owner}&password={source.password}"
    uri = f"jdbc:postgresql://{ends.postgres_host}:{ends.postgres_port}/{source.name}?{login}"
    lake = SimpleNamespace(catalog_uri=uri, warehouse=str(tmp_path), namespace="flights")
    with iceberg.open_catalog(lake, CATALOG) as catalog:
        catalog.create_namespace("flights")
        schema, said = pa.schema([("id", pa.int64())]), {GENERATION: "1"}
        catalog.create_table("flights.t", schema, properties=said).append(pa.table({"id": [1, 2, 3]}))
    assert iceberg.count(lake, CATALOG, "t") == 3
    iceberg.drop_table(lake, CATALOG, "t", 1, "flights/lake")
    iceberg.drop_table(lake, CATALOG, "t", 1, "flights/lake")
    with pytest.raises(SinkRefused):
        iceberg.count(lake, CATALOG, "t")


def test_a_table_that_is_not_there_is_named(sink: Any) -> None:
    with pytest.raises(SinkRefused, match=r"flights\.nope"):
        iceberg.count(sink, CATALOG, "nope")
    with pytest.raises(SinkRefused, match="hw_other"):
        next(iceberg.scan(sink, "hw_other", "plane"))


def test_a_repair_is_one_commit_and_what_was_there_twice_is_there_once(tmp_path: Path) -> None:
    """Also rows without a version, above every version, and without a key; the right one is not touched."""
    argv = [sys.executable, "-m", "tests.support.warehouse_repair", str(tmp_path)]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["rows"] == [[1, "right", 800]] + [[key, f"row {key}", 800] for key in (2, 3, 4, 7, 8, 9)]
    assert found["commits"] == 1 and found["refused"] == {}


HISTORY = """
import sys, json
from pyspark.sql import SparkSession
from spark.warehouse.commits import History
properties, jars = json.loads(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
builder = builder.config("spark.sql.catalog.hw_lake", "org.apache.iceberg.spark.SparkCatalog")
for key, value in properties.items():
    builder = builder.config(f"spark.sql.catalog.hw_lake.{key}", value)
spark = builder.getOrCreate()
table = "hw_lake.flights.seen"
spark.sql("CREATE NAMESPACE IF NOT EXISTS hw_lake.flights")
spark.sql(f"CREATE TABLE {table} (id bigint) USING iceberg")
marks = lambda number, offsets: {
    "headwater.query-id": "q", "headwater.batch-id": str(number), "headwater.offsets": offsets}
def asked(marks):
    spark.catalog.refreshTable(table)
    history = History(spark, table)
    return [history.holds(marks), history.is_empty]
said = [asked(marks(0, "a"))]
for number in (0, 1, 2):
    for name, value in marks(number, f'{{"t":{{"0":{number}}}}}').items():
        spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)
    spark.range(1).writeTo(table).append()
said += [asked(marks(2, '{"t":{"0":2}}')), asked(marks(1, '{"t":{"0":1}}'))]
said += [asked(marks(1, '{"t":{"0":9}}')), asked(marks(3, '{"t":{"0":3}}'))]
print(json.dumps(said))
spark.stop()
"""


def test_a_batch_is_known_by_its_offsets_and_not_by_its_number_alone(tmp_path: Path) -> None:
    """A checkpoint that was put back gives its next batch a number that the table knows, of other records."""
    made = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w"), namespace="flights")
    jars = ",".join(str(jar) for jar in artifacts.spark_jars())
    argv = [sys.executable, "-c", HISTORY, json.dumps(iceberg.spark_properties(made)), jars]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": root}
    ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    empty, newest, before, of_other_records, next_one = json.loads(ran.stdout.splitlines()[-1])
    assert empty == [False, True]
    assert newest == before == [True, False]
    assert of_other_records == next_one == [False, False]
