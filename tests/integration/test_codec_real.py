"""The codec against a real Debezium: every type, snapshot and streamed; large values; positions under concurrency.

All of it as JSON and as Avro.

``HEADWATER_RECAPTURE=1`` also writes what was seen into tests/fixtures/debezium_json, from which the unit tests work.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.catalogue import Catalogue
from cdc.records.debezium_json import snapshot_lsn
from cdc.records.encoding import JSON
from cdc.view import View
from connectors.tables.catalogue import read_catalogue
from deploy.local import artifacts
from spark.machine.session import build_session
from spark.reading.avro_text import values_as_text
from spark.reading.record import RECORD_DDL
from tests.support import codec_cases as cases
from tests.support.debezium import Lab, Record, lab_on, wait_for
from tests.support.own_classes import own_classes_at_hand
from tests.support.sampling import in_turn
from tests.support.servers import servers
from truth import values as truth

pytestmark = pytest.mark.stack

TABLES = ("types", "toasty", "rows", "marker", "odd")
# Names that are no names in Avro, some that look like escaped ones, and defaults beside NULL.
ODD = """
CREATE TABLE odd (id int primary key, "two words" text DEFAULT 'default', "Größe" int DEFAULT 7,
  "1st" numeric DEFAULT 1, "_u0041" text, "a_u00e9b" text, "__u" text, "𝄞" bytea, "a.b-c" float8 DEFAULT 'NaN',
  plain text[] DEFAULT '{x}')
"""
FIXTURES = Path(__file__).parents[1] / "fixtures" / "debezium_json"


@pytest.fixture(scope="module", params=in_turn("json", "avro", ring=True))
def seen(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """One run of everything: table -> records, with the catalogue and Postgres's own texts."""
    with lab_on(servers(), request.param) as lab:
        found = _run(lab)
        if os.environ.get("HEADWATER_RECAPTURE") and request.param == "json":
            _save(found)
        yield found


def _run(lab: Lab) -> dict[str, Any]:
    root = lab.connect(autocommit=True)
    root.execute((FIXTURES / "every_type.sql").read_text())
    root.execute((FIXTURES / "large_values.sql").read_text())
    root.execute("CREATE TABLE rows (id int primary key, v text)")
    root.execute("INSERT INTO rows SELECT i, 'base' FROM generate_series(1, 9) i")
    root.execute(ODD)
    root.execute("CREATE TABLE marker (id int primary key)")
    root.execute("INSERT INTO marker VALUES (1)")
    root.execute("CREATE TABLE signal (id varchar(64) primary key, type varchar(64) not null, data text)")
    root.execute(f"CREATE PUBLICATION {lab.name} FOR TABLE types, toasty, rows, marker, odd, signal")
    root.execute("INSERT INTO odd VALUES (1, 'a', 1, 2, 'b', 'c', 'd', 'e', 'Infinity', '{y}')")
    root.execute(f"INSERT INTO odd VALUES (2{', NULL' * 9})")
    lab.create_topics([*TABLES, "signal"])
    _snapshot_among_transactions(lab)
    _stream(lab)
    read = {
        "types": lab.read("types", lambda got: len(got) >= 2 * _count(root, "types WHERE id < 1000")),
        "toasty": lab.read("toasty", lambda got: _has(got, '{"id":9}')),
        "rows": lab.read("rows", lambda got: _has(got, '{"id":99}')),
        "marker": lab.read("marker", lambda got: len(got) == 1),
        "odd": lab.read("odd", lambda got: len(got) == 4),
    }
    texts = lab.connect()
    texts.execute("; ".join(f"SET {name} = '{value}'" for name, value in truth.SESSION.items()))
    catalogue = read_catalogue(texts, [f"public.{table}" for table in TABLES])
    return {
        "catalogue": catalogue,
        "records": read,
        "encoding": lab.encoding,
        "registry": lab.ends.registry_url,
        "odd": cases.read_texts(texts, catalogue.tables["public.odd"]),
        "types": cases.read_texts(texts, catalogue.tables["public.types"]),
        "rows": dict(texts.execute("SELECT id, v FROM rows").fetchall()),
    }


def _snapshot_among_transactions(lab: Lab) -> None:
    """A snapshot beside three transactions: ended before it, ended with it, and open across it after writing before."""
    before, during, across = lab.connect(), lab.connect(), lab.connect()
    root = lab.connect(autocommit=True)
    before.execute("UPDATE rows SET v = 'before' WHERE id = 1")
    lab.start(TABLES)
    wait_for("slot", lambda: _count(root, f"pg_replication_slots WHERE slot_name = '{lab.name}'") == 1)
    time.sleep(1)
    during.execute("UPDATE rows SET v = 'during' WHERE id = 2")
    before.commit()
    _log_running(root)
    across.execute("UPDATE rows SET v = 'across' WHERE id = 3")
    across.execute("DELETE FROM rows WHERE id = 4")
    root.execute("UPDATE rows SET v = 'meanwhile' WHERE id = 5")
    during.commit()
    _log_running(root)
    lab.read("rows", lambda got: len(got) >= 9)
    lab.read("types", lambda got: len(got) >= _count(root, "types"))
    across.execute("UPDATE rows SET v = 'across, late' WHERE id = 6")
    across.commit()
    lab.read("rows", lambda got: len(got) >= 13)


def _log_running(root: Any) -> None:
    """Tell logical decoding now which transactions run; the server does so every 15 s by itself."""
    time.sleep(0.5)
    root.execute("SELECT pg_log_standby_snapshot()")
    time.sleep(1)


