"""The type table: documents, Spark, Arrow and Elasticsearch agree, and docs/types.md says the same."""

from __future__ import annotations

import math
import random
import re
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from cdc import types
from cdc.catalogue import Catalogue, Column, Table
from cdc.records.change import Change, Op
from cdc.types import limits, times
from cdc.types.results import canonical_result, mapping_of_spark, merge_fields
from cdc.view import View
from connectors.session_settings import driver_options
from truth import values as truth

DOCS = Path(__file__).parents[3] / "docs" / "types.md"


def column(type_name: str, base: str | None = None, **more: Any) -> Column:
    return Column("c", type_name, base or type_name, **more)


@pytest.mark.parametrize(
    ("given", "spark"),
    [
        (column("numeric"), "string"),
        (column("numeric(10,2)", "numeric", precision=10, scale=2), "decimal(10,2)"),
        (column("numeric(38,0)", "numeric", precision=38, scale=0), "decimal(38,0)"),
        (column("numeric(50,10)", "numeric", precision=50, scale=10), "string"),
        (column("numeric(5,-2)", "numeric", precision=5, scale=-2), "decimal(7,0)"),
        (column("numeric(2,5)", "numeric", precision=2, scale=5), "decimal(5,5)"),
        (column("numeric(10,2)[]", "numeric", precision=10, scale=2, array=True), "array<decimal(10,2)>"),
        (column("timestamp with time zone"), "timestamp"),
        (column("timestamp without time zone[]", "timestamp", array=True), "array<timestamp_ntz>"),
        (column("mood", enum_values=("a", "b")), "string"),
        (column("pg_lsn"), "string"),
        (column("bit(1)", "bit"), "boolean"),
        (column("bit(8)", "bit"), "string"),
    ],
)
def test_spark_types(given: Column, spark: str) -> None:
    assert types.spark_type(given) == spark
    assert isinstance(types.arrow_type(given), pa.DataType)


def test_every_rule_has_an_arrow_type_and_a_mapping() -> None:
    for name in types.RULES:
        for array in (False, True):
            one = column(name + "[]" * array, name, array=array)
            assert types.arrow_type(one) is not None
            mapping = types.elasticsearch_mapping(one)
            assert mapping.get("type") or mapping.get("properties")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00.000001Z", -62135596799999999),
        ("+10000-01-01T00:00:00Z", 253402300800000000),
        ("-0043-03-15T12:00:00Z", -63517780800000000),
        ("0000-12-31T23:59:59.999999Z", -62135596800000001),
        ("infinity", None),
        ("+294276-12-31T23:59:59.999999Z", None),  # past what 64 bits of microseconds can count from 1970
    ],
)
def test_far_timestamps_become_microseconds(text: str, micros: int | None) -> None:
    got = pa.array([times.arrow_timestamptz(text)], pa.timestamp("us", tz="UTC")).cast(pa.int64())[0].as_py()
    assert got == micros
    if micros is not None:
        assert times.canonical_timestamp(micros) + "Z" == text


def test_days_and_civil_dates_are_each_others_inverse() -> None:
    for days in (*range(-2_440_588, 2_145_042_905, 997_001), -719_162, 2_932_896, 2_932_897, 0):
        assert times.days_of(*times.civil(days)) == days
    assert times.canonical_date(date(2024, 2, 29).toordinal() - 719_163) == "2024-02-29"


@pytest.mark.parametrize("days", [-2_440_589, -3_000_000, -700_000_000])
def test_days_outside_postgres_are_refused(days: int) -> None:
    with pytest.raises(ValueError, match="not a date"):
        times.canonical_date(days)


