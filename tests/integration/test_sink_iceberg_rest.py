"""A REST catalogue and a bucket: what holds on a SQL catalogue and in a folder, and what happens between renames."""

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
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError

from cdc.errors import ConfigError, HeadwaterError, SinkRefused, SinkUnavailable
from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.owners import GENERATION
from tests.support.lakes import CREDENTIAL, KEYS, TOKEN, free_port, rest_server, s3_server

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

CATALOG, OWNER = "hw_lake", "shop/lake"
SCHEMA = pa.schema([("id", pa.int64()), ("made_by", pa.string())])
ENVIRONMENT = (
    *KEYS,
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("servers")
    with s3_server(folder, ["lake"]) as s3, rest_server(folder, "s3://lake/rest", s3) as rest:
        yield rest, s3


@pytest.fixture(params=["rest", "sql"])
def sink(request: pytest.FixtureRequest, servers: tuple[str, str], tmp_path: Path) -> Any:
    """Two generations of a view, in a namespace of the test's own."""
    rest, s3 = servers
    uri = {"rest": rest, "sql": str(tmp_path / "c.db")}[request.param]
    made = SimpleNamespace(
        catalog_uri=uri,
        warehouse=f"s3://lake/{request.param}",
        namespace=f"n{free_port()}",
        token=TOKEN,
        s3_endpoint=s3,
    )
    with iceberg.open_catalog(made, CATALOG) as catalog:
        catalog.create_namespace(made.namespace)
        for number, told in ((1, rows("old")), (2, rows("new", "new"))):
            properties = {GENERATION: str(number)}
            catalog.create_table(iceberg.table_name(made, "order", number), SCHEMA, properties=properties).append(told)
    return made


@pytest.fixture
def rest(servers: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    request.getfixturevalue("keys")
    made = SimpleNamespace(
        catalog_uri=servers[0],
        warehouse="s3://lake/rest",
        namespace=f"r{free_port()}",
        token=TOKEN,
        s3_endpoint=servers[1],
    )
    with iceberg.open_catalog(made, CATALOG) as catalog:
        catalog.create_namespace(made.namespace)
        for number, name in ((1, "old"), (2, "new")):
            properties = {GENERATION: str(number)}
            catalog.create_table(iceberg.table_name(made, "order", number), SCHEMA, properties=properties).append(
                rows(name)
            )
    return made


def rows(*made_by: str) -> pa.Table:
    return pa.table({"id": list(range(len(made_by))), "made_by": list(made_by)}, schema=SCHEMA)


def seen(sink: Any, generation: int | None = None) -> list[str]:
    return [
        name for batch in iceberg.scan(sink, CATALOG, "order", ["made_by"], generation) for name in batch[0].to_pylist()
    ]


def names(sink: Any) -> set[str]:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        return {name[-1] for name in catalog.list_tables(sink.namespace)}


def test_promoted_back_counted_and_dropped(sink: Any) -> None:
    assert (seen(sink), iceberg.living(sink, CATALOG, "order")) == (["old"], 1)
    for _ in range(2):  # the second time there is nothing left to do
        iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
        assert (seen(sink), seen(sink, 1), iceberg.living(sink, CATALOG, "order")) == (["new"] * 2, ["old"], 2)
        assert names(sink) == {"order", "order__g1"}
    iceberg.promote_table(sink, CATALOG, "order", 1, 2, OWNER)
    assert (iceberg.count(sink, CATALOG, "order"), iceberg.count(sink, CATALOG, "order", 2)) == (1, 2)
    for _ in range(2):
        iceberg.drop_table(sink, CATALOG, "order", 1, OWNER)
        assert names(sink) == {"order__g2"}
    with pytest.raises(SinkRefused, match="no table"):
        iceberg.count(sink, CATALOG, "order", 1)


def test_what_is_in_the_way_is_named_and_nothing_changes(sink: Any) -> None:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        catalog.create_table((sink.namespace, "order__g1"), SCHEMA)
    with pytest.raises(SinkRefused, match="order__g1 already"):
        iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
    with pytest.raises(SinkRefused, match="see generation 1, not 2"):
        iceberg.promote_table(sink, CATALOG, "order", 3, 2, OWNER)
    assert (seen(sink), seen(sink, 2)) == (["old"], ["new"] * 2)


def test_a_commit_that_was_begun_before_a_promotion_fails(sink: Any) -> None:
    with iceberg.open_catalog(sink, CATALOG) as catalog:
        begun = [iceberg.load_table(catalog, sink, "order", generation).transaction() for generation in (1, 2)]
        iceberg.promote_table(sink, CATALOG, "order", 2, 1, OWNER)
        for transaction in begun:
            transaction.append(rows("astray"))
            with pytest.raises(
                (CommitFailedException, NoSuchTableError, RESTError, ValueError), match=r"UUID|not exist|another"
            ):
                transaction.commit_transaction()
    assert (seen(sink, 1), seen(sink)) == (["old"], ["new"] * 2)


class Killed(BaseException):
    """As a kill: nothing that catches errors catches it."""


@pytest.mark.parametrize(("onward", "told"), [(2, "new"), (1, "old")])
def test_ended_between_two_renames_and_finished_by_either_promotion(
    rest: Any, monkeypatch: pytest.MonkeyPatch, onward: int, told: str
) -> None:
    real, done = RestCatalog.rename_table, list[Any]()

    def kill_at_the_second(self: RestCatalog, *where: Any) -> Any:
        done.append(where)
        if len(done) == 2:
            raise Killed
        return real(self, *where)

    with monkeypatch.context() as patch:
        patch.setattr(RestCatalog, "rename_table", kill_at_the_second)
        with pytest.raises(Killed):
            iceberg.promote_table(rest, CATALOG, "order", 2, 1, OWNER)
    assert names(rest) == {"order__g1", "order__g2"}
    assert (seen(rest, 1), seen(rest, 2)) == (["old"], ["new"]), "writers find both"
    iceberg.promote_table(rest, CATALOG, "order", onward, 3 - onward, OWNER)
    assert (seen(rest), iceberg.living(rest, CATALOG, "order")) == ([told], onward)
    assert names(rest) == {"order", f"order__g{3 - onward}"}


def test_a_second_rename_that_fails_leaves_readers_what_they_had(rest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, done = RestCatalog.rename_table, list[Any]()

    def fail_once(self: RestCatalog, *where: Any) -> Any:
        done.append(where)
        if len(done) == 2:
            raise CommitFailedException("not now")
        return real(self, *where)

    monkeypatch.setattr(RestCatalog, "rename_table", fail_once)
    with pytest.raises(CommitFailedException):
        iceberg.promote_table(rest, CATALOG, "order", 2, 1, OWNER)
    assert (len(done), seen(rest), seen(rest, 2)) == (3, ["old"], ["new"])


def test_client_credentials_are_changed_for_a_token(rest: Any) -> None:
    rest.token, rest.credential = None, CREDENTIAL
    assert seen(rest) == ["old"]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"token": "wrong"}, SinkRefused, "does not let us in"),
        ({"token": None}, SinkRefused, "does not let us in"),
        ({"token": None, "credential": "client:wrong-1"}, SinkRefused, "does not let us in"),
        ({"catalog_uri": "http://127.0.0.1:9"}, SinkUnavailable, "does not answer"),
        ({"warehouse": "s3://not-there/w"}, SinkRefused, "no bucket not-there"),
        ({"s3_endpoint": "http://127.0.0.1:9"}, SinkUnavailable, "does not answer"),
    ],
    ids=["token", "no token", "client", "catalogue away", "no bucket", "files away"],
)
def test_trouble_is_named_and_no_secret_with_it(rest: Any, change: dict[str, Any], kind: type, words: str) -> None:
    for name, value in change.items():
        setattr(rest, name, value)
    with pytest.raises(HeadwaterError, match=words) as caught:
        iceberg.check(rest, CATALOG)
    assert isinstance(caught.value, kind)
    for secret in (*KEYS.values(), TOKEN, "wrong-1"):
        assert secret not in str(caught.value)


