"""Avro made JSON in the virtual machine, beside the Python codec: the same events, or left to it."""

from __future__ import annotations

import json
import random
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import orjson
import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import SparkSession

from cdc.records.avro_reader import float4
from cdc.records.debezium_avro import HEAD
from deploy.local import artifacts
from spark.machine.session import build_session
from spark.reading.avro_text import values_as_text
from spark.reading.record import RECORD_DDL
from tests.support.avro_cases import AVRO, ENVELOPE, PLACE, written
from tests.support.own_classes import own_classes_at_hand

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
GONE, REFUSED, OTHERS, ENDLESS = 8, 9, 10, 11
OTHER = {
    "type": "record",
    "name": "Other",
    "fields": [
        {"name": "before", "type": "int"},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": ["long", "null"]}}},
        {
            "name": "in",
            "type": {
                "type": "record",
                "name": "In",
                "fields": [
                    {"name": "yes", "type": "boolean"},
                    {"name": "n", "type": "long"},
                    {"name": "x_u", "type": "string"},
                ],
            },
        },
    ],
}
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
Registry = dict[str, str]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_classes_at_hand():
        folder = artifacts.spark_jars()[0].parent
        session = build_session("t", master="local[2]", jars=folder, log=tmp_path_factory.mktemp("spark") / "spark.log")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def asked() -> list[tuple[str, str]]:
    """(path, who) of each request."""
    return []


@pytest.fixture(scope="module")
def registry(asked: list[tuple[str, str]]) -> Iterator[Registry]:
    """A registry's answers; the real one is in test_avro.py."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization", "")))
            number = int(self.path.rpartition("/")[2])
            status = {GONE: 404, REFUSED: 500}.get(number, 200)
            schema = {OTHERS: OTHER, ENDLESS: CHAIN}.get(number, ENVELOPE)
            body = json.dumps({"schema": json.dumps(schema)} if status == 200 else {"error_code": 1}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield {"url": f"http://127.0.0.1:{server.server_port}/", "user": "reader", "password": "p"}
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def text(spark: SparkSession, registry: Registry) -> Callable[[Sequence[bytes | None]], list[bytes | None]]:
    """What becomes of values."""

    def made(values: Sequence[bytes | None]) -> list[bytes | None]:
        rows = [(None, value, "t", 0, at) for at, value in enumerate(values)]
        found = values_as_text(spark.createDataFrame(rows, RECORD_DDL), registry).collect()
        return [None if row.value is None else bytes(row.value) for row in sorted(found, key=lambda row: row.offset)]

    return made


Text = Callable[[Sequence[bytes | None]], list[bytes | None]]
ODD = ("", 'a"b\\c', "\b\t\n\f\r\x00\x1f\x7f/", "Größe 😀 \u2028", "x" * 5_000, "\ud7ff\ue000\uffff\U0010ffff")
DOUBLES = (0.0, -0.0, 1e10, 1e-7, 5e-324, 1.7976931348623157e308, 0.1, 123456789.125, float("nan"), float("-inf"))


def a_float(chance: random.Random) -> float:
    bits = chance.choice([chance.getrandbits(32), chance.getrandbits(8), 0x7F7FFFFF, 0x00800000, 0x007FFFFF])
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(chance.choice([value, struct.unpack("<f", struct.pack("<f", chance.randrange(10**7) / 100))[0]]))


def a_row(chance: random.Random) -> dict[str, Any]:
    def bytes_() -> bytes:
        return chance.randbytes(chance.randrange(70))

    def many() -> list[bytes | None]:
        return [chance.choice([None, bytes_()]) for _ in range(chance.randrange(4))]

    row: dict[str, Callable[[], Any]] = {
        "id": lambda: chance.choice([0, -1, 1, 63, 64, -65, 2**31 - 1, -(2**31)]),
        "Gr_u00f6_u00dfe_u00201": lambda: chance.choice(ODD),
        "raw": bytes_,
        "f4": lambda: a_float(chance),
        "f8": lambda: chance.choice(DOUBLES),
        "many": many,
        "day": lambda: chance.randrange(-20_000, 20_000),
    }
    return {name: None if name != "id" and chance.random() < 0.2 else value() for name, value in row.items()}


def test_events_are_what_python_reads(text: Text) -> None:
    chance = random.Random(7)
    values = [written(a_row(chance), chance.choice("cur")) for _ in range(3_000)] + [written(None, "d")]
    made = text(values)
    assert all(value is not None and value[:1] == b"{" for value in made)
    for value, there in zip(values, made, strict=True):
        expected = AVRO.loads(value)
        assert there is not None
        found = orjson.loads(there)
        # `before` and times of the pipeline's own are left out, as our converter does with JSON.
        assert list(found) == ["after", "source", "op"]
        assert orjson.dumps(found["after"]) == orjson.dumps(expected["after"])
        assert (found["source"], found["op"]) == ({**PLACE, "txId": None, "xmin": None}, expected["op"])


def test_four_byte_floats_are_their_shortest_decimals(text: Text) -> None:
    chance = random.Random(8)
    values = [a_float(chance) for _ in range(5_000)]
    made = text([written({"id": 1, "f4": value}) for value in values])
    found = [orjson.loads(there or b"")["after"]["f4"] for there in made]
    assert [repr(one) for one in found] == [repr(float4(value)) for value in values]


def test_what_is_not_certain_comes_as_it_was(text: Text, asked: list[tuple[str, str]]) -> None:
    good = written({"id": 1, "f8": 2.5, "Gr_u00f6_u00dfe_u00201": "öö"})
    bad = bytearray(good)
    bad[bad.index("ö".encode())] = 0xFF
    odd: list[bytes | None] = [
        None,
        b"",
        b'{"op":"c"}',
        b"\1\0\0\0\7x",
        good + b"\0",
        bytes(bad),
        *(good[:length] for length in range(len(good))),
        HEAD.pack(0, GONE) + good[5:],
        HEAD.pack(0, REFUSED) + good[5:],
    ]
    assert text(odd) == odd
    # A registry is not asked anew for each record, and hears who asks.
    asked.clear()
    assert text(odd) == odd and len(asked) <= 2
    assert all(who.startswith("Basic ") for _, who in asked)


def test_bytes_that_are_garbled_never_give_another_event(text: Text) -> None:
    chance, garbled = random.Random(9), list[bytes | None]()
    for _ in range(3_000):
        value = bytearray(written(a_row(chance)))
        for _ in range(chance.randrange(1, 4)):
            value[chance.randrange(HEAD.size, len(value))] = chance.getrandbits(8)
        garbled.append(bytes(value))
    read = 0
    for value, there in zip(garbled, text(garbled), strict=True):
        if there is None or there == value:
            continue
        read += 1
        found, expected = orjson.loads(there), AVRO.loads(value or b"")
        assert orjson.dumps(found["after"]) == orjson.dumps(expected["after"])
        assert (found["op"], found["source"]["table"]) == (expected["op"], expected["source"]["table"])
    assert read > 100


def test_records_that_are_no_events_are_written_whole(text: Text) -> None:
    value = {"before": 1, "m": {'ä"': [1, None]}, "in": {"yes": True, "n": -(2**63), "x_u": "\\"}}
    out = BytesIO()
    schemaless_writer(out, parse_schema(OTHER), value)
    (there,) = text([HEAD.pack(0, OTHERS) + out.getvalue()])
    assert orjson.loads(there or b"") == value


def test_a_schema_in_itself_is_left_to_python(text: Text) -> None:
    value = HEAD.pack(0, ENDLESS) + b"\0"
    assert text([value]) == [value]
