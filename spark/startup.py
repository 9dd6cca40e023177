"""An archive of the classes that Spark loads: a session starts in two thirds of the time.

Java maps such an archive instead of reading, checking and linking some 15,000 classes again in every process ("class
data sharing", JEP 350). It holds for one Java and one installed Spark; a Java that it does not fit ignores it. It is
made once, by a process of its own, because Java writes it when it ends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark.class_archive import _QUIET

# Making it takes 20 s on a quiet machine.
MOST_SECONDS = 300


def prepare(jars: Path, archive: Path, say: Callable[[str], None] = lambda line: None) -> bool:
    """Make the archive if it is not there. That it can't be made is told, and no error: all works without it.

    Args:
        jars: folder with the pinned jars.
        archive: where it goes; some 170 MB.
        say: is told what takes so long.

    Returns:
        whether it is there.
    """
    if archive.is_file():
        return True
    say("preparing Spark, so that it starts faster (once, some 20 s)")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".spark-archive-", dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        command = [sys.executable, "-m", "spark.startup", str(jars), str(made)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=MOST_SECONDS)
            made.rename(archive)  # in one step: another process that starts meanwhile sees all of it or nothing
        except (subprocess.SubprocessError, OSError) as error:
            say(f"Spark starts as it always does: no archive could be made ({type(error).__name__})")
            return False
    return True


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def _make(jars: Path, archive: Path) -> None:
    """What sessions do, so that its classes are loaded: Spark SQL, Python stages, a stream with a checkpoint."""
    from spark import session

    log = archive.with_name("spark.log")
    options = f"{session.JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} {_QUIET}"
    spark = session.build_session("archive", master="local[2]", jars=jars, log=log, java_options=options)
    gateway: Any = spark.sparkContext._gateway
    spark.range(0, 100, 1, 2).selectExpr("id", "concat('a', id) AS text").mapInArrow(
        _same, "id long, text string"
    ).groupBy("text").count().collect()
    stream = spark.readStream.format("rate").option("rowsPerSecond", "5").load().selectExpr("value")
    writer = stream.mapInArrow(_same, "value long").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(archive.with_name("checkpoint"))).start()
    query.awaitTermination(4)
    query.stop()
    spark.stop()
    # Java writes the archive when it ends, and it ends when we let go of its standard input.
    java = gateway.proc
    java.stdin.close()
    java.wait(MOST_SECONDS)


if __name__ == "__main__":
    _make(Path(sys.argv[1]), Path(sys.argv[2]))
