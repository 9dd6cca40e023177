"""Random cuts through a history, and what three engines find there by the SQL that is printed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import duckdb
import duckdb_extensions

from cdc.pipeline import Pipeline, load
from deploy.local import artifacts
from operations.as_of.cut import Asked, Cut, earlier, with_cut
from operations.as_of.report import as_of, told
from operations.run.session import warehouse_settings
from spark.machine.session import build_session
from tests.support.vaults import CATALOG, NAMESPACE, SINK, TABLE_NAMES, TOTAL, Vaults

Report = dict[str, Any]
# So many cuts' statements go to Spark as one.
TOGETHER = 25


def pipeline_of(vaults: Vaults) -> Pipeline:
    """Its file, read."""
    return load(vaults.file, vaults.environment())


def cut(vaults: Vaults, lsn: int | None = None, wait: float = 120.0, **asked: Any) -> Report:
    """What the command would print."""
    return as_of(pipeline_of(vaults), None, Asked(lsn, wait=wait, **asked), None, lambda line: None)


def random_cuts(vaults: Vaults, count: int, begins: int, ends: int, seed: float) -> list[Report]:
    """Cuts at random positions between two, all of one look."""
    rng, pipeline = random.Random(seed), pipeline_of(vaults)

    def work(found: Cut) -> list[Report]:
        places = [rng.randint(begins, ends) for _ in range(count)]
        return [told(pipeline, earlier(found, lsn), None) for lsn in places]

    made: list[Report] = with_cut(pipeline, None, Asked(ends, wait=120.0), lambda line: None, work)
    return made


def summed(texts: Sequence[str]) -> str:
    """One number of some tables: all the money."""
    whole = " UNION ALL ".join(f"SELECT balance FROM ({text})" for text in texts)
    return f"SELECT CAST(coalesce(sum(balance), 0) AS bigint) AS total FROM ({whole})"


def by_duckdb(reports: Sequence[Report]) -> list[int]:
    """All the money at each cut."""
    with duckdb.connect() as connection:
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension)
            connection.execute(f"LOAD {extension}")
        texts = [summed([table["sql"]["duckdb"] for table in one["tables"]]) for one in reports]
        return [connection.execute(text).fetchall()[0][0] for text in texts]


def by_pyiceberg(reports: Sequence[Report]) -> list[int]:
    """All the money at each cut."""
    found = []
    for one in reports:
        total = 0
        for table in one["tables"]:
            names: dict[str, Any] = {}
            exec(table["sql"]["pyiceberg"], names)
            total += sum(names["rows"].column("balance").to_pylist())
        found.append(total)
    return found


def by_spark(vaults: Vaults, reports: Sequence[Report]) -> list[int]:
    """All the money at each cut."""
    pipeline = pipeline_of(vaults)
    spark = build_session(
        "cuts",
        master="local[2]",
        jars=artifacts.spark_jars()[0].parent,
        log=vaults.folder / "cuts.log",
        conf=warehouse_settings(pipeline, [SINK]),
    )
    try:
        found: list[int] = []
        for first in range(0, len(reports), TOGETHER):
            texts = [
                summed([table["sql"]["spark"] for table in one["tables"]]).replace(
                    "SELECT CAST", f"SELECT {n} AS n, CAST", 1
                )
                for n, one in enumerate(reports[first : first + TOGETHER])
            ]
            rows = spark.sql(" UNION ALL ".join(texts)).collect()
            found += [row["total"] for row in sorted(rows, key=lambda row: int(row["n"]))]
        place = f"{CATALOG}.{NAMESPACE}"
        current = [f"SELECT balance FROM {place}.{table}_versions WHERE is_current" for table in TABLE_NAMES]
        assert spark.sql(summed(current)).collect()[0]["total"] == TOTAL, "the views of all versions"
        return found
    finally:
        spark.stop()


def torn(totals: Sequence[int]) -> int:
    """How many of them are not all the money."""
    return sum(total != TOTAL for total in totals)
