"""What the virtual machine reads beside the Python codec, record by record, on what a real Debezium wrote.

A plain record must give the very entry that the codec makes of it, by our jar and by Spark's own functions; and of what
Debezium writes for the types that Spark reads, hardly any may be odd.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.catalogue import Column, Table
from cdc.types import unsupported
from cdc.types.native import native
from cdc.view import View
from spark.reading import native_rows
from spark.reading.entries import Decoded, EntryDecoder
from spark.reading.expressions import PREFIX, entry_batch
from spark.reading.native import ODD, NativeReader
from spark.reading.record import RECORD_DDL, batch_of
from spark.reading.spec import FlowSpec
from tests.support.codec_cases import fixture
from tests.support.own_session import own_session
from tests.support.sampling import in_turn

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
TOPIC = "topic"
DAMAGED = 8_000
Raw = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
        session.stop()


def spec_of(table: Table, snapshot_lsn: int = 0) -> FlowSpec:
    view = View.identity(table, "v")
    return FlowSpec("s", {"v": view}, {TOPIC: ("v",)}, {TOPIC: table}, {}, {}, epoch=3, snapshot_lsn=snapshot_lsn)


@pytest.fixture(params=in_turn("by our jar", "by Spark's functions"))
def without_jar(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each of the two ways of the virtual machine."""
    without = request.param != "by our jar"
    if without:
        monkeypatch.setattr(native_rows, "seen", lambda raw, records: None)
    return without


def plain_entries(spark: SparkSession, spec: FlowSpec, records: Sequence[Raw]) -> list[dict[str, Any] | None]:
    """What the virtual machine makes of each record; None for an odd one."""
    reader = NativeReader.of(spec)
    assert reader is not None
    rows = [(key, value, TOPIC, 0, offset) for offset, (key, value) in enumerate(records)]
    frame = reader.read(spark.createDataFrame(rows, RECORD_DDL))
    found = sorted(frame.toArrow().to_pylist(), key=lambda row: row[PREFIX + "offset"])
    return [None if row[ODD] else row for row in found]


def codec_entry(spec: FlowSpec, record: Raw, offset: int) -> dict[str, Any] | None:
    """What the codec makes of a record, as Spark would see it; None if it is for the dead letters."""
    (view,) = spec.views.values()
    decoded = EntryDecoder(spec, typed=True).decode(batch_of([(*record, TOPIC, 0, offset)]))
    if decoded.letters:
        return None
    (entry,) = decoded.entries
    batch = entry_batch(replace(spec, dead_letters={}), view, Decoded([entry], [], 1))
    return batch.to_pylist()[0]


def compare(spec: FlowSpec, records: Sequence[Raw], found: Sequence[dict[str, Any] | None]) -> int:
    """Each plain record gives what the codec gives; how many are plain."""
    plain = 0
    for offset, (record, entry) in enumerate(zip(records, found, strict=True)):
        if entry is None:
            continue
        plain += 1
        expected = codec_entry(spec, record, offset)
        assert expected is not None, f"the codec refuses {record}"
        for name, value in expected.items():
            there = entry[name]
            if name == PREFIX + "document":
                assert (there is None) == (value is None), record
            else:
                assert repr(there) == repr(value), (name, record)
    return plain


def single(name: str) -> Iterator[tuple[Column, FlowSpec, list[Raw]]]:
    """A fixture's table column by column, with its records cut to that."""
    captured, _ = fixture(name)
    for column in captured.table.columns:
        if column.name in captured.table.primary_key or unsupported(column) is not None:
            continue
        keys = [one for one in captured.table.columns if one.name in captured.table.primary_key]
        table = replace(captured.table, columns=(*keys, column))
        names = [one.name for one in table.columns]
        records = [(key, value and _cut(value, names)) for key, value, _ in captured.records]
        yield column, spec_of(table), records


def _cut(value: bytes, names: Sequence[str]) -> bytes:
    """A record as it would be of a table of these columns."""
    event = json.loads(value)
    if isinstance(event.get("after"), dict):
        event["after"] = {name: event["after"][name] for name in names if name in event["after"]}
    event.pop("before", None)
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("name", ["types", "toasty"])
def test_every_type_of_real_records(spark: SparkSession, without_jar: bool, name: str) -> None:
    read, odd = 0, dict[str, int]()
    for column, spec, records in single(name):
        if native(column) is None:
            continue
        plain = compare(spec, records, plain_entries(spark, spec, records))
        read += 1
        if plain < len(records):
            odd[column.name] = len(records) - plain
    print(without_jar, read, odd)
    assert read >= 10


def test_what_has_the_form_of_a_moment_and_is_none_is_left_to_the_codec(spark: SparkSession, without_jar: bool) -> None:
    keys = (Column("id", "integer", "int4", nullable=False, ordinal=1),)
    table = Table("public", "t", (*keys, Column("at", "timestamp with time zone", "timestamptz", ordinal=2)), ("id",))
    source = {"schema": "public", "table": "t", "lsn": 5, "sequence": '["4","5"]', "snapshot": "false", "ts_ms": 1}
    records: list[Raw] = []
    for moment in ("2024-02-29T00:00:00Z", "1500-02-29T00:00:00Z", "2023-02-29T00:00:00Z"):
        event = {"after": {"id": 1, "at": moment}, "source": source, "op": "u"}
        records.append((b'{"id":1}', json.dumps(event, separators=(",", ":")).encode()))
    found = plain_entries(spark, spec_of(table), records)
    assert [entry is not None for entry in found] == [True, False, False]


SCRAPS = [
    b'"',
    b"\\",
    b",",
    b":",
    b"{}",
    b"[",
    b"]",
    b"null",
    b"true",
    b"-",
    b"0",
    b"1e3",
    b".5",
    b" ",
    b"\\u0041",
    b"\xff",
]
SCRAPS += [
    b"\\ud800",
    b"\xc3\xa4",
    b"99999999999999999999",
    b'"op":"c",',
    b'"after":null,',
    b"\x00",
    b"\\n",
    b"NaN",
    b"Infinity",
]


def damaged(random: Random, text: bytes) -> bytes:
    """A record as no Debezium writes it."""
    at = random.randrange(len(text) + 1)
    kind = random.randrange(5)
    if kind == 0:
        return text[:at] + random.choice(SCRAPS) + text[at:]
    if kind == 1:
        return text[:at] + random.choice(SCRAPS) + text[at + random.randrange(4) :]
    if kind == 2:
        return text[:at] + text[at + random.randrange(1, 6) :]
    if kind == 3:
        return text[:at]
    other = random.randrange(len(text) + 1)
    return text[:at] + text[other : other + random.randrange(40)] + text[at:]


def test_of_damaged_records_none_is_plain_that_the_codec_reads_otherwise(spark: SparkSession) -> None:
    """By our jar; Spark's functions pass over damage where nobody reads."""
    captured, _ = fixture("types")
    whole = captured.table
    # Of JSON that Postgres has checked, Spark looks at the text alone.
    read = [one for one in whole.columns if unsupported(one) is None and native(one) and "json" not in one.base_type]
    table = replace(whole, columns=tuple(read))
    names, random = [one.name for one in read], Random(20261127)
    sound = [(key, _cut(value, names)) for key, value, _ in captured.records if key and value]
    records: list[Raw] = []
    for _ in range(DAMAGED):
        key, value = random.choice(sound)
        in_key = random.randrange(8) == 0
        records.append((damaged(random, key), value) if in_key else (key, damaged(random, value)))
    plain = compare(spec_of(table), records, plain_entries(spark, spec_of(table), records))
    print(plain)
    assert DAMAGED > plain > DAMAGED / 100
