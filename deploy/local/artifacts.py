"""The cache of fetched programs: ``artifacts.toml`` in, unpacked and checked folders out.

A *unit* is what is used as one thing (Kafka's jars, the Postgres programs …). Its folder in the cache is named after
the digest of its pinned list, appears by one rename when it is complete, and is never changed after that: so an
interrupted download heals by itself, two versions of Headwater can share a cache, and "the folder exists" means "it
is right".
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cdc.errors import StackError
from cdc.saying import Say, to_nobody
from deploy import lasting
from deploy.local import maven
from deploy.local.account import blocked_at, reachable, unprivileged
from deploy.local.maven import Coordinate
from deploy.local.unpack import unpack

LIST = Path(__file__).with_name("artifacts.toml")
# Where root's cache goes when root's home is closed to the user that Postgres and Elasticsearch run as.
SYSTEM_CACHE = Path("/var/cache/headwater")


@dataclass(frozen=True)
class Pinned:
    """One file of the list: its coordinate, size in bytes and SHA-512 (hex)."""

    coordinate: Coordinate
    size: int
    sha512: str


@cache
def pinned() -> dict[str, tuple[Pinned, ...]]:
    """The list, by unit."""
    document = tomllib.loads(LIST.read_text())
    return {
        unit: tuple(Pinned(Coordinate.parse(f["artifact"]), f["bytes"], f["sha512"]) for f in table["files"])
        for unit, table in document.items()
    }


def cache_dir() -> Path:
    """``HEADWATER_CACHE``, else ``~/.cache/headwater``; for a root whose home is closed to others, a system folder.

    Raises:
        StackError: ``HEADWATER_CACHE`` holds what Java takes for the end of a path.
    """
    named = os.environ.get("HEADWATER_CACHE")
    if named:
        place = Path(named).expanduser().absolute()
        if ":" in str(place):  # it ends a path among Java's class paths
            raise StackError(f"HEADWATER_CACHE {str(place)!r} holds a colon", fix="name a folder without one")
        return place
    default = Path.home() / ".cache" / "headwater"
    account = unprivileged()
    return SYSTEM_CACHE if account is not None and blocked_at(default, account) else default


def folder(unit: str) -> Path:
    """Where ``unit`` is, or will be, in the cache."""
    digest = hashlib.sha256("\n".join(f"{p.coordinate} {p.sha512}" for p in pinned()[unit]).encode()).hexdigest()
    return cache_dir() / f"{unit}-{digest[:12]}"


def ensure(units: Sequence[str], progress: Say | None = None) -> dict[str, Path]:
    """Fetch, check and unpack what is missing, by one Maven run; return each unit's folder.

    Args:
        units: names of the list's tables.
        progress: called with one line at a time.

    Raises:
        StackError: Maven is missing or failed (transient when it is the network), a digest differs, or the cache
            can't be written.
    """
    say = progress or to_nobody
    if _missing(units):
        try:
            reachable(cache_dir(), unprivileged())
            with _lock(cache_dir() / "fetch.lock", say) as lock:
                if missing := _missing(units):  # another process may have been faster
                    _fetch(missing, say, lock)
        except OSError as error:
            raise StackError(
                f"can't fill the cache {cache_dir()}: {error.strerror} ({error.filename})",
                fix="free some space, or set HEADWATER_CACHE to a folder you may write to",
            ) from error
    return {unit: folder(unit) for unit in units}


def _missing(units: Sequence[str]) -> list[str]:
    return [unit for unit in units if not folder(unit).is_dir()]


def spark_folders() -> list[Path]:
    """The folders with the jars that Spark loads; that of S3's client only where it has been fetched."""
    return [folder("spark"), *(one for one in [folder("spark-s3")] if one.is_dir())]


def spark_jars(progress: Say | None = None) -> list[Path]:
    """The jars that Spark loads (Kafka source, Iceberg, JDBC drivers), fetched if they are missing."""
    return sorted(ensure(["spark"], progress)["spark"].glob("*.jar"))


@contextmanager
def _lock(path: Path, say: Say) -> Iterator[int]:
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching: waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()


def _fetch(units: Sequence[str], say: Say, lock: int) -> None:
    files = [p for unit in units for p in pinned()[unit]]
    total = sum(p.size for p in files)
    say(f"fetching {', '.join(units)}: {len(files)} files, {total / 2**20:.0f} MiB, into {cache_dir()}")
    for left in cache_dir().glob(".unpacking-*"):  # ours alone: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    work = cache_dir() / ".fetch"
    arrived = work / "arrived"

    def report() -> None:
        have = sum(size for size in map(_size, (work / "repository").rglob("*.*")) if size > 0)
        say(f"fetching: {min(have, total) / 2**20:.0f} of about {total / 2**20:.0f} MiB")

    # One folder serves all units: a file's name holds artifact and version, so equal names are equal files.
    pom = maven.copy_pom([p.coordinate for p in files], arrived)
    maven.run(pom, "copy", work, report=report, pass_fds=(lock,))
    try:
        for unit in units:
            _install(unit, arrived)
    except BadDigestError:
        shutil.rmtree(work, ignore_errors=True)  # with Maven's own copy, so that the next run fetches anew
        raise
    say(f"fetched and checked {len(files)} files")
    shutil.rmtree(work, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # Maven renames its partial files under our eyes
        return 0


def _install(unit: str, arrived: Path) -> None:
    for file in pinned()[unit]:
        check(arrived / file.coordinate.file_name, file)
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=cache_dir()))
    try:
        unpack(unit, [arrived / file.coordinate.file_name for file in pinned()[unit]], temporary)
        _open_up(temporary)
        lasting.rename(temporary, folder(unit))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _open_up(top: Path) -> None:
    """Let everybody read the programs, whatever our umask: servers that refuse root run as somebody else."""
    top.chmod(0o755)
    for path in top.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


class BadDigestError(StackError):
    """A fetched file is not the pinned one."""


def check(path: Path, file: Pinned) -> None:
    """Raise BadDigestError unless ``path`` is the pinned file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha512").hexdigest()
    if digest == file.sha512:
        return
    raise BadDigestError(
        f"{file.coordinate} arrived with another digest than the pinned one (sha512 {digest[:16]}…, "
        f"expected {file.sha512[:16]}…)",
        means="the download was damaged, or the repository does not hold the file that was tested; it was thrown away",
        fix="run it again; if it stays, compare the file with its publisher before changing the pinned list",
    )
