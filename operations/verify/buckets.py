"""Digests of two sides on disk, spread over files by a hash of the key, so that they can be compared file by file.

A record is the key's length, the key and the digest. Memory while writing is one small buffer a file; while comparing
it is one file of one side.

What was written must be there when it is read: a file that somebody has removed would be an empty side, two of them
equal, and a generation that nobody has compared promoted for it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from cdc.errors import StateError
from cdc.keys import id_bytes, id_text, shown
from truth.digest import DIGEST_BYTES

# Keys that one bucket is meant to hold at the most; it is what is in memory while comparing.
BUCKET_KEYS = 20_000
FEWEST, MOST = 16, 1024
# Buffers of one side's files together.
BUFFERED_BYTES = 8 << 20
# In a side's folder: how many bytes each bucket has.
SIZES = "sizes.json"


def gone(path: Path) -> StateError:
    """The error for a file of a comparison that is not there, or not all of it. Pure."""
    return StateError(
        f"{path}, which this comparison has written, is not there any more, or not all of it",
        means="nothing can be said of what was compared",
        fix="let nobody remove .verify-* from the state folder meanwhile, and run the same command again",
    )


def twice(view: str, key: str) -> StateError:
    """The error for a document that must be there two times over. Pure."""
    return StateError(
        f"view {view}: two documents must have the id {shown(key)}",
        means="a sink has room for one of them, so the view is not compared",
        fix="look which of the view's rows or groups share it; windows grouped by NULL and by the text `null` do where"
        " an older Headwater filled them: `headwater rebuild FILE SINK`. If none do, tell us: a fault of `verify`",
    )


def bucket_count(rows: int) -> int:
    """How many buckets for about so many rows."""
    return max(FEWEST, min(MOST, -(-rows // BUCKET_KEYS)))


class Side:
    """One side's digests: what is expected in one form, or what one sink holds. May be written by another process.

    Args:
        folder: where its files are; made when there is something to write.
        buckets: how many; the same for all sides that are compared.
    """

    def __init__(self, folder: Path, buckets: int) -> None:
        self.folder, self.buckets = folder, buckets
        self._pending = [bytearray() for _ in range(buckets)]
        self._sizes = [0] * buckets
        self._noted: list[int] | None = None
        self._most = max(BUFFERED_BYTES // buckets, 4096)

    def add(self, key: str, digest: bytes) -> None:
        """Note a key and its digest; ``flush`` at the end.

        Raises:
            StateError: its folder was removed.
        """
        raw = id_bytes(key)
        at = zlib.crc32(raw) % self.buckets
        pending = self._pending[at]
        pending += len(raw).to_bytes(4, "big") + raw + digest
        if len(pending) >= self._most:
            self._write(at)

    def flush(self) -> None:
        """Write what is left, and how much there is of each bucket: who reads it may be another process.

        Raises:
            StateError: its folder was removed.
        """
        for at, pending in enumerate(self._pending):
            if pending:
                self._write(at)
        if not any(self._sizes):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._noted = None
        try:
            (self.folder / SIZES).write_text(json.dumps(self._sizes))
        except FileNotFoundError as error:
            raise gone(self.folder) from error

    def read(self, bucket: int) -> Iterator[tuple[str, bytes]]:
        """A bucket's (key, digest), in the order in which they came.

        Raises:
            StateError: not all that was written is there.
        """
        path = self._path(bucket)
        try:
            if self._noted is None:
                self._noted = json.loads((self.folder / SIZES).read_text())
            size = self._noted[bucket]
            raw = path.read_bytes() if size else b""
        except (FileNotFoundError, ValueError) as error:
            raise gone(path) from error
        if len(raw) != size:
            raise gone(path)
        at = 0
        while at < len(raw):
            end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
            yield id_text(raw[at + 4 : end]), raw[end : end + DIGEST_BYTES]
            at = end + DIGEST_BYTES

    def _write(self, at: int) -> None:
        if not any(self._sizes):  # once: a folder that is made again lacks what was in it
            self.folder.mkdir(parents=True, exist_ok=True)
        _append(self._path(at), self._pending[at], self._sizes[at])
        self._sizes[at] += len(self._pending[at])
        self._pending[at].clear()

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{bucket:04d}"


class Keys:
    """Differing keys on disk, with the digest that was expected of each: there may be as many as rows.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._pending, self._size = bytearray(), 0

    def add(self, key: str, digest: bytes = b"") -> None:
        """Note a key; ``flush`` at the end."""
        raw = id_bytes(key)
        self._pending += len(raw).to_bytes(4, "big") + raw + digest.ljust(DIGEST_BYTES, b"\0")
        self.count += 1
        if len(self._pending) >= BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is left."""
        if self._pending:
            if not self._size:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            _append(self.path, self._pending, self._size)
            self._size += len(self._pending)
            self._pending.clear()

    def pages(self, size: int) -> Iterator[dict[str, bytes]]:
        """Key -> digest (zeros for "none"), a page at a time.

        Raises:
            StateError: not all that was written is there.
        """
        if not self.count:
            return
        if not self.path.exists() or self.path.stat().st_size != self._size:
            raise gone(self.path)
        page: dict[str, bytes] = {}
        with self.path.open("rb") as source:
            while head := source.read(4):
                key = id_text(source.read(int.from_bytes(head, "big")))
                page[key] = source.read(DIGEST_BYTES)
                if len(page) == size:
                    yield page
                    page = {}
        if page:
            yield page


def _append(path: Path, data: bytearray, size: int) -> None:
    """Write on where the file has so many bytes."""
    try:
        with path.open("ab" if size else "wb") as out:
            out.write(data)
    except FileNotFoundError as error:
        raise gone(path) from error
