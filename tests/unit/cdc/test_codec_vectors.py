"""pgvector's and PostGIS's columns: what Debezium writes of them becomes what Postgres prints; arrays are in no view.

The tests' servers have not got the extensions: records are those that Debezium 3.7 writes of such columns, texts those
that Postgres prints of a ``real``, as pgvector does.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from cdc import types
from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import PipelineFileError
from cdc.pipeline import loads
from cdc.records.change import Change, Op
from cdc.records.debezium_json import Decoder
from cdc.resolve.views import resolve_view
from cdc.types.raw import raw_value
from cdc.view import View
from truth.values import Documents

EMBEDDING = Column("e", "vector(3)", "vector")
HALF = Column("h", "halfvec", "halfvec")
TABLE = Table("public", "t", (Column("id", "integer", "int4"), EMBEDDING, HALF), ("id",))
SPARSE = Column("s", "sparsevec(5)", "sparsevec")
PLACES = [Column("place", "geometry(Point,4326)", "geometry"), Column("area", "geography", "geography")]
LEFT_OUT = [
    *(
        Column("many", f"{kind}[]", kind, array=True)
        for kind in ("vector", "halfvec", "sparsevec", "geometry", "geography")
    ),
]
FILE = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.*]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
views: {v: {root: tPICKS}}
sinks: {s: {type: redis, url: "redis://h", view: v}}
"""


def event(after: str) -> bytes:
    """A record as Debezium writes it; ``after`` is JSON text, whose digits matter."""
    source = '{"schema":"public","table":"t","lsn":9,"sequence":"[\\"5\\",\\"9\\"]","snapshot":"false","ts_ms":1}'
    return f'{{"op":"c","before":null,"after":{after},"source":{source}}}'.encode()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ("[1.0,2.0,3.0]", "[1,2,3]"),
        ("[1.5,-0.25,0.0]", "[1.5,-0.25,0]"),
        ("[-0.0,1.0E-4,1.0E-5]", "[-0,0.0001,1e-05]"),
        ("[1.0E-7,1.0E20,-3.4028235E38]", "[1e-07,1e+20,-3.4028235e+38]"),
        ("[100000.0,1000000.0,1234567.0]", "[100000,1e+06,1.234567e+06]"),
        ("[999999.94,1.6777216E7,1.0E15]", "[999999.94,1.6777216e+07,1e+15]"),
        ("[1.0E16,1.2345678E16,1.0E-45]", "[1e+16,1.2345678e+16,1e-45]"),
        ("[0.1,0.33333334,0.099975586]", "[0.1,0.33333334,0.099975586]"),
        ("[8.9310003E9,2.0000001E-44,1.4E-45]", "[8.931e+09,2e-44,1e-45]"),
    ],
    ids=["whole", "fractions", "small", "exponents", "a million", "near", "far", "digits", "of Java before 19"],
)
def test_a_vector_is_the_text_that_postgres_prints_and_verify_expects(numbers: str, text: str) -> None:
    view = View.identity(TABLE)
    record = event(f'{{"id":1,"e":{numbers},"h":{numbers}}}')
    change = Decoder(TABLE).decode(b'{"id":1}', record, "t", 0, 0)
    assert view.render(change) == Documents(view)({"id": "1", "e": text, "h": text})
    row = dict(zip(view.arrow_schema().names, view.typed_row(change), strict=True))
    assert row == {"id": 1, "e": text, "h": text}
    pa.RecordBatch.from_pylist([row], schema=view.arrow_schema())


def test_numbers_of_32_bits_that_were_made_wider_have_the_fewest_digits_that_name_them() -> None:
    """As Avro holds them. Arrow prints the fewest digits, too."""
    convert = types.json_converter(HALF)
    assert convert is not None
    assert convert([0.10000000149011612, 0.0999755859375, 0.501953125]) == "[0.1,0.099975586,0.5019531]"
    bits = [(0x9E3779B9 * at + 12345) & 0x7F7FFFFF for at in range(3_000)]
    found = [struct.unpack("f", struct.pack("I", one))[0] for one in bits]
    texts = pa.array(found, pa.float32()).cast(pa.string()).to_pylist()
    assert [float(text) for text in convert(found)[1:-1].split(",")] == [float(text) for text in texts]


@pytest.mark.parametrize("value", ["[1,2]", {"a": 1}, [None], ["1"], [True], [float("nan")], [1e39], [10**400]])
def test_what_is_no_vector_is_refused(value: Any) -> None:
    convert = types.json_converter(EMBEDDING)
    assert convert is not None
    with pytest.raises(types.REFUSALS):
        convert(value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"dimensions":5,"vector":[[3,2.0],[1,0.10000000149011612]]}', "{1:0.1,3:2}/5"),  # Kafka's own converter
        ('{"dimensions":5,"vector":{"3":2.0,"1":1.0E-7}}', "{1:1e-07,3:2}/5"),
        ('{"dimensions":16000,"vector":[]}', "{}/16000"),
    ],
)
def test_a_sparse_vector_is_the_text_that_postgres_prints(given: str, said: str) -> None:
    assert types.json_converter(SPARSE)(json.loads(given)) == said  # type: ignore[misc]


