"""Flink with its Postgres CDC source and Iceberg's sink: one job in one process, from the flights to an upserted table.

Its cluster is inside of the process. A row's newer version is written beside an *equality delete* of its key, which
every reader has to apply: so a commit costs nothing of the table, and a read costs more with each.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import jars
from benchmarks.peers.measuring import wait_until
from cdc.errors import StackError
from deploy import compiled
from deploy.local import java
from deploy.local.endpoints import Endpoints
from deploy.local.process import log_tail

SOURCE = Path(__file__).with_name("FlinkPeer.java")
MAIN = "headwater.benchmarks.FlinkPeer"
# What Flink 1.20 is made for; newer ones it calls experimental.
JAVA_VERSIONS = (11, 17)
# Ours has half of it; its writers remember the keys of a checkpoint.
HEAP = "2g"
SLOT, STOP_SECONDS = "bench_flink", 30.0
# What Flink's own start scripts open to it of Java 17.
OPENED = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
# The flights' columns in Flink's words, in the table's order.
COLUMNS = {
    "flight_id": "BIGINT",
    **dict.fromkeys(("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"), "INT"),
    **dict.fromkeys(("sched_arr_time", "arr_delay"), "INT"),
    "carrier": "STRING",
    "flight": "INT",
    **dict.fromkeys(("tailnum", "origin", "dest"), "STRING"),
    **dict.fromkeys(("air_time", "distance", "hour", "minute"), "INT"),
    "time_hour": "TIMESTAMP_LTZ(6)",
}
STATEMENTS = """\
CREATE CATALOG lake WITH ('type'='iceberg', 'catalog-type'='hadoop', 'warehouse'='file://{warehouse}');
CREATE DATABASE IF NOT EXISTS lake.peer;
CREATE TABLE lake.peer.flights ({columns}, PRIMARY KEY (flight_id) NOT ENFORCED)
  WITH ('format-version'='2', 'write.upsert.enabled'='true');
CREATE TABLE flights ({columns}, PRIMARY KEY (flight_id) NOT ENFORCED) WITH ({source});
INSERT INTO lake.peer.flights SELECT * FROM flights;
"""
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1.} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Committed:
    """A commit of the table: when (epoch seconds), and how many rows were written by then, all versions counted."""

    at: float
    written: int


class Flink:
    """A job that runs.

    Args:
        folder: for its table, checkpoints and log.
        process: its.
        asked: when it was started, epoch seconds.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], asked: float) -> None:
        self.folder, self.process, self.asked = folder, process, asked

    @property
    def warehouse(self) -> Path:
        """The folder of its catalogue."""
        return self.folder / "warehouse"

    @property
    def began(self) -> float:
        """When it was given the job, by its own clock (epoch seconds); its virtual machine and cluster come before."""
        said = re.findall(r"^began (\d+)$", (self.folder / "flink.log").read_text(), re.MULTILINE)
        return int(said[-1]) / 1000

    def check(self) -> None:
        """StackError if it has ended."""
        if (code := self.process.poll()) is not None:
            raise StackError(f"Flink ended (exit code {code}){log_tail(self.folder / 'flink.log')}")

    def metadata(self) -> Path | None:
        """The table's newest metadata file; None before the table is there."""
        found = self.warehouse.glob("peer/flights/metadata/v*.metadata.json")
        return max(found, key=lambda path: int(path.name[1:].partition(".")[0]), default=None)

    def commits(self) -> list[Committed]:
        """All commits, the oldest first."""
        path, written, found = self.metadata(), 0, list[Committed]()
        known: dict[str, Any] = json.loads(path.read_text()) if path is not None else {}
        for snapshot in sorted(known.get("snapshots", ()), key=lambda one: one["sequence-number"]):
            written += int(snapshot["summary"].get("added-records", 0))
            found.append(Committed(snapshot["timestamp-ms"] / 1000, written))
        return found

    def await_written(self, rows: int, patience: float) -> float:
        """Wait until so many rows were written to the table; when it was committed to with the last of them.

        Raises:
            StackError: it has ended, or they did not come in time.
        """

        def there() -> bool:
            return any(one.written >= rows for one in self.commits())

        wait_until(there, self.check, 0.2, f"{rows:,} rows in Flink's table", patience)
        return next(one.at for one in self.commits() if one.written >= rows)


@contextmanager
def running(
    folder: Path, endpoints: Endpoints, database: str, checkpoint_seconds: int, progress: Progress
) -> Iterator[Flink]:
    """Start the job on a database's flights; stopped at the end, and its table is left.

    Args:
        folder: for its table, checkpoints and log; nobody else may read it.
        endpoints: where Postgres is; its superuser makes slot and publication.
        database: whose flights.
        checkpoint_seconds: between two commits.
        progress: called with one line at a time.

    Raises:
        StackError: there is no Java for it, or its jars can't be had.
    """
    units = jars.ensure("flink", progress)
    home = _java()
    jar = folder / "flink-peer.jar"
    compiled.build(str(home / "bin" / "javac"), [SOURCE], [units], jar)
    statements = folder / "statements.sql"
    statements.write_text(_statements(folder, endpoints, database))
    (folder / "log4j2.properties").write_text(LOGGING)
    settings = {
        "execution.checkpointing.interval": f"{checkpoint_seconds}s",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
    }
    argv = [str(home / "bin" / "java"), f"-Xmx{HEAP}", "-Duser.timezone=UTC", *_opened()]
    argv += [f"-Dlog4j2.configurationFile={folder}/log4j2.properties", "-cp", f"{jar}:{units}/*", MAIN, str(statements)]
    argv += [f"{name}={value}" for name, value in settings.items()]
    asked = time.time()
    with (folder / "flink.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield Flink(folder, process, asked)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _statements(folder: Path, endpoints: Endpoints, database: str) -> str:
    source = {
        "connector": "postgres-cdc",
        "hostname": endpoints.postgres_host,
        "port": endpoints.postgres_port,
        "username": endpoints.postgres_superuser,
        "password": endpoints.postgres_password,
        "database-name": database,
        "schema-name": "public",
        "table-name": "flights",
        "slot.name": SLOT,
        "decoding.plugin.name": "pgoutput",
        # In chunks of its default of 8,096 rows, each commit of one or two of them held equality deletes for all rows
        # before it, which reads were charged for.
        "scan.incremental.snapshot.enabled": "true",
        "scan.incremental.snapshot.chunk.size": "100000",
        "debezium.publication.autocreate.mode": "filtered",
        "debezium.publication.name": SLOT,
    }
    listed = ", ".join(f"'{name}'='{value}'" for name, value in source.items())
    columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    return STATEMENTS.format(warehouse=folder / "warehouse", columns=columns, source=listed)


def _java() -> Path:
    found = [jdk for home in java.candidates() if (jdk := java.read(home)) is not None]
    usable = [jdk for jdk in found if jdk.major in JAVA_VERSIONS and (jdk.home / "bin" / "javac").exists()]
    if not usable:
        seen = ", ".join(sorted({jdk.version for jdk in found})) or "none"
        raise StackError(
            f"no JDK of version {' or '.join(map(str, JAVA_VERSIONS))} (found: {seen})",
            means="Flink 1.20 can't be measured",
            fix="install one (Debian: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME",
        )
    return max(usable, key=lambda jdk: jdk.major).home


def _opened() -> list[str]:
    return [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED] + [
        "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    ]
