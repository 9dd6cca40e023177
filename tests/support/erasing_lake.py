"""Run as a program, because a Spark session is one per process: tables from which a row is erased.

``python -m tests.support.erasing_lake FOLDER VALUE`` prints as JSON what became of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from cdc.records.history import OFFSET, PARTITION
from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.remains import remains
from spark.machine.session import build_session
from spark.warehouse.commits import History, loaded
from spark.warehouse.erasing import forget_rows, remove_left, rewrite
from spark.warehouse.table import catalog_settings
from tests.support.disks import holding

CATALOG, ROWS, KEY = "hw_lake", 60, 7
MODES = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("merge", "update", "delete"))


def marks(query: str, number: int) -> dict[str, str]:
    said = {"query-id": query, "batch-id": str(number), "offsets": f'{{"t":{{"0":{number}}}}}'}
    return {f"headwater.{name}": value for name, value in said.items()}


def mark(spark: SparkSession, said: Mapping[str, str] | None) -> None:
    for name in marks("", 0):
        key = f"spark.sql.iceberg.snapshot-property.{name}"
        spark.conf.unset(key) if said is None else spark.conf.set(key, said[name])


class Lake:
    """A warehouse's catalogue, through Spark and through pyiceberg."""

    def __init__(self, spark: SparkSession, folder: Path, lake: Any, value: str) -> None:
        self.spark, self.folder, self.lake, self.value = spark, folder, lake, value

    def look(self, name: str) -> dict[str, Any]:
        """What the search inside finds, and that in files; and what the table holds for its readers."""
        with iceberg.open_catalog(self.lake, CATALOG) as catalog:
            table = catalog.load_table(("shop", name))
            shown = remains(table, [((), ("id",))], str(KEY))
            nested = remains(table, [(("who",), ("id",))], "901") if "who" in table.schema().column_names else None
            blind = remains(table, [((), None)], str(KEY))
            snapshots = len(table.metadata.snapshots)
            rows = sorted(row["id"] for row in table.scan(selected_fields=("id",)).to_arrow().to_pylist())
        return {
            "files": [path.suffix for path in holding(self.folder / "w" / "shop" / name, self.value)],
            "shown": sum(shown.rows.values()),
            "nested": None if nested is None else sum(nested.rows.values()),
            "blind": len(blind.hidden),
            "tags": list(shown.tags),
            "snapshots": snapshots,
            "rows": rows,
        }

    def holds(self, name: str, query: str, number: int) -> bool:
        return History(self.spark, f"`{CATALOG}`.`shop`.`{name}`").holds(marks(query, number))

    def current(self, form: str) -> dict[str, Any]:
        """A table of current rows: written by two queries, one of which says its last word before the row goes."""
        name = f"current{form}"
        table, spark = f"`{CATALOG}`.`shop`.`{name}`", self.spark
        made = f"TBLPROPERTIES ('format-version'='{form}', {MODES})"
        spark.sql(f"CREATE TABLE {table} (id bigint, v string, who struct<id: int, name: string>) USING iceberg {made}")
        mark(spark, marks("q", 0))
        text = f"CASE WHEN id = {KEY} THEN '{self.value}' ELSE 'other' END"
        spark.range(ROWS).selectExpr(
            "id", f"{text} v", f"named_struct('id', CAST(id + 894 AS int), 'name', {text}) who"
        ).coalesce(1).writeTo(table).append()
        mark(spark, marks("later", 0))
        spark.sql(f"INSERT INTO {table} VALUES ({ROWS}, 'new', NULL)")
        opened = loaded(spark, table)
        opened.manageSnapshots().createTag("march", opened.currentSnapshot().snapshotId()).commit()
        mark(spark, marks("q", 1))
        spark.sql(f"UPDATE {table} SET v = concat(v, '!') WHERE id IN ({KEY}, {KEY + 1})")
        mark(spark, marks("q", 2))
        spark.sql(f"DELETE FROM {table} WHERE id = {KEY}")
        mark(spark, None)
        before = self.look(name)
        said = [rewrite(spark, table, ["march"])]
        after = self.look(name)
        again = rewrite(spark, table, [])
        known = [self.holds(name, *one) for one in (("q", 2), ("later", 0), ("q", 3))]
        return {"before": before, "after": after, "said": [*said, again], "known": known, "again": self.look(name)}

    def history(self) -> dict[str, Any]:
        """A history: rows are only added to it, and go by their places in the log."""
        table, spark = f"`{CATALOG}`.`shop`.`past`", self.spark
        columns = f"id bigint, v string, {PARTITION} int, {OFFSET} bigint"
        spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='2')")
        for number in range(2):
            mark(spark, marks("h", number))
            text = f"CASE WHEN id = {KEY} THEN '{self.value}{number}' ELSE 'other' END"
            places = f"CAST(id % 2 AS int) {PARTITION}", f"id + {number * ROWS} {OFFSET}"
            spark.range(ROWS).selectExpr("id", f"{text} v", *places).coalesce(1).writeTo(table).append()
        mark(spark, None)
        before = self.look("past")
        forget_rows(spark, table, {KEY % 2: [KEY, KEY + ROWS]})
        said = rewrite(spark, table, [])
        known = [self.holds("past", "h", number) for number in (1, 2)]
        after = self.look("past")
        return {"before": before, "after": after, "said": said, "known": known, "left": self.left(table)}

    def left(self, table: str) -> dict[str, Any]:
        """What was left by one that was killed before it had removed the files, or made a commit whose manifests it had
        written, and what somebody is writing now."""
        folder, killed = self.folder / "w" / "shop" / "past", time.time() - 60
        began = killed + 40
        names = ("data/left.parquet", "data/being-written.parquet", "metadata/left-m0.avro", "metadata/younger-m0.avro")
        for name, at in zip(names, (killed - 60, killed + 30, killed + 30, began + 10), strict=True):
            (folder / name).write_text(self.value)
            os.utime(folder / name, (at, at))
        removed = remove_left(self.spark, table, killed, began)
        there = [name for name in names if (folder / name).exists()]
        for name in there:
            (folder / name).unlink()
        return {"removed": removed, "there": there, "look": self.look("past")}


def main(folder: Path, value: str) -> None:
    lake = SimpleNamespace(catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace="shop")
    jars = artifacts.spark_jars()[0].parent
    conf = catalog_settings(CATALOG, iceberg.spark_properties(lake))
    spark = build_session(
        "erasing", master="local[2]", jars=jars, log=folder / "spark.log", driver_memory="1g", conf=conf
    )
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{CATALOG}`.`shop`")
        one = Lake(spark, folder, lake, value)
        print(json.dumps({"3": one.current("3"), "2": one.current("2"), "history": one.history()}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    os._exit(0)  # the sockets of Spark's are its own