@pytest.mark.parametrize("column", PLACES, ids=lambda one: one.base_type)
def test_a_geometry_is_the_text_that_postgres_prints_and_verify_expects(column: Column) -> None:
    """PostGIS prints the bytes that Debezium hands on: SRID=4326;POINT(1 2)."""
    table = Table("public", "t", (Column("id", "integer", "int4"), column), ("id",))
    view, hexadecimal = View.identity(table), "0101000020E6100000000000000000F03F0000000000000040"
    held = base64.b64encode(bytes.fromhex(hexadecimal)).decode()
    record = event(f'{{"id":1,"{column.name}":{{"wkb":"{held}","srid":4326}}}}')
    change = Decoder(table).decode(b'{"id":1}', record, "t", 0, 0)
    assert view.render(change) == Documents(view)({"id": "1", column.name: hexadecimal})
    convert = types.json_converter(column)
    assert convert is not None and convert({"wkb": bytes.fromhex(hexadecimal), "srid": 4326}) == hexadecimal  # Avro's
    assert types.null_when_unchanged(column) and types.may_be_large(column)
    for bad in ("AQ==", {"srid": 4326}, {"wkb": "!", "srid": 1}, {"wkb": 1}, {"wkb": "AQ==", "other": 1}):
        with pytest.raises(types.REFUSALS):
            convert(bad)


@pytest.mark.parametrize("column", LEFT_OUT, ids=lambda one: one.type_name)
def test_a_structure_is_left_out_of_views_and_named_where_a_view_asks_for_it(column: Column) -> None:
    reason = types.unsupported(column)
    assert reason is not None and column.type_name in reason and "a text column beside it" in reason
    table = Table("public", "t", (Column("id", "integer", "int4"), column), ("id",))
    catalogue, text = Catalogue({"public.t": table}), FILE.replace("PICKS", "")
    assert resolve_view(loads(text, "p.yaml", {}), catalogue, "v").columns == (("id", "id"),)
    text = FILE.replace("PICKS", f", columns: [id, {column.name}]")
    with pytest.raises(PipelineFileError, match="can't be in a view"):
        resolve_view(loads(text, "p.yaml", {}), catalogue, "v")


def test_an_unchanged_vector_that_is_stored_out_of_line_comes_as_null() -> None:
    """So the re-selection asks for it again: else it would be null in every sink."""
    assert types.null_when_unchanged(EMBEDDING) and types.null_when_unchanged(HALF)
    assert types.may_be_large(EMBEDDING)


def test_a_test_s_vector_is_written_as_postgres_prints_it() -> None:
    assert raw_value(EMBEDDING, "[1,2.5,1e-07]") == [1.0, 2.5, 1e-07]
    assert raw_value(HALF, "[0.099975586,1]") == [0.099975586, 1.0]
    for column, value, why in [
        (EMBEDDING, [1, 2, 3], "in quotes"),
        (EMBEDDING, "{1,2,3}", "as Postgres prints it"),
        (EMBEDDING, "[1,null,3]", "as Postgres prints it"),
        (EMBEDDING, "[1,2]", "2 numbers do not fit"),
        (EMBEDDING, "[1,2,0.123456789]", "more digits"),
        (HALF, "[0.1]", "more digits"),
        (HALF, "[70000]", "does not fit halfvec"),
    ]:
        with pytest.raises(ValueError, match=why):
            raw_value(column, value)
    assert json.dumps(raw_value(EMBEDDING, "[1,2,3]")) == "[1.0, 2.0, 3.0]"


def test_an_hstore_of_spark_has_its_keys_in_postgres_order() -> None:
    """``SELECT 'bb=>1, é=>2, aa=>NULL, z=>3'::hstore`` gives z, aa, bb, é; the log has the order of a hash map."""
    made = types.arrow_converter(Column("c", "hstore", "hstore"))
    assert made is not None
    assert made('{"bb":"1","é":"2","aa":null,"z":"3"}') == '{"z":"3","aa":null,"bb":"1","é":"2"}'


def test_a_row_whose_key_is_an_hstore_has_one_id() -> None:
    """In the log, in the table, and in a warehouse, whose key is the JSON's text."""
    tags = Column("tags", "hstore", "hstore")
    view = View.identity(Table("public", "t", (tags,), ("tags",)))
    logged = '{"bb":"1","é":"2","aa":null,"z":"3"}'
    change = Change("public.t", Op.CREATE, {"tags": logged}, {"tags": logged}, 1, "p.public.t", 0, 0, 0)
    printed = '"z"=>"3", "aa"=>NULL, "bb"=>"1", "é"=>"2"'
    made = types.arrow_converter(tags)
    assert made is not None
    assert view.document_id(change) == Documents(view)({"tags": printed})[0] == made(logged)
