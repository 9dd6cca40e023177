"""A jar of Java sources of ours: compiled against the jars that it will run with, the same bytes each time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy import lasting

# The oldest Java that the servers run on: the jar is the same for all.
RELEASE = 17
# It takes five; beside five servers that start on two busy cores a hundred times as long is no reason to give up.
COMPILE_SECONDS = 600
# Zip members bear a time: a fixed one makes the same jar of the same classes.
WHEN = (1980, 1, 1, 0, 0, 0)
_NO_SERVICES: Mapping[str, str] = {}


def build(
    javac: str, sources: Sequence[Path], jars: Sequence[Path], target: Path, services: Mapping[str, str] = _NO_SERVICES
) -> None:
    """Compile and pack.

    Args:
        javac: the compiler.
        sources: the Java files.
        jars: folders of jars to compile against.
        target: the jar; appears whole or not at all.
        services: the interface that a service file names -> its class.

    Raises:
        RuntimeError: the compiler failed, with its last lines, or did not end.
        OSError: there is no compiler, or the target can't be written.
    """
    with tempfile.TemporaryDirectory(prefix="headwater-javac-") as work:
        classes = Path(work) / "classes"
        path = ":".join(f"{folder}/*" for folder in jars)
        argv = [javac, "--release", str(RELEASE), "-proc:none", "-cp", path, "-d", str(classes)]
        argv += map(str, sources)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"it had not ended after {COMPILE_SECONDS} s") from error
        if done.returncode:
            raise RuntimeError("\n".join(done.stderr.splitlines()[-8:]))
        made = target.with_name(f".{target.name}.{os.getpid()}")  # several processes may build it at once
        with zipfile.ZipFile(made, "w") as jar:
            for interface, name in services.items():
                jar.writestr(zipfile.ZipInfo(f"META-INF/services/{interface}", WHEN), name + "\n")
            for one in sorted(classes.rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(one.relative_to(classes)), WHEN), one.read_bytes())
            jar.comment = _comment(sources, jars)
        lasting.rename(made, target)


def digest(sources: Sequence[Path], jars: Sequence[Path]) -> str:
    """What other sources, or folders of other jars, would not have."""
    told = b"".join(source.read_bytes() for source in sources) + "".join(str(folder) for folder in jars).encode()
    return hashlib.sha256(told).hexdigest()[:12]


def sources_digest(sources: Sequence[Path]) -> str:
    """What other sources would not have, wherever they lie: the last word of a jar's comment."""
    told = b"".join(source.name.encode() + b"\0" + source.read_bytes() for source in sources)
    return hashlib.sha256(told).hexdigest()[:12]


def _comment(sources: Sequence[Path], jars: Sequence[Path]) -> bytes:
    return f"{digest(sources, jars)} {sources_digest(sources)}".encode()


def is_of(target: Path, sources: Sequence[Path], jars: Sequence[Path]) -> bool:
    """Whether a jar is there and was made of these sources."""
    try:
        with zipfile.ZipFile(target) as jar:
            return jar.comment == _comment(sources, jars)
    except (OSError, zipfile.BadZipFile):
        return False
