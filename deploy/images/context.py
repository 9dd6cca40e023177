"""A build context as a tar stream: Dockerfile, checked units of the download cache, our code.

No staging folder, and nothing of this machine in it: owners, times and modes are the same everywhere, so equal files
give equal layers and Docker's cache holds.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from deploy.images.catalog import HERE, ROOT, Image

_LEFT_OUT = {"__pycache__", ".pytest_cache"}


def files(image: Image, units: Mapping[str, Path]) -> Iterator[tuple[Path, str]]:
    """Every file and link of the context with its name there, in a fixed order.

    Args:
        image: which.
        units: unit of the cache -> its folder.
    """
    yield from _tree(HERE / image.name, "")
    for name, unit in image.units:
        yield from _tree(units[unit], f"units/{name}/")
    for source in image.source:
        if (ROOT / source).is_dir():
            yield from _tree(ROOT / source, f"app/{source}/")
        else:
            yield ROOT / source, f"app/{source}"


def _tree(top: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(top.rglob("*")):
        inner = path.relative_to(top)
        if _LEFT_OUT.isdisjoint(inner.parts) and (path.is_symlink() or path.is_file()):
            yield path, f"{prefix}{inner}"


def write(image: Image, units: Mapping[str, Path], out: IO[bytes]) -> None:
    """Write the context; raises OSError when the reader has gone."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, name in files(image, units):
            info = archive.gettarinfo(path, name)
            if info.islnk():  # the cache may hold one file under two names: here each is a file
                info = _plain(path, name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            info.mode = 0o755 if info.mode & 0o100 else 0o644
            if info.isreg():
                with path.open("rb") as stream:
                    archive.addfile(info, stream)
            else:
                archive.addfile(info)


def _plain(path: Path, name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = path.stat().st_size, path.stat().st_mode
    return info
