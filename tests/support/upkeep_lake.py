"""Run as a program, because a Spark session is one per process: tables that are merged into, kept, and disturbed.

``python -m tests.support.upkeep_lake FOLDER`` prints as JSON what became of them. The thresholds are far lower than the
usual ones, and upkeep's clock can be put forward: a hundred batches and a week would take too long.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import duckdb_extensions
from pyspark.sql import SparkSession

from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from spark.machine.session import build_session
from spark.warehouse.commits import History, loaded
from spark.warehouse.marks import QUERY
from spark.warehouse.merge import merge_statement
from spark.warehouse.table import catalog_settings
from spark.warehouse.upkeep import plan
from spark.warehouse.upkeep.plan import DAY, HOUR, Act, Memory, Policy
from spark.warehouse.upkeep.steps import do, others_in, signs_of
from spark.warehouse.upkeep.upkeep import Upkeep, insisting, read_note

CATALOG, ROWS, BATCHES = "hw_lake", 1000, 16
MANY = 5
MODES = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("merge", "update", "delete"))


class Clock:
    """Time, put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Lake:
    """A table, its writer, and what its rows must be."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, form: str) -> None:
        self.spark, self.table, self.clock = spark, f"`{CATALOG}`.`shop`.`{name}`", Clock()
        self.upkeep = Upkeep(Policy(), folder / name, self.clock)
        self.folder = folder / name
        made = f"TBLPROPERTIES ('format-version'='{form}', {MODES})"
        spark.sql(f"CREATE TABLE {self.table} (id bigint, v string, _hw_version bigint) USING iceberg {made}")
        self.rows = dict.fromkeys(range(ROWS), "old")
        self.mark("q", 0)
        spark.range(ROWS).selectExpr("id", "'old' v", "0L _hw_version").coalesce(1).writeTo(self.table).append()

    def marks(self, query: str, number: int) -> dict[str, str]:
        said = {"query-id": query, "batch-id": str(number), "offsets": f'{{"t":{{"0":{number}}}}}'}
        return {f"headwater.{name}": value for name, value in said.items()}

    def mark(self, query: str, number: int) -> None:
        for name, value in self.marks(query, number).items():
            self.spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)

    def known(self, query: str, number: int) -> bool:
        self.spark.catalog.refreshTable(self.table)
        return History(self.spark, self.table).holds(self.marks(query, number))

    def merge(self, number: int, query: str = "q", before: Callable[[], None] = lambda: None) -> None:
        """A batch, done once: rows all over the table change, some go, some come."""
        changed, gone, new = range(number, ROWS, 37), range(number, ROWS, 211), [ROWS + number]
        values = {**dict.fromkeys([*changed, *new], f"v{number}"), **dict.fromkeys(gone, None)}
        rows = [(key, value, number, value is None) for key, value in values.items()]
        self.spark.createDataFrame(rows, "id long, v string, _hw_version long, _hw_gone boolean").coalesce(
            1
        ).createOrReplaceTempView("hw_changes")
        self.mark(query, number)
        steps = [before]

        def once() -> None:
            self.spark.catalog.refreshTable(self.table)
            if self.known(query, number):
                return
            if steps:
                steps.pop()()
            self.spark.sql(merge_statement(self.table, ["id"], ["id", "v", "_hw_version"]))

        insisting(once)
        for key, value in values.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def after(self) -> list[str]:
        return self.upkeep.after(self.spark, self.table)

    def signs(self) -> Any:
        return signs_of(self.spark, loaded(self.spark, self.table))

    def read(self, suffix: str = "") -> dict[int, str]:
        self.spark.catalog.refreshTable(self.table)
        found = self.spark.sql(f"SELECT id, v FROM {self.table}{suffix}").collect()
        assert len(found) == len({row["id"] for row in found})
        return {row["id"]: row["v"] for row in found}

    def duckdb(self) -> dict[int, str]:
        place = loaded(self.spark, self.table).operations().current().metadataFileLocation()
        with duckdb.connect() as connection:
            for extension in ("avro", "iceberg"):
                duckdb_extensions.import_extension(extension)
                connection.execute(f"LOAD {extension}")
            return dict(connection.execute("SELECT id, v FROM iceberg_scan(?)", [place]).fetchall())


def many_batches(lake: Lake) -> dict[str, Any]:
    """Debt is bounded, marks and tags stay, rows are right; from the middle on it is a week later."""
    lake.merge(1, "earlier")
    files, snapshots, did, tagged = list[int](), list[int](), list[str](), dict[int, str]()
    for number in range(2, BATCHES):
        lake.merge(number)
        if number == 6:
            lake.spark.sql(f"ALTER TABLE {lake.table} CREATE TAG month_end")
            tagged = dict(lake.rows)
        if number == BATCHES // 2:
            lake.clock.ahead = 7 * DAY
        did += lake.after()
        signs = lake.signs()
        files.append(signs.files)
        snapshots.append(len(signs.snapshots))
    lake.clock.ahead += 3 * HOUR
    for _ in range(6):  # until nothing is due
        lake.clock.ahead += HOUR
        did += lake.after()
    signs = lake.signs()
    return {
        "files": files,
        "snapshots": snapshots,
        "left": [signs.files, signs.delete_files, signs.manifests, len(signs.snapshots)],
        "did": did,
        "known": [lake.known("q", BATCHES - 1), lake.known("earlier", 1), lake.known("q", BATCHES)],
        "unmarked": QUERY in next(one for one in signs.snapshots if one.id == signs.current).marks,
        "right": lake.read() == lake.rows,
        "duckdb": lake.duckdb() == lake.rows,
        "tagged": lake.read(" VERSION AS OF 'month_end'") == tagged,
        "note": read_note(lake.folder),
    }


def orphans(lake: Lake, warehouse: Path) -> dict[str, Any]:
    """Only old files that nobody names go, also when all files are old; and none where another table lives."""
    place = warehouse / "shop" / lake.table.split(".")[-1].strip("`")
    old, young = place / "data" / "old.parquet", place / "data" / "young.parquet"
    for path in (old, young):
        path.write_bytes(b"left behind")
    long_ago = time.time() - 4 * DAY
    for path in place.rglob("*"):
        if path.is_file() and path != young:
            os.utime(path, (long_ago, long_ago))
    before = len([path for path in place.rglob("*") if path.is_file()])
    signs = lake.signs()
    alone = not others_in(lake.spark, loaded(lake.spark, lake.table))
    said = do(Act.ORPHANS, lake.spark, lake.table, signs, Policy(), time.time())
    found = {"said": said, "old": old.exists(), "young": young.exists(), "alone": alone}
    gone = before - len([path for path in place.rglob("*") if path.is_file()])
    found |= {"gone": gone, "right": lake.read() == lake.rows, "tag": bool(lake.read(" VERSION AS OF 'month_end'"))}
    old.write_bytes(b"left behind")
    os.utime(old, (long_ago, long_ago))
    other = f"`{CATALOG}`.`shop`.`{lake.table.split('.')[-1].strip('`')}_other`"
    lake.spark.sql(f"CREATE TABLE {other} (id bigint) USING iceberg LOCATION '{place}'")
    said = do(Act.ORPHANS, lake.spark, lake.table, lake.signs(), Policy(), time.time())
    return found | {"shared": said, "kept": old.exists(), "stamped": lake.signs().orphans_at is not None}


def compact(spark: SparkSession, table: str) -> None:
    """What a user's own service does."""
    catalog, name = table.split(".", 1)
    options = "map('rewrite-all', 'true')"
    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => {options})").collect()


