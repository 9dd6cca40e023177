"""What must hold of captured records; used on fresh ones (tests/integration) and on the fixtures (tests/unit)."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from cdc import types
from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import DecodeError
from cdc.records.change import Change, Op
from cdc.records.debezium_json import Decoder
from cdc.records.encoding import JSON, Encoding
from cdc.types.limits import null_breaks_array
from cdc.view import View
from truth import values as truth
from truth.columns import comparable_expected, comparable_row

FIXTURES = Path(__file__).parents[1] / "fixtures" / "debezium_json"
# The one value that must be refused rather than arrive wrong, besides arrays in arrays: past Debezium's microseconds.
OVERFLOW = "294276-12-31 23:59:59.999999"


@dataclass
class Captured:
    """Records of one table's topic, as Debezium wrote them."""

    table: Table
    records: list[tuple[bytes | None, bytes | None, int]]
    encoding: Encoding = JSON

    def changes(self, snapshot_lsn: int = 0) -> list[Change]:
        decoder = Decoder(self.table, snapshot_lsn=snapshot_lsn, encoding=self.encoding)
        return [decoder.decode(key, value, "topic", 0, offset) for key, value, offset in self.records]


def fixture(name: str) -> tuple[Captured, dict[str, Any]]:
    raw = json.loads((FIXTURES / f"{name}.json").read_text())
    whole = {"tables": [raw["table"]], "system_identifier": "", "timeline": 0, "database": ""}
    (table,) = Catalogue.from_json(json.dumps(whole)).tables.values()
    records = [(key and key.encode(), value and value.encode(), offset) for key, value, offset in raw["records"]]
    return Captured(table, records), raw


def read_texts(connection: Any, table: Table) -> dict[str, dict[str, str | None]]:
    """id -> column -> text, for every row of a table."""
    fields = ", ".join(truth.select_expression(column) for column in table.columns)
    rows = connection.execute(f"SELECT {fields} FROM {table.name}").fetchall()
    names = [column.name for column in table.columns]
    texts = ({n: None if v is None else str(v) for n, v in zip(names, row, strict=True)} for row in rows)
    return {str(row["id"]): row for row in texts}


def check_types(captured: Captured, texts: dict[str, dict[str, str | None]]) -> None:
    """Every value is what Postgres prints, or its column is documented as one whose value may be lost."""
    view = View.identity(captured.table)
    arrow = view.arrow_schema()
    checked = 0
    for change in captured.changes():
        row = texts[str(change.key["id"])]
        identity, document = truth.Documents(view)(row)
        if (refused := _must_refuse(view, row, change)) is not None:
            assert refused in _refusal(view, change)
            continue
        got_id, got = view.render(change)
        assert got is not None
        assert got_id == identity
        _compare(view, row, _exactly(got), _exactly(document), change)
        typed = dict(zip(arrow.names, view.typed_row(change), strict=True))
        pa.RecordBatch.from_pylist([typed], schema=arrow)
        # A table's JSON is text, which is compared with the document's.
        texts_of = {name: typed[name] for name in view.table.by_name if _is_json(view.table.by_name[name])}
        wanted = comparable_expected(view, document)
        assert len(texts_of) > 2
        assert comparable_row(view, texts_of) == {name: wanted[name] for name in texts_of}
        checked += 1
    assert checked >= 2 * 30


def _is_json(column: Column) -> bool:
    return column.base_type in ("json", "jsonb", "hstore")


def _exactly(document: bytes) -> Any:
    """Parsed, but numbers with a fraction or an exponent keep their digits."""
    return json.loads(document, parse_float=lambda digits: ("number", digits))


def _must_refuse(view: View, row: dict[str, str | None], change: Change) -> str | None:
    """What the error must say for the values that can't be right."""
    if row.get("c_ts") == OVERFLOW:
        return "overflows"
    if (row.get("a_text") or "").startswith("{{"):
        return "more than one dimension"
    if row.get("c_text") == "__debezium_unavailable_value" and not change.snapshot:
        return "did not change"  # a user's own text that is Debezium's word: the documented price of the word
    return None


def _refusal(view: View, change: Change) -> str:
    try:
        view.render(change)
    except DecodeError as error:
        return str(error)
    raise AssertionError(f"{change.key} was rendered")


