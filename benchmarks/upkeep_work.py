"""Run as a program, because a Spark session is one per process: a table under small merges, read again and again.

``python -m benchmarks.upkeep_work FOLDER BATCHES FORMAT on|off`` prints as JSON how much longer reads of the table took
than of one that was written anew with the same rows, and what upkeep has cost. A folder that an attempt has left, which
was broken off, is gone on with: ten thousand batches take hours. One that is finished, or was begun for another number
of batches, is refused.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import duckdb_extensions
from pyspark.sql import DataFrame, SparkSession

from cdc.errors import StackError
from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.rows import VERSION_COLUMN
from spark.disk.files import write_atomic
from spark.machine.session import build_session
from spark.warehouse.commits import loaded
from spark.warehouse.large_merge import held, merge_small
from spark.warehouse.marks import BATCH, OFFSETS, QUERY
from spark.warehouse.merge import GONE, merge_statement
from spark.warehouse.table import HOUSE as SETTINGS
from spark.warehouse.table import catalog_settings
from spark.warehouse.upkeep.plan import Policy
from spark.warehouse.upkeep.steps import signs_of
from spark.warehouse.upkeep.upkeep import Upkeep

ROWS, CHANGED, ADDED = 1_000_000, 440, 60
# Moments at which the table is read; upkeep's own rhythm does not divide them.
MOMENTS, READS = 7, 7
# After so many batches it is noted how far it is; who goes on merges at most as many again.
NOTED = 50
CATALOG = "hw_lake"
TABLE, FRESH = f"`{CATALOG}`.`shop`.`item`", f"`{CATALOG}`.`shop`.`fresh`"
QUESTION = "SELECT count(*), sum(amount), count(DISTINCT customer), max(note) FROM {}"
MODES = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("merge", "update", "delete"))
HOUSE = ", ".join(f"'{name}'='{value}'" for name, value in SETTINGS.items())
ENGINES = ("spark", "duckdb")


def columns(key: str, version: int) -> list[str]:
    """What a row is made of, as Spark SQL."""
    mixed = f"hash({key}, {version})"
    return [
        f"CAST({key} AS bigint) id",
        f"CAST(pmod({mixed}, 5000) AS bigint) customer",
        f"concat('name ', {key}) name",
        f"CAST(pmod({mixed}, 100000) / 100 AS decimal(12,2)) amount",
        f"sha2(concat({key}, '-', {version}), 256) note",
        f"CAST({version} AS bigint) {VERSION_COLUMN}",
    ]


def changes(spark: SparkSession, number: int) -> DataFrame:
    """A batch: rows all over the table that change, a few that go, and new ones."""
    new = f"{ROWS} + {number} * {ADDED} + id"
    there = f"pmod({number} * {ROWS // 7} + id * {ROWS // CHANGED}, {ROWS})"  # none twice
    keys = spark.range(CHANGED + ADDED).selectExpr(f"CAST(IF(id < {CHANGED}, {there}, {new}) AS bigint) k", "id")
    return keys.selectExpr(*columns("k", number), f"id < 5 {GONE}")


@dataclass
class Progress:
    """How far the work is, and what was measured so far; seconds, one of each batch.

    Attributes:
        batches: how many it is begun for: the moments at which is read, and so the means, depend on it.
    """

    batches: int
    merges: list[float] = field(default_factory=list)
    upkeeps: list[float] = field(default_factory=list)
    ratios: list[dict[str, float]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, batches: int) -> Progress:
        """As it was noted; nothing done if it never was.

        Raises:
            StackError: the folder is of another number of batches, or finished: its figures are not this run's.
        """
        try:
            noted = json.loads((folder / "progress.json").read_text())
        except FileNotFoundError:
            return cls(batches)
        if noted.get("batches") != batches:
            begun = f"{noted['batches']:,}" if "batches" in noted else "an unknown number of"
            raise StackError(
                f"{folder} was begun for {begun} batches, and {batches:,} are asked for",
                means="what it has measured is of other moments, and would be mixed with this run's",
                fix="set HEADWATER_UPKEEP_FOLDER to a new folder, or delete this one",
            )
        if len(noted["merges"]) >= batches:
            raise StackError(
                f"{folder} has had all of its {batches:,} batches",
                means="there is nothing left to measure in it, and its figures are of the run that ended then",
                fix="set HEADWATER_UPKEEP_FOLDER to a new folder, or delete this one",
            )
        return cls(**noted)

    def note(self, folder: Path) -> None:
        """Remember it."""
        write_atomic(folder / "progress.json", json.dumps(asdict(self)))


class Work:
    """The table and its readers.

    Args:
        folder: for all files.
        form: Iceberg's format version.
        upkeep: what is called after each batch.
    """

    def __init__(self, folder: Path, form: str, upkeep: Upkeep) -> None:
        lake = SimpleNamespace(catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace="shop")
        self.spark = build_session(
            "upkeep",
            master="local[2]",
            jars=artifacts.spark_jars()[0].parent,
            log=folder / "spark.log",
            driver_memory="2g",
            conf=catalog_settings(CATALOG, iceberg.spark_properties(lake)),
        )
        self.upkeep, self.form = upkeep, form
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.shop")
        if not self.spark.catalog.tableExists(TABLE):
            self._fill()
        self.duck = duckdb.connect()
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension)
            self.duck.execute(f"LOAD {extension}")

    def _fill(self) -> None:
        rows = self.spark.range(ROWS).selectExpr(*columns("id", 0))
        rows.createOrReplaceTempView("hw_rows")
        said = f"TBLPROPERTIES ('format-version'='{self.form}', {MODES}, {HOUSE})"
        self.spark.sql(f"CREATE TABLE {TABLE} USING iceberg {said} AS SELECT * FROM hw_rows")  # noqa: S608

    def merge(self, number: int) -> tuple[float, float]:
        """Apply a batch; seconds of the merge, and of the upkeep after it."""
        began = time.perf_counter()
        self.spark.catalog.refreshTable(TABLE)
        source = changes(self.spark, number)
        for name, value in ((QUERY, "upkeep"), (BATCH, str(number)), (OFFSETS, "{}")):
            self.spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)
        change = partial(merge_statement, keys=["id"], columns=source.columns[:-1], new=False)
        with held(source) as kept:  # as a flow does it with a few rows and a table of that size
            merge_small(TABLE, kept, ["id"], change, GONE)
        merged = time.perf_counter()
        self.upkeep.after(self.spark, TABLE)
        return merged - began, time.perf_counter() - merged

    def ratios(self) -> dict[str, float]:
        """How much longer each engine reads the table than one with the same rows that was just written."""
        self.spark.sql(f"DROP TABLE IF EXISTS {FRESH} PURGE")
        self.spark.sql(f"CREATE TABLE {FRESH} USING iceberg TBLPROPERTIES ({HOUSE}) AS SELECT * FROM {TABLE}")  # noqa: S608
        places = {table: loaded(self.spark, table).operations().current() for table in (TABLE, FRESH)}
        files = {table: place.metadataFileLocation() for table, place in places.items()}
        asked: dict[str, Callable[[str], Any]] = {
            "spark": lambda table: self.spark.sql(QUESTION.format(table)).collect(),
            "duckdb": lambda table: self.duck.execute(QUESTION.format("iceberg_scan(?)"), [files[table]]).fetchall(),
        }
        found = {}
        for engine in ENGINES:
            took: dict[str, list[float]] = {TABLE: [], FRESH: []}
            for _ in range(READS + 2):
                for table in (TABLE, FRESH):  # in turns: what else the machine does meets both
                    began = time.perf_counter()
                    asked[engine](table)
                    took[table].append(time.perf_counter() - began)
            found[engine] = statistics.median(took[TABLE][2:]) / statistics.median(took[FRESH][2:])
        return found


def main(folder: Path, batches: int, form: str, *, on: bool) -> dict[str, Any]:
    """Merge and read."""
    done = Progress.of(folder, batches)
    done.note(folder)  # before the first batch: whoever goes on must know how many it was begun for
    work = Work(folder, form, Upkeep(Policy(on=on)))
    moments = {batches * (at + 1) // MOMENTS for at in range(MOMENTS)} if on else {batches}
    for number in range(len(done.merges) + 1, batches + 1):
        merged, kept = work.merge(number)
        done.merges.append(merged)
        done.upkeeps.append(kept)
        if number in moments:
            signs = signs_of(work.spark, loaded(work.spark, TABLE))
            done.files.append(signs.files)
            done.ratios.append(work.ratios())
            line = (
                f"{number} batches: {signs.files} files, {signs.deleted} rows deleted, {len(signs.snapshots)} snapshots"
            )
            print(
                f"{line}, read {done.ratios[-1]}, merge {statistics.median(done.merges):.2f} s, "
                f"upkeep {sum(done.upkeeps):.0f} s",
                file=sys.stderr,
            )
        if number in moments or number % NOTED == 0:
            done.note(folder)
    work.spark.stop()
    return {
        "ratios": done.ratios,
        "files": done.files,
        "merge_s": statistics.median(done.merges),
        "merges_s": sum(done.merges),
        "upkeep_s": sum(done.upkeeps),
        "longest_s": max(done.upkeeps),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], on=sys.argv[4] == "on")))
