"""Build the jar of our own classes for Spark: ``python -m deploy.spark.build OUT.jar``.

It is compiled against the installed PySpark's jars and those of OUT's folder, which ``engine.jars`` names. Without it
views that are made of events fail, and all else is slower (docs/decisions/micro-batches.md).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from deploy import compiled

SOURCES = sorted(Path(__file__).parent.glob("*.java"))
# By this name spark/machine/jars.py finds it, beside the class archive or in the folder of jars.
NAME = "headwater-spark.jar"


def spark_jars() -> Path:
    """The jars of the installed PySpark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "jars"


def build(javac: str, jars: Path, target: Path) -> None:
    """Compile and pack; raises as ``compiled.build``.

    Args:
        javac: the compiler.
        jars: folder with the jars that Spark gets besides its own: the Kafka source.
        target: the jar.
    """
    compiled.build(javac, SOURCES, [spark_jars(), jars], target)


def is_built(jars: Path, target: Path) -> bool:
    """Whether the jar is there, made of the sources as they are now."""
    return compiled.is_of(target, SOURCES, [spark_jars(), jars])


if __name__ == "__main__":
    out = Path(sys.argv[1])
    build("javac", out.absolute().parent, out)
