"""The Python environment of a cluster's executors as one archive: the packages that run there, and no interpreter.

Executors need our code and what it imports; Spark and its jars they have, and a Python of the same minor version comes
with every system. So the archive holds the installed packages as they are and a ``bin/python`` that puts them in front:
nothing is built, nothing is downloaded, and it works from a virtual environment, an image or a system's Python alike
(docs/decisions/spark-cluster.md says why not venv-pack or conda-pack).
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.metadata
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cdc.errors import ConfigError
from cdc.saying import Say, to_nobody
from spark.machine.cluster import SHIPPED

# Of installed packages: what no executor reads. Spark's jars alone are two thirds of everything.
LEFT_OUT = (
    "pyspark/jars/",
    "pyspark/bin/",
    "pyspark/sbin/",
    "pyspark/data/",
    "pyspark/examples/",
    "pyspark/licenses/",
    "pyarrow/include/",
    "pyarrow/src/",
    "pyarrow/tests/",
)
LAUNCHER = """#!/bin/sh
# The packages beside this file, run by this machine's Python. HEADWATER_PYTHON names another interpreter.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
exec "${{HEADWATER_PYTHON:-python{version}}}" "$@"
"""


def packages(root: str = "headwater") -> list[importlib.metadata.Distribution]:
    """The installed packages that ``root`` needs, without itself, by name; with the extras that are asked for.

    A requirement that is not installed is for another system or Python.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(root, frozenset[str]())]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = installed
        for needed in _needed(installed, extras):
            if needed not in seen:
                seen.add(needed)
                waiting.append(needed)
    del found[root]
    return [found[name] for name in sorted(found)]


def _needed(installed: importlib.metadata.Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Names and extras of a package's requirements, for these extras of its own."""
    for requirement in map(Requirement, installed.requires or []):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            wanted = frozenset(map(canonicalize_name, requirement.extras))
            yield canonicalize_name(requirement.name), frozenset[str](wanted)


def files() -> Iterator[tuple[str, Path]]:
    """Name in the archive and place on the disk of each file."""
    root = Path(__file__).parents[2]
    for package in SHIPPED:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"lib/{path.relative_to(root)}", path
    for installed in packages():
        for listed in sorted(installed.files or [], key=str):
            name = str(listed)
            if not (name.startswith(("..", "/", *LEFT_OUT)) or "__pycache__" in name):
                place = Path(str(installed.locate_file(listed)))
                if place.is_file():
                    yield f"lib/{name}", place


def pack(target: Path, say: Say = to_nobody) -> int:
    """Write the archive; the same installation gives the same bytes.

    Args:
        target: a ``.tar.gz`` or ``.tgz``, which is replaced in one step.
        say: told what happens, a line each.

    Returns:
        how many files are in it.

    Raises:
        ConfigError: another kind of file is asked for, or the folder can't be written (terminal).
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError(f"{target}: Spark unpacks .tar.gz and .tgz", fix="give it such a name")
    unfinished = target.with_name(f".{target.name}.unfinished")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    count = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            unfinished.open("wb") as raw,
            gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            _add(archive, "bin/python", LAUNCHER.format(version=version).encode(), 0o755)
            for name, path in files():
                _add(archive, name, path.read_bytes(), 0o755 if path.suffix == ".so" else 0o644)
                count += 1
        unfinished.replace(target)
    except OSError as error:
        raise ConfigError(f"{target} can't be written: {error}", fix="name a file in a folder of yours") from error
    finally:
        with contextlib.suppress(OSError):  # the reason is told already
            unfinished.unlink()
    say(f"{target}: {count:,} files, {target.stat().st_size / 2**20:,.0f} MiB, for Python {version}")
    return count


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
