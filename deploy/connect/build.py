"""Build the Avro converter's jar: ``python -m deploy.connect.build JARS JARS… OUT.jar`` (folders of jars, the result).

The jar also holds the service file by which Connect finds the converter: Apicurio's jars have none, and a worker with
``plugin.discovery=service_load`` does not look at classes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("RowAvroConverter.java")
CONVERTER = "headwater.connect.RowAvroConverter"
SERVICE = "META-INF/services/org.apache.kafka.connect.storage.Converter"
# The oldest Java that the servers run on: the jar is the same for all.
RELEASE = 17
COMPILE_SECONDS = 120
# Zip members bear a time: a fixed one makes the same jar of the same classes.
WHEN = (1980, 1, 1, 0, 0, 0)


def build(javac: str, jars: Sequence[Path], target: Path) -> None:
    """Compile and pack.

    Args:
        javac: the compiler.
        jars: folders that hold Connect's API and Apicurio's converter.
        target: the jar; appears whole or not at all.

    Raises:
        RuntimeError: the compiler failed; its last lines.
        OSError: there is no compiler, or the target can't be written.
    """
    with tempfile.TemporaryDirectory(prefix="headwater-javac-") as work:
        classes = Path(work) / "classes"
        path = ":".join(f"{folder}/*" for folder in jars)
        argv = [javac, "--release", str(RELEASE), "-proc:none", "-cp", path, "-d", str(classes), str(SOURCE)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS)
        if done.returncode:
            raise RuntimeError("\n".join(done.stderr.splitlines()[-8:]))
        made = target.with_name(f".{target.name}.part")
        with zipfile.ZipFile(made, "w") as jar:
            jar.writestr(zipfile.ZipInfo(SERVICE, WHEN), CONVERTER + "\n")
            for path_ in sorted(classes.rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(path_.relative_to(classes)), WHEN), path_.read_bytes())
        made.replace(target)


if __name__ == "__main__":
    *folders, out = map(Path, sys.argv[1:])
    build("javac", folders, out)
