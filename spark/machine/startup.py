"""An archive of the classes that Spark loads: a session starts in two thirds of the time.

Java maps such an archive instead of reading, checking and linking some 15,000 classes again in every process ("class
data sharing", JEP 350). It holds for one Java and one installed Spark; a Java that it does not fit ignores it. It is
made once, by a process of its own, because Java writes it when it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.errors import ConfigError
from cdc.java import for_spark, read
from cdc.saying import Say, to_nobody
from cdc.scratch import scratch_folder
from spark.machine import own_code
from spark.machine.class_archive import _QUIET

# Making it takes 35 s on a quiet machine.
MOST_SECONDS = 300
# Counted on when what is run for an archive changes.
ROUND = 2


def prepare(jars: Path, archive: Path, say: Say = to_nobody) -> bool:
    """Make the archive if it is not there. That it can't be made is told, and no error: all works without it.

    Args:
        jars: folder with the pinned jars.
        archive: where it goes; some 210 MB.
        say: is told what takes so long.

    Returns:
        whether it is there.
    """
    made_for, kind = archive.with_name(archive.name + ".of"), _kind(jars)
    if archive.is_file() and made_for.is_file() and made_for.read_text() == kind:
        return True
    say(f"preparing Spark, so that it starts faster (once, some 35 s; {MOST_SECONDS} at most)")
    with scratch_folder(".spark-archive-", archive.parent) as folder:
        made = folder / archive.name
        command = [sys.executable, "-m", "spark.machine.startup", str(jars), str(made)]
        try:
            environment = {**os.environ, **own_code.environment()}
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=MOST_SECONDS)
            made_for.write_text(kind)
            made.rename(archive)  # in one step: another process that starts meanwhile sees all of it or nothing
        except (subprocess.SubprocessError, OSError) as error:
            late = isinstance(error, subprocess.TimeoutExpired)
            why = f"it had not ended after {MOST_SECONDS} s" if late else type(error).__name__
            say(
                f"Spark starts as it always does: no archive could be made ({why}); the next `headwater up` tries again"
            )
            return False
    return True


def _kind(jars: Path) -> str:
    """What an archive is made for: one of another Java or other jars is of no use, and one of before knows less."""
    made_for = f"{ROUND} {pyspark.__version__} {_java()}"
    return "\n".join([made_for, *sorted(jar.name for jar in jars.glob("*.jar")), ""])


def _java() -> str:
    """The version of the Java that Spark runs on; empty if that can't be told (who starts Spark is told of it)."""
    try:
        home = for_spark()
    except ConfigError:
        return ""
    jdk = read(home) if home is not None else None
    return jdk.version if jdk is not None else ""


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def _make(jars: Path, archive: Path) -> None:
    """What sessions do, so that its classes are loaded: Spark SQL, Python stages, a table, a stream."""
    from spark.machine.session import build_session
    from spark.machine.settings import JAVA_OPTIONS

    log = archive.with_name("spark.log")
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} {_QUIET}"
    spark = build_session("archive", master="local[2]", jars=jars, log=log, java_options=options)
    gateway: Any = spark.sparkContext._gateway
    spark.range(0, 100, 1, 2).selectExpr("id", "concat('a', id) AS text").mapInArrow(
        _same, "id long, text string"
    ).groupBy("text").count().collect()
    _warehouse(spark, archive.parent)
    _kafka(gateway.jvm)
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


def _warehouse(spark: SparkSession, folder: Path) -> None:
    """A table that is made, filled from JSON, and merged into."""
    from spark.warehouse.table import catalog_settings

    places = {"uri": f"jdbc:sqlite:{folder / 'catalogue.db'}", "warehouse": str(folder / "warehouse")}
    settings = catalog_settings("archive", {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", **places})
    for key, value in settings.items():
        spark.conf.set(key, value)
    spark.sql("CREATE NAMESPACE archive.n")
    spark.sql(
        "CREATE TABLE archive.n.t (id bigint, v string) USING iceberg TBLPROPERTIES "
        "('format-version'='3', 'write.merge.mode'='merge-on-read')"
    )
    text = spark.range(0, 100, 1, 2).selectExpr("to_json(named_struct('id', id, 'v', 'x')) j")
    rows = (
        text.selectExpr("from_json(j, 'id bigint, v string') r").select("r.*").groupBy("id").agg(F.max("v").alias("v"))
    )
    rows.writeTo("archive.n.t").append()
    rows.createOrReplaceTempView("changes")
    spark.sql(
        "MERGE INTO archive.n.t t USING changes s ON t.id = s.id WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    spark.table("archive.n.t").count()


def _kafka(jvm: Any) -> None:
    """Kafka's clients, which need no broker to be made."""
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", "127.0.0.1:9")
    jvm.org.apache.kafka.clients.admin.Admin.create(settings).close(jvm.java.time.Duration.ZERO)
    for part in ("key", "value"):
        settings.put(f"{part}.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer")
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
    place = jvm.org.apache.kafka.common.TopicPartition("none", 0)
    consumer.assign(jvm.java.util.Collections.singletonList(place))
    consumer.seek(place, 0)
    consumer.poll(jvm.java.time.Duration.ofMillis(100))
    consumer.close(jvm.java.time.Duration.ZERO)


if __name__ == "__main__":
    _make(Path(sys.argv[1]), Path(sys.argv[2]))