def _compare(view: View, row: dict[str, str | None], got: Any, wanted: Any, change: Change) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        column = view.table.by_name[name]
        if json.dumps(got[name]) == json.dumps(value):
            continue
        where = f"{name} {column.type_name} of row {change.key}, {'snapshot' if change.snapshot else 'streamed'}"
        assert types.lossy(column), f"{where}: got {got[name]!r}, Postgres has {row[name]!r} ({value!r})"
        assert _is_rare(column, row[name] or "", change), f"{where}: {row[name]!r} is lost: {got[name]!r}"


def _is_rare(column: Column, text: str, change: Change) -> bool:  # noqa: PLR0911 (one return a case)
    """Whether ``cdc.types.lossy`` announces this value, not only this column."""
    if column.array and text.startswith("{{"):
        return True
    if column.array and column.base_type == "numeric":
        return "NaN" in text or "Infinity" in text
    if null_breaks_array(column):
        return "NULL" in text
    if column.array and column.base_type == "time":
        return "24:00" in text or ".000001" in text
    if column.array and column.base_type in ("timestamp", "timestamptz", "date"):
        return " BC" in text
    if column.base_type == "date":
        return " BC" in text and change.snapshot
    if column.base_type == "interval":
        return "infinity" in text
    return column.base_type == "timetz" and text.endswith(":01")


def check_placeholders(captured: Captured) -> None:
    """An unchanged large value is marked as unavailable, or its column is known to come as null."""
    updates = [c for c in captured.changes() if c.after is not None and c.key["id"] < 9 and not c.snapshot]
    assert [change.op for change in updates] == [Op.UPDATE, Op.CREATE]  # the second is the primary-key change's
    for change in updates:
        assert change.after is not None
        for column in captured.table.columns[2:]:
            if types.unsupported(column):
                continue
            if types.null_when_unchanged(column):
                assert change.after[column.name] is None, column
                assert column.name not in change.unavailable
            else:
                assert column.name in change.unavailable, (column, change.after[column.name])
        view = View.identity(captured.table)
        assert set(view.unavailable(change)) == set(change.unavailable)
        small = View("small", captured.table, ("id",), (("id", "id"), ("n", "n")))
        assert small.render(change)[1] == orjson.dumps({"id": change.key["id"], "n": change.after["n"]})
    large = [change for change in captured.changes() if change.key["id"] == 9]
    assert not large[0].unavailable


def check_positions(captured: Captured, final: dict[int, str], snapshot_lsn: int) -> None:
    """Whatever the order of application, the newest by (position, offset) of each key is what the table holds."""
    changes = [c for c in captured.changes(snapshot_lsn) if c.op is not Op.TOMBSTONE]
    for seed in range(20):
        shuffled = random.Random(seed).sample(changes, len(changes))
        held: dict[int, Change] = {}
        for change in shuffled:
            known = held.get(change.key["id"])
            if known is None or (known.position, known.offset) <= (change.position, change.offset):
                held[change.key["id"]] = change
        assert {key: c.after["v"] for key, c in held.items() if c.after is not None} == final
    by_key: dict[int, list[Change]] = {}
    for change in changes:
        by_key.setdefault(change.key["id"], []).append(change)
    for ordered in by_key.values():  # a topic's order within a key is the source's
        assert ordered == sorted(ordered, key=lambda c: (c.position, c.offset))
    _check_kinds(changes, captured, snapshot_lsn)


def _check_kinds(changes: list[Change], captured: Captured, snapshot_lsn: int) -> None:
    """The capture has the cases that matter, or this test shows nothing."""
    values = [captured.encoding.loads(value) for _, value, _ in captured.records if value]
    incremental = [v for v in values if v["source"]["snapshot"] == "incremental"]
    assert incremental
    assert all(v["source"]["lsn"] is None for v in incremental)
    across = [v for v in values if v["op"] in "ud" and v["source"]["lsn"] < snapshot_lsn]
    assert len(across) >= 2, "no transaction wrote before the snapshot and committed after it"
    # Without the snapshot's LSN these look older than the snapshot's rows: the hole that it closes.
    without = {c.offset: c.position for c in captured.changes()}
    assert any(c.position != without[c.offset] for c in changes)
    moved = [c for c in changes if c.key["id"] in (1, 11) and c.op in (Op.DELETE, Op.CREATE)]
    assert moved[0].position == moved[1].position, "the two halves of a primary-key change share one position"
