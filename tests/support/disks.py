"""A value is looked for in every file of a folder, whatever it is written in: as it lies there, and unpacked."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

# Kafka's record batches: what comes before the records, and how they are compressed.
_HEADER, _CODECS = 61, {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
# A needle is a piece: the value may be cut by what writes it (Iceberg's bounds have 16 characters, LZF runs of 32).
PIECE = 14


def needles(value: str) -> list[bytes]:
    """Pieces of a value, of which any tells that it is there."""
    return [value[at : at + PIECE].encode() for at in range(0, len(value) - PIECE + 1, PIECE)]


def holding(folder: Path, value: str) -> list[Path]:
    """The files below a folder that hold a value."""
    wanted = needles(value)
    # Unlike rglob, a walk goes on where a folder is removed meanwhile: another test's topic, say.
    found = sorted(Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return [path for path in found if path.is_file() and _holds(path, wanted)]


def _holds(path: Path, wanted: list[bytes]) -> bool:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False  # its server has just removed it
    return any(needle in text for text in _readings(path, data) for needle in wanted)


def _readings(path: Path, data: bytes) -> Iterator[bytes]:
    yield data
    # What a server is just writing has no end yet: it is nothing of before.
    with suppress(pa.ArrowException, OSError, EOFError, ValueError):
        yield from _unpacked(path, data)


def _unpacked(path: Path, data: bytes) -> Iterator[bytes]:
    if path.suffix == ".parquet":
        table = pq.read_table(pa.BufferReader(data))
        yield repr(table.to_pylist()).encode()
        yield repr([str(pq.ParquetFile(pa.BufferReader(data)).metadata.to_dict())]).encode()
    elif path.suffix == ".avro":
        # Bounds are bytes, which repr shows as text where they are.
        yield repr(list(fastavro.reader(io.BytesIO(data)))).encode()
    elif path.suffix == ".gz":
        yield gzip.decompress(data)
    elif path.suffix in (".log", ".deleted", ".cleaned", ".swap") and len(data) > _HEADER:
        yield from batches(data)
    elif data[:1] == b"\x78":
        try:
            yield zlib.decompress(data)
        except zlib.error:
            return


def batches(data: bytes) -> Iterator[bytes]:
    """The records of a segment of Kafka's, batch by batch, decompressed; nothing of a file that is none."""
    at = 0
    while at + _HEADER <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        magic, (attributes,) = data[at + 16], struct.unpack_from(">h", data, at + 21)
        if magic != 2 or length <= 0 or at + 12 + length > len(data):
            return
        records = data[at + _HEADER : at + 12 + length]
        codec = _CODECS.get(attributes & 7)
        if codec is not None and records:
            records = pa.input_stream(pa.BufferReader(records), compression=codec).read()
        yield records
        at += 12 + length