def test_what_spark_computes_looks_like_what_columns_give() -> None:
    computed = {
        "decimal": Decimal("12.50"),
        "tiny": Decimal("1E-7"),
        "at": datetime(2013, 1, 1, 5, 0, 0, 120000, timezone(timedelta(hours=-5))),
        "utc": datetime(2013, 1, 1, tzinfo=UTC),
        "local": datetime(2013, 1, 1, 0, 0, 0, 1),
        "day": date(2013, 1, 1),
        "raw": b"\xde\xad",
        "nan": float("nan"),
        "inf": float("-inf"),
        "list": [Decimal("1"), None, {"k": date(2013, 1, 1)}],
        "map": [(1, "x")],
        "span": -timedelta(days=1, hours=2, microseconds=500000),
        "none": None,
        "long": 2**63 - 1,
        "yes": True,
    }
    merged = orjson.loads(merge_fields(b'{"a":1}', computed))
    assert merged == {
        "a": 1,
        "decimal": "12.50",
        "tiny": "0.0000001",
        "at": "2013-01-01T10:00:00.12Z",
        "utc": "2013-01-01T00:00:00Z",
        "local": "2013-01-01T00:00:00.000001",
        "day": "2013-01-01",
        "raw": "3q0=",
        "nan": "NaN",
        "inf": "-Infinity",
        "list": ["1", None, {"k": "2013-01-01"}],
        "map": {"1": "x"},
        "span": "P-1DT-2H-0.5S",
        "none": None,
        "long": 2**63 - 1,
        "yes": True,
    }


def test_merging_keeps_the_base_as_it_is() -> None:
    assert merge_fields(b'{"j":1.10}', {}) == b'{"j":1.10}'
    assert merge_fields(b"{}", {"a": 1}) == b'{"a":1}'
    assert merge_fields(b'{"j":1.10}', {"a": 1}) == b'{"j":1.10,"a":1}'
    with pytest.raises(TypeError):
        canonical_result(object())


@pytest.mark.parametrize(
    ("spark", "mapping"),
    [
        ("boolean", {"type": "boolean"}),
        ("bigint", {"type": "long"}),
        ("decimal(10,2)", {"type": "double", "ignore_malformed": True}),
        ("array<array<int>>", {"type": "integer"}),
        ("map<string,int>", {"type": "flattened", "ignore_above": 8191}),
        (
            "struct<a:int,b:struct<c:array<decimal(3,1)>,D:string>>",
            {
                "properties": {
                    "a": {"type": "integer"},
                    "b": {
                        "properties": {
                            "c": {"type": "double", "ignore_malformed": True},
                            "D": mapping_of_spark("string"),
                        }
                    },
                }
            },
        ),
        ("interval day to second", {"type": "keyword", "ignore_above": 8191}),
        ("void", mapping_of_spark("string")),
    ],
)
def test_mappings_of_computed_fields(spark: str, mapping: dict[str, Any]) -> None:
    assert mapping_of_spark(spark) == mapping


def test_a_views_mapping_has_its_fields_and_its_computed_ones() -> None:
    table = Table("public", "t", (column("integer", "int4"), Column("at", "date", "date")), ("c",))
    view = View("v", table, ("c",), (("at", "day"),), {"late": "c > 1"})
    assert view.elasticsearch_mapping({"late": "boolean"}) == {
        "day": {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True},
        "late": {"type": "boolean"},
    }


@pytest.mark.parametrize(
    ("type_name", "base", "domains"),
    [
        ("text[]", "text", False),
        ("numeric(10,2)[]", "numeric", False),
        ("timestamp(3) with time zone[]", "timestamptz", False),
        ("character varying(10)[]", "varchar", False),
        ('"char"[]', "char", False),
        ("shop.email[]", "citext", True),
        ("amount[]", "numeric", True),
        ("tags", "text", False),  # a domain over an array: Debezium does deliver it
    ],
)
def test_arrays_of_domains_are_told_from_arrays(type_name: str, base: str, domains: bool) -> None:
    assert limits.elements_are_domains(column(type_name, base, array=True)) is domains


def test_the_catalogue_survives_its_json() -> None:
    table = Table(
        "public", "t", (column("mood", enum_values=("a",)), column("numeric(3,1)", precision=3)), ("c",), "full"
    )
    catalogue = Catalogue({table.qualified: table}, "7", 2, "shop")
    assert Catalogue.from_json(catalogue.to_json()) == catalogue
    for text in ("", "[]", "{}", '{"tables":[{}],"system_identifier":"","timeline":1,"database":""}'):
        with pytest.raises(Exception, match="not a saved catalogue"):
            Catalogue.from_json(text)


