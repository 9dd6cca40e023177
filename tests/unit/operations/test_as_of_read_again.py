"""A table that was captured later and is read again keeps the cuts that it had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from cdc.errors import BeforeHistory
from cdc.records.history import AFTER, OP, POSITION, READ, TIME
from operations.as_of import begun
from operations.as_of import cut as cuts
from operations.as_of.begun import NotBegun
from operations.as_of.seen import Frontier
from sinks.iceberg.history import BEGINS, CUT, SOURCE

SNAPSHOT, NOW = 100, 10_000
ROWS = pa.schema([(OP, pa.string()), (POSITION, pa.int64()), (AFTER, pa.int64()), (TIME, pa.timestamp("us", "UTC"))])


class Lake:
    """A sink with the history of one table, of which a cut can be asked.

    Args:
        catalog: that has it.
    """

    def __init__(self, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        catalog.create_namespace("n")
        self.catalog = catalog
        self.table = catalog.create_table("n.t_history", ROWS, properties={SOURCE: "1"})
        self.whole, self.unread, self.with_rows = dict[str, int](), set[str](), set[str]()
        for name, answer in {
            "source_catalogue": lambda _: SimpleNamespace(system_identifier=1),
            "root_tables": lambda *_: {"public.t": SimpleNamespace(name="t", qualified="public.t")},
            "read_snapshot_lsn": lambda _: SNAPSHOT,
            "history_folder": lambda *_: Path("nowhere"),
            "connect": lambda _: nullcontext(),
            "being_read": lambda *_: set(self.unread),
            "read_lost": lambda *_: [],
            "whole_since": lambda *_: dict(self.whole),
            "have_rows": lambda _, tables: self.with_rows & set(tables),
            "FrontierWatch": lambda *_, **__: None,
            "_frontier": lambda _p, _c, _w, asked, *_: (Frontier(NOW, NOW), self._place(asked)),
        }.items():
            monkeypatch.setattr(cuts, name, answer)

    @staticmethod
    def _place(asked: cuts.Asked) -> cuts._Place:
        return cuts._Place(asked.lsn, None if asked.at is None else int(asked.at * 1_000_000))

    def write(self, op: str, *afters: int) -> None:
        """Rows, each committed or read in the second of its place."""
        times = [datetime.fromtimestamp(after, UTC) for after in afters]
        columns = {OP: [op] * len(afters), POSITION: list(afters), AFTER: list(afters), TIME: times}
        self.table.append(pa.table(columns, schema=ROWS))

    def cut(self, lsn: int | None = None, **asked: Any) -> int:
        """Where a cut is."""
        pipeline: Any = SimpleNamespace(
            name="p",
            source=SimpleNamespace(schema_="headwater"),
            sinks={"lake": SimpleNamespace(namespace="n")},
            topic=lambda table: table,
        )
        return cuts.find_cut(pipeline, self.catalog, "lake", cuts.Asked(lsn, **asked), print).cut


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    monkeypatch.setattr(cuts, "Names", SimpleNamespace(of=lambda _: None))
    yield Lake(catalog, monkeypatch)
    catalog.close()


def test_a_table_that_is_read_again_keeps_its_cuts(lake: Lake) -> None:
    """A column with a default, a resnapshot or a mended gap took all of them away, and said that history began then."""
    lake.write(READ, 500, 600)
    lake.write("insert", 700)
    lake.write(READ, 5000, 5001)
    with pytest.raises(BeforeHistory, match="begins at 0/138A"):
        lake.cut(1000)
    lake.whole = {"public.t": 650}
    assert lake.cut(1000) == 1000 and lake.cut(601) == 601
    with pytest.raises(BeforeHistory, match="begins at 0/259"):
        lake.cut(600)
    assert lake.cut(at=1000.0) == NOW
    with pytest.raises(BeforeHistory, match="begins at 1970-01-01 00:10:00 UTC"):
        lake.cut(at=599.0)


def test_so_it_does_while_it_is_being_read_again(lake: Lake) -> None:
    lake.write(READ, 500, 600)
    lake.write(READ, 5000)
    lake.unread = {"public.t"}
    with pytest.raises(NotBegun):
        lake.cut(1000)
    lake.whole = {"public.t": 650}
    assert lake.cut(1000) == 1000


def test_what_was_read_whole_in_another_history_of_it_says_nothing(lake: Lake) -> None:
    """Of one that was begun anew, for another key, the rows are on their way; or it had been begun behind that."""
    lake.whole, lake.unread = {"public.t": 650}, {"public.t"}
    with pytest.raises(NotBegun):
        lake.cut(1000)
    lake.unread = set()
    lake.write(READ, 5000)
    with lake.table.transaction() as transaction:
        transaction.set_properties({BEGINS: "4000"})
    with pytest.raises(BeforeHistory, match="begins at 0/1389"):
        lake.cut(4500)


def test_a_table_that_had_no_row_when_it_was_read_keeps_its_cuts(lake: Lake) -> None:
    """Its rows came later: that they are read again made it one that begins there."""
    lake.write("insert", 700)
    lake.write(READ, 5000)
    lake.whole = {"public.t": 150}
    assert lake.cut(200) == 200
    with pytest.raises(BeforeHistory):
        lake.cut(SNAPSHOT - 1)
    with lake.table.transaction() as transaction:
        transaction.set_properties({BEGINS: "120"})
    lake.with_rows = {"public.t"}
    assert lake.cut(200) == 200, "it was read, and nothing is awaited"


def test_a_cut_that_has_a_name_is_read_whatever_was_read_again(lake: Lake) -> None:
    """It was right when it got its name, and where the first reading has ended nobody has noted then."""
    lake.write(READ, 500, 600)
    lake.write(READ, 5000)
    lake.unread = {"public.t"}
    with lake.table.transaction() as transaction:
        transaction.set_properties({CUT + "november": '{"cut": 1000}'})
    assert lake.cut(cut=1000, name="november") == 1000
    with pytest.raises((NotBegun, BeforeHistory)):
        lake.cut(cut=1000, name="december")


def test_of_which_tables_it_is_known_is_read_from_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"public.t": SimpleNamespace(read_through=650), "public.u": SimpleNamespace(read_through=None)}
    monkeypatch.setattr(begun, "read_captured", lambda *_: listed)
    monkeypatch.setattr(begun, "Names", SimpleNamespace(of=lambda _: None))
    nobody: Any = None
    assert begun.whole_since(nobody, nobody) == {"public.t": 650}
