"""Write ``jars.toml``, the pinned list of what the warehouse's peers run: ``python -m benchmarks.peers.pin``.

Run by a maintainer when a version changes. Nothing of it becomes a part of Headwater or of its local stack.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from benchmarks.peers.jars import LIST
from deploy.local import maven, pin
from deploy.local.maven import Coordinate

# The newest of 1.20 of which all of these can be had.
FLINK = "1.20.3"
HADOOP = "3.4.2"  # what Spark has
# unit -> roots whose whole runtime closure is pinned.
CLOSED = {
    "flink": [
        *(
            f"org.apache.flink:{artifact}:{FLINK}"
            for artifact in (
                "flink-clients",
                "flink-table-api-java-bridge",
                "flink-table-planner-loader",
                "flink-table-runtime",
                "flink-connector-base",
                "flink-connector-files",
            )
        ),
        f"org.apache.logging.log4j:log4j-core:{pin.LOG4J}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{pin.LOG4J}",
    ],
    "jdbc-sink": [],
}
# unit -> coordinates that are taken as they are. Iceberg's catalogues in Flink need Hadoop's classes, of any kind.
PLAIN = {
    "flink": [
        "org.apache.flink:flink-sql-connector-postgres-cdc:3.5.0",
        "org.apache.iceberg:iceberg-flink-runtime-1.20:1.9.2",
        f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
        f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
        "commons-logging:commons-logging:1.2",
    ],
    "jdbc-sink": ["io.debezium:debezium-connector-jdbc:3.6.0.Final:tar.gz:plugin"],
}
HEADER = """\
# Every file that the warehouse's peers run, with its digest. Written by `python -m benchmarks.peers.pin`: change the
# versions there, not here.
"""


def main() -> None:
    """Resolve, fetch and hash everything; then replace the list."""
    work = Path(tempfile.mkdtemp(prefix="headwater-pin-"))
    try:
        lists = []
        for unit, roots in CLOSED.items():
            found = pin.closure(roots, work / unit) if roots else []
            found += [Coordinate.parse(text) for text in PLAIN[unit]]
            maven.run(maven.copy_pom(found, work / unit / "files"), "copy", work)
            lists.append(pin.render({unit: found}, work / unit / "files").removeprefix(pin.HEADER))
        LIST.write_text(HEADER + "".join(lists))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