def test_canonical_documents_compare_beyond_doubles() -> None:
    assert truth.canonical(b'{"b": 1, "a": 1e400}') == truth.canonical(b'{"a":1e400,"b":1}')
    assert truth.canonical(b'{"a":1e400}') != truth.canonical(b'{"a":1e401}')
    assert truth.canonical(b'{"b":1,"a":2}') == b'{"a":2,"b":1}'


def test_the_documentation_shows_this_table() -> None:
    text = DOCS.read_text()
    rows = {}
    for line in text.splitlines():
        found = re.match(r"\| `([a-z0-9_, `]+)` \|", line)
        if found and line.count("|") > 4:
            cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            for name in re.findall(r"[a-z0-9_]+", found[1]):
                rows[name] = cells
    left_out = {name for name in types.RULES if types.unsupported(column(name))}
    assert left_out == {"varbit"}
    assert set(types.RULES) - left_out <= set(rows), "docs/types.md lacks a type"
    for name, rule in types.RULES.items():
        if name in left_out:
            continue
        _, _, spark, mapping, *_ = rows[name]
        assert rule.spark in spark, name
        assert rule.elasticsearch.get("type", "object") in mapping, name


def test_the_documentation_names_every_limit() -> None:
    text = " ".join(DOCS.read_text().split())
    notes = {note for name in types.RULES for note in _notes(name)}
    missing = [note for note in notes if note not in text]
    assert not missing


def _notes(name: str) -> list[str]:
    found = [types.lossy(column(name)), types.lossy(column(f"{name}[]", name, array=True))]
    return [note for notes in found if notes for note in notes.split("; ")]


def test_a_repeated_key_of_json_is_there_once_and_numbers_keep_their_digits() -> None:
    from cdc.types.values import json_unique

    assert orjson.dumps(json_unique('{"a":1e400,"b":[{"c":1,"c":2.50}],"a":3.10}')) == b'{"b":[{"c":2.50}],"a":3.10}'
    assert orjson.dumps(json_unique('{ "a" : 1.0 }')) == b'{ "a" : 1.0 }'
    for text, once in (
        (
            r'{ "a" :[1], "\u0061":{"x}\"":"{", "y":1}, "b": "\"a\":2" }',
            r'{ "\u0061":{"x}\"":"{", "y":1}, "b": "\"a\":2" }',
        ),
        ('{"a":{"b":1,"b":2},"a":1,"c":0,"a":{"b":3,"b":4}}', '{"c":0,"a":{"b":4}}'),
        ('[{"a":1},{"a":2}, {"":"","":{}}]', '[{"a":1},{"a":2}, {"":{}}]'),
    ):
        assert orjson.dumps(json_unique(text)).decode() == once


def test_a_repeated_key_beside_half_a_surrogate_pair_is_there_once() -> None:
    """Postgres's json takes both, and a text with half a pair but without a repeated key goes as it is."""
    from cdc.types.values import json_unique

    text = r'{"a":1,"\udc00":["\ud800",1.50,1e400,true,null,"\ud83d\ude00"],"é":{},"a":"\ud800"}'
    once = orjson.dumps(json_unique(text))
    assert once.decode() == text.replace('"a":1,', "")
    assert truth.canonical(once) == truth.canonical(orjson.Fragment(text)), "as verify sees both"


@pytest.mark.parametrize("levels", [100, 480, 970, 1_000, 100_000])
def test_json_is_embedded_however_deeply_it_is_nested(levels: int) -> None:
    """A row is read with less on the stack than when its document is made: what passed there failed here, for ever."""
    from cdc.types.values import json_unique

    def below(frames: int, text: str) -> str:
        return orjson.dumps(json_unique(text)).decode() if not frames else below(frames - 1, text)

    for one in ('{"a":1}', '{"a":1,"a":2}', '{"b":[],"a":{"a":1,"a":{}}}'):
        text = "[" * levels + one + "]" * levels
        once = text.replace('"a":1,', "")
        assert below(0, text) == below(300, text) == once


def test_an_interval_s_seconds_are_rounded_to_what_postgres_keeps() -> None:
    from cdc.types.values import interval

    assert interval("P0Y11M-40DT16H57M5.987999999S") == "P11M-40DT16H57M5.988S"
    assert interval("P0Y0M0DT0H0M-0.000001S") == "PT-0.000001S"