def disturbed(lake: Lake) -> dict[str, Any]:
    """Somebody else's compaction between our look and our commit, and somebody else's delete before our compaction."""
    user = lake.spark.newSession()
    met: list[int] = []

    def between() -> None:
        user.catalog.refreshTable(lake.table)
        compact(user, lake.table)
        met.append(1)

    lake.merge(1, before=between)
    lake.merge(2, before=between)
    after_merges = lake.read() == lake.rows
    lake.after()  # the property by which files of nobody are looked for is set the first time
    # Nothing but small files is to be due.
    lake.upkeep._tables[lake.table] = Memory(manifests=10**6, deletes=10**6)
    for number in range(3, 3 + MANY):
        lake.merge(number)
    # This session's table is as it was loaded; the user's commit is unknown to it.
    user.catalog.refreshTable(lake.table)
    user.sql(f"DELETE FROM {lake.table} WHERE id < 100")
    put_off = lake.after()
    lake.rows = {key: value for key, value in lake.rows.items() if key >= 100}
    note = read_note(lake.folder)
    lake.spark.catalog.refreshTable(lake.table)
    lake.clock.ahead += HOUR
    later = lake.after()
    return {
        "met": len(met),
        "after_merges": after_merges,
        "put_off": put_off,
        "note": note,
        "later": later,
        "right": lake.read() == lake.rows,
    }


def beside(lake: Lake) -> dict[str, Any]:
    """Somebody compacts again and again, in a session of his own, while we merge and compact."""
    user, done, failures, stop = lake.spark.newSession(), list[int](), list[str](), threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                user.catalog.refreshTable(lake.table)
                compact(user, lake.table)
                done.append(1)
            except Exception as error:  # his own conflicts are his
                failures.append(str(error)[:200])
            stop.wait(3.0)  # one that begins anew at once would let nobody through

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(20, 25):
            lake.merge(number)
            lake.after()
    finally:
        stop.set()
        thread.join()
    return {"done": len(done), "right": lake.read() == lake.rows, "known": lake.known("q", 24)}


def history(lake: Lake) -> dict[str, Any]:
    """A table that is only appended to."""
    for number in range(1, 3 * MANY):
        lake.spark.range(number * 10_000, number * 10_000 + 10).selectExpr(
            "id", "'event' v", "0L _hw_version"
        ).coalesce(1).writeTo(lake.table).append()
        lake.rows |= dict.fromkeys(range(number * 10_000, number * 10_000 + 10), "event")
        lake.after()
    return {"files": lake.signs().files, "right": lake.read() == lake.rows}


def main(folder: Path) -> dict[str, Any]:
    """All of it, in both formats where they differ."""
    plan.MANY_FILES = plan.MANY_MANIFESTS = MANY
    plan.MANY_EXPIRED, plan.REST, plan.RARE_REST = 4, 0.0, 0.0
    place = SimpleNamespace(catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace="shop")
    spark = build_session(
        "upkeep",
        master="local[2]",
        jars=artifacts.spark_jars()[0].parent,
        log=folder / "spark.log",
        driver_memory="768m",
        conf=catalog_settings(CATALOG, iceberg.spark_properties(place)),
    )
    spark.sql(f"CREATE NAMESPACE {CATALOG}.shop")
    found: dict[str, Any] = {}
    for form in ("2", "3"):
        began = time.monotonic()
        lake = Lake(spark, folder, f"many{form}", form)
        found[f"many{form}"] = many_batches(lake)
        found[f"orphans{form}"] = orphans(lake, folder / "w")
        lake = Lake(spark, folder, f"disturbed{form}", form)
        found[f"disturbed{form}"] = disturbed(lake)
        if form == "3":
            found["beside"] = beside(lake)
            found["history"] = history(Lake(spark, folder, "events", form))
        print(f"format {form}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