def test_wrong_keys_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(tmp_path, ["lake"], open_calls=1) as s3:
        made = SimpleNamespace(
            catalog_uri=str(tmp_path / "c.db"), warehouse="s3://lake/w", namespace="n", s3_endpoint=s3
        )
        with pytest.raises(SinkRefused, match=r"s3://lake/w.* refuses"):
            iceberg.check(made, CATALOG)
        assert not (tmp_path / "c.db").exists(), "nothing is made by looking"
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY is not set"):
            iceberg.check(made, CATALOG)


# In a process of its own, as in test_sink_iceberg.py.
SPARK = """
import sys, json
from types import SimpleNamespace
from pyspark.sql import SparkSession
from sinks.iceberg import catalogue as iceberg
made, jars = SimpleNamespace(**json.loads(sys.argv[1])), sys.argv[2]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
builder = builder.config("spark.sql.catalog.hw_lake", "org.apache.iceberg.spark.SparkCatalog")
for key, value in iceberg.spark_properties(made).items():
    builder = builder.config(f"spark.sql.catalog.hw_lake.{key}", value)
spark = builder.getOrCreate()
space = f"hw_lake.{made.namespace}"
spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
for name, number in (("plane", 1), ("plane__g2", 2)):
    spark.sql(f"CREATE TABLE {space}.{name} (id bigint, name string) USING iceberg TBLPROPERTIES "
              f"('format-version'='2', 'write.merge.mode'='merge-on-read', 'headwater.generation'='{number}', "
              "'headwater.lease'='7')")
    spark.range(100).selectExpr("id", f"concat('p{number}-', id) name").writeTo(f"{space}.{name}").append()
spark.sql("SELECT id FROM range(0, 100, 10)").createOrReplaceTempView("s")
spark.sql(f"MERGE INTO {space}.plane t USING s ON t.id = s.id WHEN MATCHED AND s.id < 50 THEN DELETE "
          "WHEN MATCHED THEN UPDATE SET name = 'new'")
table = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{space}.plane")
begun = table.newDelete().deleteFromRowFilter(spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue())
iceberg.promote_table(made, "hw_lake", "plane", 2, 1, "shop/lake")
try:
    begun.commit()
    said = "committed"
except Exception as error:
    said = str(getattr(error, "java_exception", error)).splitlines()[0]
spark.catalog.refreshTable(f"{space}.plane")
print(json.dumps([said, spark.table(f"{space}.plane").where("name LIKE 'p2-%'").count()]))
spark.stop()
"""


