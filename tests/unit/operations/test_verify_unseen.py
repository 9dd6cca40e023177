"""Documents of rows whose newest transaction is in the log and can't be seen yet: a repair leaves them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.view import View
from connectors.database.visibility import Visible
from operations.holding import Holds
from operations.records import newest as log
from operations.records.newest import Record, newest_transactions
from operations.verify import looks
from operations.verify.buckets import Keys
from operations.verify.comparison import marked
from operations.verify.repair import repair, warehouse, work
from operations.verify.repair.work import Refused, Repair
from sinks.contract import WRITTEN, Answer, Item
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from tests.support.trees import table

TABLE = table("t", "id", id="int4", v="text")
VIEW = replace(View.identity(TABLE), name="t")
TOPIC = "p.public.t"
SPEC = FlowSpec("s", {"t": VIEW}, {TOPIC: ("t",)}, {TOPIC: TABLE}, {}, {})
PIPELINE: Any = SimpleNamespace(source=SimpleNamespace(reader=lambda: None), topic=lambda name: f"p.{name}")
# All of them are alive in the log and in the sink, and absent in Postgres. 8 and 9 have not ended, 101 is newer than
# the look, and whoever read the row of None has seen it.
BY = {"1": 7, "2": 8, "3": None, "4": 101, "5": 9}


def record(key: str, transaction: int | None, *, lsn: int = 800, op: str = "c") -> Record:
    source = {"schema": "public", "table": "t", "lsn": lsn, "ts_ms": 1, "sequence": None, "txId": transaction}
    source["snapshot"] = "false" if transaction else "incremental"
    after = None if op == "d" else {"id": int(key), "v": "x"}
    value = {"op": op, "source": source, "before": None, "after": after}
    return Record(orjson.dumps({"id": int(key)}), orjson.dumps(value), TOPIC, 0, lsn)


class Shelf:
    """A sink that holds all of them."""

    def __init__(self) -> None:
        self.written = dict[str, bytes | None]()

    def write(self, _target: str, items: Sequence[Item]) -> list[Answer]:
        self.written |= {item.key: item.document for item in items}
        return [WRITTEN for _ in items]


@pytest.fixture
def work_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A repair by who has seen this."""
    records = [record(key, by, lsn=800 + 8 * at) for at, (key, by) in enumerate(BY.items())]
    monkeypatch.setattr(log, "_pieces", lambda *_: [records])
    monkeypatch.setattr(work, "next_number", lambda _: 200)
    monkeypatch.setattr(repair, "reachable", lambda _work, held: held)

    def made(seen: Visible | None) -> Repair:
        holding = SimpleNamespace(view=VIEW, target=None, get=lambda keys: {key: Holds(800, b"") for key in keys})
        build = SimpleNamespace(pipeline=PIPELINE)
        flow = Flow("t", SPEC, Reading("", {}, None), tmp_path)
        return Repair(cast(Any, build), flow, cast(Any, holding), None, Refused("?"), seen)

    return made


@pytest.mark.parametrize(
    ("seen", "gone"),
    [(Visible(100, frozenset({8, 9})), {"1", "3"}), (Visible(100, frozenset()), {"1", "2", "3", "5"}), (None, set(BY))],
)
def test_a_living_row_that_nobody_sees_yet_keeps_its_document(
    monkeypatch: pytest.MonkeyPatch, work_on: Any, seen: Visible | None, gone: set[str]
) -> None:
    """It was deleted, and no change of it follows: "nobody knows the row"."""
    shelf, left = Shelf(), list[set[str]]()
    monkeypatch.setattr(Repair, "sink", shelf)
    repair._rows(work_on(seen), dict.fromkeys(BY, "extra"))
    assert shelf.written == dict.fromkeys(gone)
    monkeypatch.setattr(warehouse, "leaving", lambda _work, keys, _held: left.append(set(keys)) or [])
    warehouse.repair_rows(work_on(seen), dict.fromkeys(BY, "extra"))
    assert left == [gone]


def test_nothing_is_asked_of_the_sink_where_all_of_a_page_moves(monkeypatch: pytest.MonkeyPatch, work_on: Any) -> None:
    work, asked = work_on(Visible(100, frozenset({8}))), list[Any]()
    monkeypatch.setattr(Repair, "sink", Shelf())
    work.holding.get = lambda keys: asked.append(keys) or {}
    repair._rows(work, {"2": "extra", "4": "changed"})
    assert not asked


def test_a_repair_goes_by_what_was_seen_when_the_keys_were_called_different(
    monkeypatch: pytest.MonkeyPatch, work_on: Any, tmp_path: Path
) -> None:
    shelf, keys = Shelf(), Keys(tmp_path / "keys")
    for key in BY:
        keys.add(marked("extra", key))
    keys.flush()
    monkeypatch.setattr(Repair, "sink", shelf)
    monkeypatch.setattr(repair, "work_of", lambda *_: work_on(None))
    monkeypatch.setattr(repair, "refuse_paused", lambda *_: None)
    build: Any = SimpleNamespace(sink="s", warehouse=None, pipeline=PIPELINE)
    settler: Any = SimpleNamespace(view=VIEW, holding=None, seen=Visible(100, frozenset({8, 9})))
    repair.repair(build, cast(Any, None), settler, keys, cast(Any, None), caught_up=True)
    assert shelf.written == {"1": None, "3": None}


def test_the_transaction_of_the_newest_record_is_told_also_of_a_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        record("1", 5, lsn=800),
        record("1", 6, lsn=808),
        record("2", 7, lsn=816),
        record("2", 8, lsn=824, op="d"),
        Record(b'{"id":2}', None, TOPIC, 0, 832),
        record("3", None, lsn=840),
        record("4", 9, lsn=848),
        Record(b"no key", b"no event", TOPIC, 0, 856),
        record("1", 4, lsn=792),  # sent once more, after a crash of Connect
    ]
    monkeypatch.setattr(log, "_pieces", lambda *_: [records[:3], records[3:]])
    found = newest_transactions(PIPELINE, VIEW, ["1", "2", "3", "5", "007"])
    assert found == {"1": 6, "2": 8, "3": None}
    other = replace(VIEW, table=replace(TABLE, columns=(replace(TABLE.columns[0], base_type="uuid"), TABLE.columns[1])))
    assert newest_transactions(PIPELINE, other, ["1", "2", "3"]) == found, "keys that are not told by their bytes"


def test_postgres_is_asked_what_can_be_seen_where_a_view_is_the_rows_of_one_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Visible(100, frozenset({8}))
    monkeypatch.setattr(looks, "connect", lambda _: nullcontext())
    monkeypatch.setattr(looks, "read_visible", lambda *_: seen)
    holding: Any = SimpleNamespace(opened=SimpleNamespace(pipeline=PIPELINE))
    joined = JoinedView("t", TABLE, ("id",), (("id", "id"),), root=Node("t", "root", TABLE))
    assert [looks.visible_now(holding, view) for view in (VIEW, joined)] == [seen, None]
