"""Build a converter's jar: ``python -m deploy.connect.build JARS… headwater-json.jar`` (folders of jars, result).

The result's name says which converter: ``headwater-json`` needs Kafka's jars, ``headwater-avro`` Apicurio's besides.
Each jar also holds the service file by which Connect finds the converter: a worker with
``plugin.discovery=service_load`` does not look at classes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import compiled

# A jar's name without its ending -> its converter.
CONVERTERS = {"headwater-json": "RowJsonConverter", "headwater-avro": "RowAvroConverter"}


def source(name: str) -> Path:
    """The Java file of a jar.

    Args:
        name: the jar's, without its ending.
    """
    return Path(__file__).with_name(f"{CONVERTERS[name]}.java")


def build(name: str, javac: str, jars: Sequence[Path], target: Path) -> None:
    """Compile and pack, against Connect's API and what the converter stands on; raises as ``compiled.build``."""
    services = {"org.apache.kafka.connect.storage.Converter": f"headwater.connect.{CONVERTERS[name]}"}
    compiled.build(javac, [source(name)], jars, target, services)


if __name__ == "__main__":
    *folders, out = map(Path, sys.argv[1:])
    build(out.stem, "javac", folders, out)
