"""Build the Avro converter's jar: ``python -m deploy.connect.build JARS JARS… OUT.jar`` (folders of jars, the result).

The jar also holds the service file by which Connect finds the converter: Apicurio's jars have none, and a worker with
``plugin.discovery=service_load`` does not look at classes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import compiled

SOURCE = Path(__file__).with_name("RowAvroConverter.java")
SERVICES = {"org.apache.kafka.connect.storage.Converter": "headwater.connect.RowAvroConverter"}


def build(javac: str, jars: Sequence[Path], target: Path) -> None:
    """Compile and pack, against Connect's API and Apicurio's converter; raises as ``compiled.build``."""
    compiled.build(javac, [SOURCE], jars, target, SERVICES)


if __name__ == "__main__":
    *folders, out = map(Path, sys.argv[1:])
    build("javac", folders, out)
