"""Build the jar of our own classes for Spark: ``python -m deploy.spark.build OUT.jar``.

It is compiled against the installed PySpark's jars, and belongs into the folder that ``engine.jars`` names. Without it
all works, only slower (docs/decisions/micro-batches.md).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from deploy import compiled

SOURCE = Path(__file__).with_name("LocalCheckpoints.java")
# By this name spark/session.py finds it, beside the class archive or in the folder of jars.
NAME = "headwater-spark.jar"


def spark_jars() -> Path:
    """The jars of the installed PySpark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "jars"


def build(javac: str, target: Path) -> None:
    """Compile and pack; raises as ``compiled.build``."""
    compiled.build(javac, SOURCE, [spark_jars()], target)


def is_built(target: Path) -> bool:
    """Whether the jar is there, made of the source as it is now."""
    return compiled.is_of(target, SOURCE, [spark_jars()])


if __name__ == "__main__":
    build("javac", Path(sys.argv[1]))
