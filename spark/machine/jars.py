"""The jars that a session needs: which, where they are, and what is said where one is missing."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

from cdc.errors import ConfigError
from spark.machine import class_archive

# The jars the engine needs, by the start of their file names. deploy/ fetches them; a cluster may bring its own.
REQUIRED_JARS = (
    "spark-sql-kafka-0-10",
    "spark-token-provider-kafka-0-10",
    "kafka-clients",
    "commons-pool2",
    "iceberg-spark-runtime",
    "sqlite-jdbc",
    "postgresql",
)

# What Iceberg needs besides to reach a bucket: the client of S3, which alone is larger than all of these.
S3_JAR = "iceberg-aws-bundle"

# Our own classes for Spark (deploy/spark), and of which sources this Headwater wants them: with an older jar all goes
# on, without what was mended since, but for views that say that they need the new one. A test says which sources those
# are where one has changed.
OWN_JAR = "headwater-spark.jar"
OWN_SOURCES = "ddd30f4d7fa6"
BUILD_OWN_JAR = f"`headwater up` builds it; elsewhere `python -m deploy.spark.build {OWN_JAR}` in engine.jars"


def find_jars(folders: Path) -> list[Path]:
    """List the jars in a folder, or in several with ``:`` between them, as in a PATH.

    Raises:
        ConfigError: they lack one that the engine needs (terminal).
    """
    jars = _jars_in(folders)
    missing = [name for name in REQUIRED_JARS if not any(jar.name.startswith(name) for jar in jars)]
    if missing:
        raise ConfigError(
            f"Spark's jars are not complete in {folders}: missing {', '.join(missing)}",
            means="Spark can't read Kafka or write Iceberg without them",
            fix="run `headwater up`, which fetches them, or set `engine.jars` to a folder that holds them",
        )
    beside = class_archive.beside(OWN_JAR)
    return jars if beside is None or any(jar.name == OWN_JAR for jar in jars) else [*jars, beside]


def of_another(jars: Iterable[Path]) -> Path | None:
    """Our own jar among these, if another Headwater's sources were compiled into it; None if there is none.

    ``deploy/compiled.py`` notes as the last word of the archive's comment what it was made of.
    """
    for jar in jars:
        if jar.name == OWN_JAR:
            try:
                with zipfile.ZipFile(jar) as packed:
                    return None if packed.comment.split()[-1:] == [OWN_SOURCES.encode()] else jar
            except (OSError, zipfile.BadZipFile):
                return jar
    return None


def told_of_another(jar: Path) -> str:
    """What is said of it."""
    return f"{jar} is of another Headwater than this one: what was mended in it since is not in effect"


def require_s3(folders: Path) -> None:
    """Refuse a warehouse in a bucket without the client of S3.

    Args:
        folders: as ``find_jars``.

    Raises:
        ConfigError: none of them has it (terminal).
    """
    if not any(jar.name.startswith(S3_JAR) for jar in _jars_in(folders)):
        raise ConfigError(
            f"Spark's jars in {folders} lack {S3_JAR}, without which a warehouse in s3:// can't be opened",
            means="nothing was started",
            fix="`headwater up --with s3` fetches it (66 MiB); then set HEADWATER_SPARK_JARS as `headwater ps --env` "
            "prints it, or put the jar into `engine.jars`",
        )


def _jars_in(folders: Path) -> list[Path]:
    return [jar for one in str(folders).split(os.pathsep) for jar in sorted(Path(one).glob("*.jar"))]
