"""The codec's share of the initial load: measured generously, so that only a real slowdown fails."""

from __future__ import annotations

import gc
import time

import orjson

from cdc.catalogue import Column, Table
from cdc.records.debezium_json import Decoder
from cdc.view import View

COLUMNS = (
    "flight_id:int8 year:int2 month:int2 day:int2 dep_time:int4 sched_dep_time:int4 dep_delay:float8 arr_time:int4 "
    "sched_arr_time:int4 arr_delay:float8 carrier:text flight:int4 tailnum:text origin:text dest:text air_time:numeric "
    "distance:numeric hour:int2 time_hour:timestamptz"
)
VALUES = {
    "int8": 1,
    "int2": 5,
    "int4": 517,
    "float8": 11.5,
    "text": "N14228",
    "numeric": "227.00",
    "timestamptz": "2013-01-01T10:00:00.000000Z",
}
SOURCE = (
    b'{"version":"3.7.0.Final","connector":"postgresql","name":"flights","ts_ms":1700000000000,"snapshot":"false",'
    b'"db":"flights","sequence":"[\\"24023128\\",\\"24023128\\"]","ts_us":1700000000000000,"ts_ns":1700000000000000000,'
    b'"schema":"public","table":"flights","txId":555,"lsn":24023128,"xmin":null,"origin":null,"origin_lsn":null}'
)
# Seen: 100,000 on a shared 2-core machine, and 37,000 in an hour in which others had most of its cores.
RECORDS, ROUNDS, LEAST_PER_SECOND = 5_000, 7, 25_000


def test_decoding_and_rendering_flights_is_fast() -> None:
    columns = tuple(Column(name, kind, kind) for name, kind in (pair.split(":") for pair in COLUMNS.split()))
    table = Table("public", "flights", columns, ("flight_id",))
    row = {column.name: VALUES[column.base_type] for column in columns}
    source = orjson.Fragment(SOURCE)
    records = []
    for number in range(RECORDS):
        event = {"before": None, "after": row | {"flight_id": number}, "source": source, "transaction": None, "op": "c"}
        records.append((orjson.dumps({"flight_id": number}), orjson.dumps(event)))
    decoder, view = Decoder(table), View.identity(table)
    best = 0.0
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        start = time.process_time()
        for offset, (key, value) in enumerate(records):
            view.render(decoder.decode(key, value, "flights", 0, offset))
        best = max(best, RECORDS / (time.process_time() - start))
    gc.unfreeze()
    assert best > LEAST_PER_SECOND
