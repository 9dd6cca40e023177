"""What the warehouse's peers run, in the cache folder beside the local stack's units: ``jars.toml`` in, checked folders
out. Fetched when a peer is measured, and never otherwise."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from deploy.local import artifacts, maven
from deploy.local.artifacts import Pinned, cache_dir
from deploy.local.maven import Coordinate
from deploy.local.unpack import unpack

LIST = Path(__file__).with_name("jars.toml")
Progress = Callable[[str], None]


def pinned(unit: str) -> tuple[Pinned, ...]:
    """The files of a unit."""
    files = tomllib.loads(LIST.read_text())[unit]["files"]
    return tuple(Pinned(Coordinate.parse(one["artifact"]), one["bytes"], one["sha512"]) for one in files)


def folder(unit: str) -> Path:
    """Where a unit is, or will be: another list is another folder."""
    told = "\n".join(f"{one.coordinate} {one.sha512}" for one in pinned(unit))
    return cache_dir() / f"peer-{unit}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def ensure(unit: str, progress: Progress = lambda line: None) -> Path:
    """Fetch and check a unit if it is not there; return its folder.

    Raises:
        StackError: Maven is missing or failed, or a digest differs.
    """
    if not folder(unit).is_dir():
        cache_dir().mkdir(mode=0o755, parents=True, exist_ok=True)
        with (cache_dir() / f"peer-{unit}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder(unit).is_dir():  # another process may have been faster
                files = pinned(unit)
                progress(f"fetching {unit}: {len(files)} files, {sum(one.size for one in files) / 2**20:.0f} MiB")
                _fetch(unit, files)
    return folder(unit)


def _fetch(unit: str, files: tuple[Pinned, ...]) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".peer-{unit}-", dir=cache_dir()))
    try:
        arrived, unpacked = work / "arrived", work / "unpacked"
        maven.run(maven.copy_pom([one.coordinate for one in files], arrived), "copy", work)
        for one in files:
            artifacts.check(arrived / one.coordinate.file_name, one)
        unpacked.mkdir()
        # A plugin of Connect's is unpacked as Debezium's own are.
        archives = any(one.coordinate.type == "tar.gz" for one in files)
        unpack("connect-plugins" if archives else unit, [arrived / one.coordinate.file_name for one in files], unpacked)
        unpacked.rename(folder(unit))
    finally:
        shutil.rmtree(work, ignore_errors=True)