def _stream(lab: Lab) -> None:
    root = lab.connect(autocommit=True)
    names = [f'"{c[0]}"' for c in root.execute("SELECT * FROM types LIMIT 0").description or ()]
    root.execute(f"INSERT INTO types SELECT id + 1000, {', '.join(names[1:])} FROM types WHERE id < 1000")
    twice, slow = lab.connect(), lab.connect()
    slow.execute("UPDATE rows SET v = 'slow' WHERE id = 7")
    twice.execute("UPDATE rows SET v = 'twice 1' WHERE id = 1")
    root.execute("UPDATE rows SET v = 'between' WHERE id = 2")
    twice.execute("UPDATE rows SET v = 'twice 2' WHERE id = 1")
    twice.commit()
    root.execute("UPDATE rows SET id = 11 WHERE id = 1")  # a primary-key change is a delete and a create
    root.execute("INSERT INTO rows VALUES (1, 'again')")
    lab.read("rows", lambda got: _has(got, '{"id":11}'))
    lab.incremental_snapshot("rows")
    lab.read("rows", lambda got: sum(b"incremental" in (r[1] or b"") for r in got) >= 5)
    slow.commit()  # wrote before the incremental snapshot, which read the value from before it
    root.execute("DELETE FROM rows WHERE id = 8")
    lab.read("rows", lambda got: any(record[:2] == (b'{"id":8}', None) for record in got))
    lab.restart()
    root.execute("UPDATE rows SET v = 'after the restart' WHERE id = 9")
    root.execute("UPDATE toasty SET n = 1 WHERE id = 1")
    root.execute("UPDATE toasty SET id = 2, n = 2 WHERE id = 1")
    root.execute("INSERT INTO toasty (id, n) VALUES (9, 9)")
    root.execute(f"INSERT INTO odd VALUES (3{', NULL' * 9})")
    root.execute("INSERT INTO odd VALUES (4)")
    root.execute("INSERT INTO rows VALUES (99, 'end')")


def _has(records: list[Record], key: str) -> bool:
    return any(record[0] == key.encode() for record in records)


def _count(connection: Any, what: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def _save(found: dict[str, Any]) -> None:
    catalogue: Catalogue = found["catalogue"]
    for table in ("types", "toasty", "rows"):
        records = found["records"][table]
        if table == "toasty":
            records = [
                record for record in records if len(record[1] or b"") < 20_000
            ]  # not the large values themselves
        content = {
            "table": json.loads(Catalogue({"t": catalogue.tables[f"public.{table}"]}).to_json())["tables"][0],
            "records": [[_text(key), _text(value), offset] for key, value, offset in records],
        }
        if table == "types":
            content["texts"] = found["types"]
        if table == "rows":
            content["final"] = found["rows"]
            content["snapshot_lsn"] = snapshot_lsn(found["records"]["marker"][0][1])
        (FIXTURES / f"{table}.json").write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n")


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _of(seen: dict[str, Any], table: str) -> cases.Captured:
    return cases.Captured(seen["catalogue"].tables[f"public.{table}"], seen["records"][table], seen["encoding"])


def test_every_value_arrives_as_postgres_prints_it_or_is_documented(seen: dict[str, Any]) -> None:
    cases.check_types(_of(seen, "types"), seen["types"])


def test_large_values_are_marked_or_documented(seen: dict[str, Any]) -> None:
    cases.check_placeholders(_of(seen, "toasty"))


def test_positions_order_every_key_as_the_source_did(seen: dict[str, Any]) -> None:
    lsn = snapshot_lsn(seen["records"]["marker"][0][1], seen["encoding"])
    assert lsn is not None
    cases.check_positions(_of(seen, "rows"), seen["rows"], lsn)


def test_odd_names_arrive_and_null_is_not_the_default(seen: dict[str, Any]) -> None:
    captured = _of(seen, "odd")
    view = View.identity(captured.table)
    for change in captured.changes():
        identity, document = view.render(change)
        wanted = truth.Documents(view)(seen["odd"][identity])
        assert document is not None
        assert json.loads(document) == json.loads(wanted[1] or b"")
        if change.key["id"] in (2, 3):
            assert set(json.loads(document).values()) == {change.key["id"], None}


def test_streamed_values_look_like_a_snapshots(seen: dict[str, Any]) -> None:
    """Debezium reads snapshots through JDBC and the stream as text: what differs is listed here, and is all."""
    rows: dict[int, dict[str, Any]] = {}
    for key, value, _ in seen["records"]["types"]:
        rows[json.loads(key)["id"]] = seen["encoding"].loads(value)["after"]
    different = {
        (number, name)
        for number, row in rows.items()
        if number < 1000
        for name, value in row.items()
        if name != "id" and value != rows[number + 1000][name] and "[L" not in str(value)
    }
    assert {name for _, name in different} == {"c_date"}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_makes_json_of_every_record_of_avro(seen: dict[str, Any], tmp_path: Path) -> None:
    if seen["encoding"] is JSON:
        pytest.skip("JSON needs none")
    values = [value for records in seen["records"].values() for _, value, _ in records if value is not None]
    with own_classes_at_hand():
        jars = artifacts.spark_jars()[0].parent
        session = build_session("t", master="local[1]", jars=jars, log=tmp_path / "spark.log")
        rows = [(None, value, "t", 0, at) for at, value in enumerate(values)]
        made = values_as_text(session.createDataFrame(rows, RECORD_DDL).coalesce(1), {"url": seen["registry"]})
        texts = [bytes(row.value) for row in sorted(made.collect(), key=lambda row: row.offset)]
        session.stop()
    for value, text in zip(values, texts, strict=True):
        assert text[:1] == b"{"
        assert orjson.dumps(orjson.loads(text)["after"]) == orjson.dumps(seen["encoding"].loads(value)["after"])
