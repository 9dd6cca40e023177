"""Run as a program, because a Spark session is one per process: what somebody puts into a warehouse's table by hand.

``python -m tests.support.wrong_rows FILE SINK VIEW KEY GONE GHOST`` appends the row KEY once more and as GHOST, and
deletes GONE. By Spark, because pyiceberg does not write tables of Iceberg's format 3.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from cdc.pipeline import IcebergSink, load
from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name
from sinks.iceberg.rows import VERSION_COLUMN
from spark.machine.session import build_session
from spark.warehouse.table import catalog_settings


def main(file: Path, sink: str, view: str, key: str, gone: str, ghost: str) -> None:
    """Write all of it into the table that readers see."""
    part = cast(IcebergSink, load(file).sinks[sink])
    with iceberg.open_catalog(part, f"hw_{sink}") as catalog:
        found = iceberg.load_table(catalog, part, view).name()
    name = ".".join((catalog_name(sink), *found[-2:]))
    conf = catalog_settings(catalog_name(sink), iceberg.spark_properties(part))
    jars = artifacts.spark_jars()[0].parent
    spark = build_session("wrong rows", master="local[1]", jars=jars, log=file.parent / "wrong-rows.log", conf=conf)
    row = spark.table(name).where(f"id = {int(key)}").localCheckpoint()
    row.writeTo(name).append()
    cast_ghost = f"cast({int(ghost)} AS int)"
    row.selectExpr(
        *(
            {"id": f"{cast_ghost} id", VERSION_COLUMN: f"8L {VERSION_COLUMN}"}.get(one, f"`{one}`")
            for one in row.columns
        )
    ).writeTo(name).append()
    spark.sql(f"DELETE FROM {name} WHERE id = {int(gone)}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
