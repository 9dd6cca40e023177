"""Records as Debezium writes them in Avro."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from fastavro import schemaless_writer

from cdc.records.debezium_avro import HEAD, Avro, Parsed, parse
from cdc.records.encoding import UnknownSchemaId

# As Apicurio's converter writes it: the second mention of a record is its name, connect.* tells Connect's own types.
VALUE = {
    "type": "record",
    "name": "Value",
    "namespace": "p.public.t",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "Gr_u00f6_u00dfe_u00201", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "f4", "type": ["null", "float"]},
        {"name": "f8", "type": ["null", {"type": "double", "connect.name": "x"}]},
        {"name": "many", "type": ["null", {"type": "array", "items": ["null", "bytes"]}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}


SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium",
    "fields": [
        *({"name": name, "type": ["null", "string"], "default": None} for name in ("snapshot", "sequence")),
        *({"name": name, "type": "string"} for name in ("schema", "table")),
        *(
            {"name": name, "type": ["null", "long"], "default": None}
            for name in ("lsn", "ts_ms", "txId", "xmin", "ts_us")
        ),
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "p.public.t",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "p.public.t.Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
PARSED = parse(json.dumps(ENVELOPE))
PLACE = {"schema": "public", "table": "t", "lsn": 70, "sequence": None, "snapshot": None, "ts_ms": 5}


def known(number: int) -> Parsed:
    if number == 7:
        return PARSED
    raise UnknownSchemaId(f"the schema registry has no schema {number}")


AVRO = Avro(known)


def written(after: dict[str, Any] | None, op: str = "c", number: int = 7) -> bytes:
    out = BytesIO()
    out.write(HEAD.pack(0, number))
    schemaless_writer(out, PARSED.writing, {"after": after, "source": PLACE, "op": op})
    return out.getvalue()