@pytest.mark.parametrize("sink", ["rest"], indirect=True)
def test_spark_merges_and_pyiceberg_and_duckdb_read_it(sink: Any, servers: tuple[str, str], tmp_path: Path) -> None:
    jars = [*artifacts.spark_jars(), *artifacts.ensure(["spark-s3"])["spark-s3"].glob("*.jar")]
    argv = [sys.executable, "-c", SPARK, json.dumps(vars(sink)), ",".join(map(str, jars))]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": root}
    env.pop("PYSPARK_SUBMIT_ARGS", None)  # the jars that other tests need, which would go before these
    ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said, promoted = json.loads(ran.stdout.splitlines()[-1])
    assert "UUID does not match" in said and promoted == 100
    expected = {n: "new" if n % 10 == 0 else f"p1-{n}" for n in range(100) if n % 10 or n >= 50}
    found = pa.Table.from_batches(iceberg.scan(sink, CATALOG, "plane", generation=1))
    assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected
    assert iceberg.claimed(sink, CATALOG, "plane", 1) == 7
    with duckdb.connect() as connection:
        for extension in ("avro", "iceberg", "httpfs"):
            duckdb_extensions.import_extension(extension)
            connection.execute(f"LOAD {extension}")
        host = servers[1].removeprefix("http://")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{KEYS['AWS_ACCESS_KEY_ID']}', SECRET '{KEYS['AWS_SECRET_ACCESS_KEY']}', "
            f"ENDPOINT '{host}', USE_SSL false, URL_STYLE 'path', REGION 'us-east-1')"
        )
        place = iceberg.metadata_location(sink, CATALOG, "plane", 1)
        assert dict(connection.execute("SELECT id, name FROM iceberg_scan(?)", [place]).fetchall()) == expected
