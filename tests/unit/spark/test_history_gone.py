"""A history whose table somebody has dropped is not made again, empty, in its place."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import SinkRefused
from cdc.view import View
from sinks.iceberg.history import BEGINS, TABLE
from spark.disk.applied import FILE, applied_offsets
from spark.disk.checkpoint import committed_offsets
from spark.reading.spec import FlowSpec
from spark.warehouse.history import tables
from spark.warehouse.history.history import BEGUN, read_again, still_written
from spark.warehouse.history.tables import HistoryPlace


class Place(HistoryPlace):
    """Tables that are there by their names alone."""

    def there(self, spark: Any, view: View) -> bool:
        return view.table.name in spark.names

    def _tables(self, spark: Any) -> list[str]:
        return [f"{name}_history" for name in spark.names] + ["t_history_by_id"]


class Case:
    """A history of t and u, of which t is not there."""

    def __init__(self, folder: Path, *, new: bool = False) -> None:
        made = {name: Table("public", name, (Column("id", "int4", "int4"),), ("id",)) for name in "tu"}
        views = {table.qualified: View.identity(table, table.qualified) for table in made.values()}
        topics: dict[str, tuple[str, ...]] = {name: (f"public.{name}",) for name in made}
        self.flow: Any = SimpleNamespace(
            spec=FlowSpec("lake", views, topics, made, {}, {}),
            folder=folder,
            checkpoint=folder / "checkpoint",
            is_new=new,
        )
        for what, text in (("offsets", 'v1\n{}\n{"t":{"0":9},"u":{"0":7}}'), ("commits", "v1\n{}")):
            (folder / "checkpoint" / what).mkdir(parents=True)
            (folder / "checkpoint" / what / "4").write_text(text)
        (folder / FILE).write_text('{"batch": 4, "offsets": {"t": {"0": 9}, "u": {"0": 7}}}')
        self.begun = folder / BEGUN
        self.begun.write_text(json.dumps({"topics": ["t", "u"]}))

    def started(self, *kept: str) -> dict[str, dict[int, int]]:
        """From where the log is read on by a start, and is told to be applied."""
        spark: Any = SimpleNamespace(names={"u"})
        place, flow = Place("hw_lake", "n", "source", 1), self.flow
        spec = still_written(spark, flow, place, kept)
        read_again(spark, SimpleNamespace(**{**vars(flow), "spec": spec}), place)  # type: ignore[arg-type]
        assert applied_offsets(flow.folder) == committed_offsets(flow.checkpoint)[1]
        return applied_offsets(flow.folder)

    def written(self, *kept: str) -> set[str]:
        spark: Any = SimpleNamespace(names={"u"})
        spec = still_written(spark, self.flow, Place("hw_lake", "n", "source", 1), kept)
        assert len(spec.views) == len(spec.topics) == len(spec.tables)
        return set(spec.topics)


def test_a_table_that_is_gone_is_refused_and_what_to_do_is_told(tmp_path: Path) -> None:
    """Cuts said that there had been nothing, and nobody was told."""
    case = Case(tmp_path)
    with pytest.raises(SinkRefused, match=r"the history of public\.t is gone") as found:
        case.written("public.t", "public.u")
    assert "register_table('n.t_history'" in found.value.fix and "another namespace" in found.value.fix
    assert json.loads(case.begun.read_text()) == {"topics": ["t", "u"]}


def test_one_that_was_put_aside_is_made_anew(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.begun.write_text(json.dumps({"topics": ["u"]}))
    assert case.written("public.t", "public.u") == {"t", "u"}


def test_a_first_start_that_was_cut_begins_again(tmp_path: Path) -> None:
    assert Case(tmp_path, new=True).written("public.t", "public.u") == {"t", "u"}


def test_one_that_the_sink_keeps_no_more_may_be_dropped_and_stops_no_other(tmp_path: Path) -> None:
    """It is not made again either; captured once more, it begins anew."""
    case = Case(tmp_path)
    assert case.written("public.u") == {"u"}
    assert json.loads(case.begun.read_text()) == {"topics": ["u"]}
    assert case.written("public.u") == {"u"}
    assert case.written("public.t", "public.u") == {"t", "u"}


def test_one_that_was_dropped_and_is_kept_again_is_read_from_the_beginning(tmp_path: Path) -> None:
    """Its topic had been read on: the new history had the rows alone that changed from then on, and cuts showed no
    others. It was said to be applied to there, too."""
    case = Case(tmp_path)
    whole = {"t": {0: 9}, "u": {0: 7}}
    assert case.started("public.u") == whole
    assert case.started("public.t", "public.u") == {"u": {0: 7}}
    assert case.started("public.t", "public.u") == {"u": {0: 7}}, "done again after a kill"


def test_so_is_one_whose_key_had_got_another_type_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was put aside then is there for good: by it each later history of the table was taken for one that has just
    begun anew, whose topic is read on."""
    former = {BEGINS: "500", TABLE: "public.t"}
    monkeypatch.setattr(tables, "properties_of", lambda _spark, _name: former)
    case = Case(tmp_path)
    assert case.started("public.u") == {"t": {0: 9}, "u": {0: 7}}
    assert case.started("public.t", "public.u") == {"u": {0: 7}}


def test_it_begins_where_its_key_got_that_type_and_not_where_the_table_was_altered_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that had not changed since a column was added were left out of it, though the log has them."""
    former = {BEGINS: "500", TABLE: "public.t"}
    done = {"create_namespace": None, "follow": False, "rename_back": False, "loaded": None, "ids_there": {}}
    for name, answer in {"properties_of": former, **done}.items():
        monkeypatch.setattr(tables, name, lambda *_, said=answer: said)
    monkeypatch.setattr(HistoryPlace, "_show_versions", lambda *_: None)
    said: list[str] = []
    spark: Any = SimpleNamespace(names={"u"}, sql=said.append, catalog=SimpleNamespace(refreshTable=lambda _: None))
    place = Place("hw_lake", "n", "source", 1)
    table = Table("public", "t", (Column("id", "int4", "int4"),), ("id",), since=900)
    for new in (False, True):
        place.make(spark, View.identity(table, table.qualified), new=new)
    found = [f"'{BEGINS}'='500'" in text for text in said if text.startswith("CREATE TABLE")]
    assert found == [True, False] and "'900'" not in "".join(said)
