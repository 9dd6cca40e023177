"""A warehouse's files in a local folder, without programs and without checksum files (deploy/spark/LocalFiles.java)."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from spark.machine.session import build_session
from spark.machine.settings import LOCAL_FILES, OWN_FILES
from spark.warehouse.table import catalog_settings
from tests.support.own_classes import own_classes_at_hand
from tests.support.programs import OTHERS, of_ended_children

TABLE = "hw.shop.item"
HADOOPS_OWN = "org.apache.hadoop.fs.LocalFileSystem"


def session(folder: Path, **conf: str) -> SparkSession:
    lake = SimpleNamespace(catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace="shop")
    settings = {**catalog_settings("hw", iceberg.spark_properties(lake)), **conf}
    jars = artifacts.spark_jars()[0].parent
    made = build_session("t", master="local[2]", jars=jars, log=folder / "spark.log", conf=settings)
    made.sql("CREATE NAMESPACE IF NOT EXISTS hw.shop")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with own_classes_at_hand():
        yield tmp_path
    if (left := SparkSession.getActiveSession()) is not None:
        left.stop()


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "w").rglob("*") if path.is_file()]


def checksums(folder: Path) -> list[Path]:
    return [path for path in files(folder) if path.suffix == ".crc"]


def append(spark: SparkSession, first: int) -> None:
    spark.sql(f"INSERT INTO {TABLE} SELECT id, concat('row ', id) FROM range({first}, {first + 100})")


def test_commits_start_no_program_and_files_are_as_before(folder: Path) -> None:
    spark = session(folder)
    spark.sql(f"CREATE TABLE {TABLE} (id bigint, name string) USING iceberg")
    append(spark, 0)
    before = of_ended_children(spark)
    for number in range(1, 16):
        append(spark, number * 100)
    assert of_ended_children(spark) < before + OTHERS
    assert spark.table(TABLE).count() == 1_600
    made = files(folder)
    assert len(made) > 20 and not checksums(folder)
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o644}, "as by Hadoop's own umask"


def test_a_table_whose_files_have_checksums_goes_on(folder: Path) -> None:
    """One that was made before, or by a Spark without our jar; and the other way round."""
    spark = session(folder, **{LOCAL_FILES: HADOOPS_OWN})
    spark.sql(f"CREATE TABLE {TABLE} (id bigint, name string) USING iceberg")
    append(spark, 0)
    kept = len(checksums(folder))
    assert kept
    spark.stop()
    spark = session(folder)
    append(spark, 100)
    assert spark.table(TABLE).count() == 200 and len(checksums(folder)) == kept
    spark.stop()
    spark = session(folder, **{LOCAL_FILES: HADOOPS_OWN})
    append(spark, 200)
    assert spark.table(TABLE).count() == 300 and len(checksums(folder)) > kept
    spark.stop()
    spark = session(folder)
    spark.sql(f"DROP TABLE {TABLE} PURGE")
    assert files(folder) == [], "its checksums go with a file"


def test_who_sets_a_file_system_has_it(folder: Path) -> None:
    assert session(folder).conf.get(LOCAL_FILES) == OWN_FILES
    spark = session(folder)
    spark.stop()
    assert session(folder, **{LOCAL_FILES: HADOOPS_OWN}).conf.get(LOCAL_FILES) == HADOOPS_OWN
