"""What a repair of a warehouse's table takes along, and what it leaves because it has gone by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from cdc.errors import Fenced, HeadwaterError, SinkUnavailable
from cdc.view import View
from operations.holding import Holds
from operations.verify.repair import warehouse
from operations.verify.repair.work import Refused, Repair
from sinks.iceberg.rows import VERSION_COLUMN
from sinks.iceberg.target import IcebergTarget
from tests.support.trees import table

VIEW = View.identity(table("t", "id", id="text", v="text"))


class Rows(IcebergTarget):
    """A table whose rows have these keys when they are read again."""

    def __init__(self, *there: str | None) -> None:
        self.rows, self.asked = there, list[Sequence[str]]()

    def batches(self, target: str, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """One with all of them, as Iceberg's reader may give more than it was asked for."""
        self.asked.append(keys)
        if self.rows:
            columns = {"id": pa.array(self.rows, pa.string()), "v": ["x"] * len(self.rows)}
            yield pa.RecordBatch.from_pydict(columns | {VERSION_COLUMN: pa.array([8] * len(self.rows), pa.int64())})


class Frame:
    """Spark's part: what it was given."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def select(self, *_: Any) -> Frame:
        """Of a row that leaves nothing else is asked."""
        return self


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[list[Frame]]:
    """The parts of each commit."""
    commits: list[list[Frame]] = []
    lit = SimpleNamespace(alias=lambda _name: None)
    monkeypatch.setattr(warehouse, "F", SimpleNamespace(lit=lambda _value: lit))
    monkeypatch.setattr(warehouse, "merge", lambda _work, parts: commits.append(parts))
    return commits


def extra_ones_leave(target: IcebergTarget, seen: Sequence[str], *extra: str) -> None:
    held = {key: Holds(8, b"") for key in seen}
    holding = SimpleNamespace(target=target, get=lambda _keys: held)
    work = SimpleNamespace(
        view=VIEW, holding=holding, refused=Refused("?"), spark=SimpleNamespace(createDataFrame=Frame)
    )
    warehouse.repair_rows(cast(Repair, work), dict.fromkeys(extra, "extra"), {})


def test_an_extra_row_that_has_gone_before_it_is_seen_is_left_out(merged: list[list[Frame]]) -> None:
    extra_ones_leave(Rows(), [], "1")
    assert merged == []
    extra_ones_leave(Rows("1", "2"), ["1"], "1", "2")  # the second came back since
    assert [part.rows.column("id").to_pylist() for parts in merged for part in parts] == [["1"]]


@pytest.mark.parametrize("there", [(), ("5",)], ids=["no files", "others in its files"])
def test_an_extra_row_that_goes_once_it_was_seen_is_left_out(there: tuple[str, ...], merged: list[list[Frame]]) -> None:
    extra_ones_leave(Rows(*there), ["1"], "1")
    assert merged == []


def test_extra_rows_leave_once_for_each_key_and_no_key_is_another_than_its_text(merged: list[list[Frame]]) -> None:
    extra_ones_leave(Rows("1", "1", "2", "3", "null", None, None), ["1", "2", "null"], "1", "2", "null")
    assert [part.rows.column("id").to_pylist() for parts in merged for part in parts] == [["1", "2", "null", None]]


# -- the commit --------------------------------------------------------------------------------------------------------


class Session:
    """Spark's session beside a promotion: of which generation the table is each time that somebody looks."""

    def __init__(self, *generations: int, fenced: HeadwaterError | None = None) -> None:
        self.generations, self.fenced, self.said = [*generations], fenced, list[str]()

    # -- as Spark

    def sql(self, text: str) -> Any:
        self.said.append(text.split(maxsplit=1)[0])
        found = [{"value": str(self.generations.pop(0))}] if text.startswith("SHOW TBLPROPERTIES") else []
        return SimpleNamespace(where=lambda _: SimpleNamespace(collect=lambda: found))

    def table(self, _name: str) -> Any:
        return SimpleNamespace(schema=[SimpleNamespace(name=name) for name in ("id", "v", VERSION_COLUMN)])

    # -- as the table's place

    def find(self) -> str:
        return "`c`.`n`.`t`"

    def check(self, *_: Any) -> None:
        if self.fenced is not None:
            raise self.fenced


def commit(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse, "F", SimpleNamespace(col=lambda name: name))
    monkeypatch.setattr(warehouse, "TablePlace", lambda *_: session)
    monkeypatch.setattr(warehouse, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(warehouse, "table_columns", lambda *_: [("id", "bigint"), ("v", "string")])
    build = SimpleNamespace(
        pipeline=SimpleNamespace(sinks={"lake": None}),
        sink="lake",
        generation=SimpleNamespace(number=1),
        token=4,
        owner="p/lake",
    )
    rows = SimpleNamespace(persist=lambda: rows, unpersist=lambda: None, createOrReplaceTempView=lambda _: None)
    warehouse.merge(cast(Repair, SimpleNamespace(build=build, spark=session, view=VIEW)), [cast(Any, rows)])


def test_a_repair_writes_nothing_into_a_table_that_was_promoted_into_the_names_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(2, 1)
    commit(session, monkeypatch)
    assert session.said == ["SHOW", "SHOW", "MERGE"]
    never = Session(*[2] * warehouse.ATTEMPTS)
    with pytest.raises(SinkUnavailable, match="committed or promoted too often"):
        commit(never, monkeypatch)
    assert set(never.said) == {"SHOW"}


def test_a_repair_writes_nothing_into_a_table_that_another_process_has_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(1, fenced=Fenced("table t was claimed by another process"))
    with pytest.raises(Fenced):
        commit(session, monkeypatch)
    assert session.said == []
