"""Build a jar for Connect: ``python -m deploy.connect.build JARS… headwater-json.jar`` (folders of jars, result).

The result's name says what is built: the converter ``headwater-json`` and the transformation ``headwater-outbox`` need
Kafka's jars, ``headwater-avro`` Apicurio's besides, and the connector ``headwater-postgres`` Kafka's and Debezium's.
Each jar also holds the service file by which Connect finds the class: a worker with ``plugin.discovery=service_load``
does not look at classes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import compiled

CONVERTER = "org.apache.kafka.connect.storage.Converter"
# A jar's name without its ending -> its class, and what that is to Connect.
CLASSES = {
    "headwater-json": ("RowJsonConverter", CONVERTER),
    "headwater-avro": ("RowAvroConverter", CONVERTER),
    "headwater-postgres": ("PostgresConnector", "org.apache.kafka.connect.source.SourceConnector"),
    "headwater-outbox": ("OutboxRouter", "org.apache.kafka.connect.transforms.Transformation"),
}
# A jar's name -> more Java files in it.
MORE = {
    "headwater-outbox": ("OutboxMessage",),
    "headwater-postgres": ("Arrivals", "Chunks", "ChunksProvider", "Given", "Listening"),
}
# A jar's name -> more service files in it: an interface of Debezium's -> the class that Debezium finds by it.
SERVICES = {"headwater-postgres": {"io.debezium.pipeline.signal.actions.SignalActionProvider": "ChunksProvider"}}


def sources(name: str) -> list[Path]:
    """The Java files of a jar.

    Args:
        name: the jar's, without its ending.
    """
    return [Path(__file__).with_name(f"{java}.java") for java in (CLASSES[name][0], *MORE.get(name, ()))]


def build(name: str, javac: str, jars: Sequence[Path], target: Path) -> None:
    """Compile and pack, against Connect's API and what the class stands on; raises as ``compiled.build``."""
    java, interface = CLASSES[name]
    services = {interface: java, **SERVICES.get(name, {})}
    compiled.build(javac, sources(name), jars, target, {of: f"headwater.connect.{one}" for of, one in services.items()})


if __name__ == "__main__":
    *folders, out = map(Path, sys.argv[1:])
    build(out.stem, "javac", folders, out)