REAL, REALS = (Column("v", "real", "float4", array=array) for array in (False, True))
NEAREST = 1.4012984643248171e-45


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (8.9310003e9, "8931000000.0"),  # Float.toString before Java 19; Postgres prints 8.931e+09
        (2.0000001e-44, "2e-44"),
        (1.4e-45, "1e-45"),  # Java 19 and later, which prints two digits at least
        (NEAREST, "1e-45"),
        (1.26217745e-29, "1.2621775e-29"),  # a power of two: its neighbour below is nearer than the one above
        (0.10000000149011612, "0.1"),
        (3.4028235e38, "3.4028235e+38"),
        (3.4028234663852886e38, "3.4028235e+38"),
        (16777217.0, "16777216.0"),
        (-0.0, "-0.0"),
        (12.5, "12.5"),
        (5, "5.0"),
    ],
)
def test_a_real_has_the_digits_that_postgres_prints(raw: float, shown: str) -> None:
    """Whatever Java the connector runs on: the same row was two documents, where its key has a real."""
    convert, many = types.json_converter(REAL), types.json_converter(REALS)
    assert convert is not None and many is not None
    assert repr(convert(raw)) == shown
    assert repr(many([raw, None])) == f"[{shown}, None]"
    assert View.identity(Table("public", "t", (REAL,), ("v",))).document_id(
        Change("public.t", Op.READ, {"v": raw}, {"v": raw}, 1, "t", 0, 0, 0)
    ) == str(truth.expected(REAL, shown))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_of_a_real_stays_its_word(word: str) -> None:
    convert = types.json_converter(REAL)
    assert convert is not None and convert(word) == word


@pytest.mark.parametrize("wrong", ["1.5", None, [], True])
def test_what_is_no_real_is_refused(wrong: object) -> None:
    convert = types.json_converter(REAL)
    assert convert is not None
    with pytest.raises(types.REFUSALS):
        convert(wrong)


def test_every_real_that_has_its_shortest_digits_keeps_them() -> None:
    """And every other gets them: held against double-conversion, which is Arrow's."""
    chance = random.Random(3)
    bits = [chance.getrandbits(32) for _ in range(5_000)] + [power << 23 for power in range(255)] + list(range(1_000))
    numbers = [one for (one,) in struct.iter_unpack("f", struct.pack(f"{len(bits)}I", *bits)) if math.isfinite(one)]
    wanted = pa.array(numbers, pa.float32()).cast(pa.string()).cast(pa.float64()).to_pylist()
    convert = types.json_converter(REAL)
    assert convert is not None
    assert [repr(convert(one)) for one in numbers] == [repr(one) for one in wanted]
    assert [repr(convert(one)) for one in wanted] == [repr(one) for one in wanted]


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ("P0Y0M1DT2H0M5.500000S", "P1DT2H5.5S"),
        ("P-1Y-1M0DT1000000H59M0.100000S", "P-1Y-1MT1000000H59M0.1S"),
        ("P0Y0M0DT0H0M-0.000001S", "PT-0.000001S"),
        ("P0Y1M-30DT0H0M0.000000S", "P1M-30D"),
        ("P0Y0M0DT0H0M0.000000S", "PT0S"),
        ("P10Y0M20DT0H0M30S", "P10Y20DT30S"),
        ("P1DT2H5.5S", "P1DT2H5.5S"),
        ("infinity", "infinity"),
    ],
)
def test_an_interval_is_told_by_its_parts_whatever_the_server_s_style(parts: str, shown: str) -> None:
    one = Column("v", "interval", "interval")
    assert truth.expected(one, parts) == shown
    said = truth.select_expression(one, "t")
    assert "format('%s', t" not in said and "::text END" in said


def test_an_interval_within_another_type_is_read_in_the_style_that_the_connector_s_sessions_have() -> None:
    """A composite that has one comes as the session prints it: where role or database set another style, `verify`
    called it different for good."""
    assert f"-c IntervalStyle={truth.SESSION['IntervalStyle']} " in driver_options(180000)
