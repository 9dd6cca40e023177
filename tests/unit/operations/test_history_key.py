"""A table that gets another key: its history begins anew beside what was, and no other's does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from cdc.catalogue import Column, Table
from cdc.errors import TopicRecreated
from cdc.history_names import former_name
from cdc.records.history import OFFSET, PARTITION
from cdc.shapes import Shape, Shapes
from operations.erase.tables import _history, history_name
from operations.run import history as run_history
from sinks.iceberg.history import CUT, KEY, TABLE, all_histories, holding, put_aside
from sinks.iceberg.remains import remains
from spark.disk.applied import FILE, applied_offsets
from spark.disk.checkpoint import committed_offsets, planned
from spark.disk.refused import refused

COLUMNS = (Column("id", "integer", "int4", ordinal=1), Column("uid", "text", "text", ordinal=2))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"))
    made.create_namespace("n")
    for name in "tu":
        properties = {KEY: json.dumps(["id"]), TABLE: f"public.{name}"}
        made.create_table(("n", f"{name}_history"), Schema(NestedField(1, "id", IntegerType())), properties=properties)
    yield made
    made.close()


class Bound:
    """A history of two tables in a folder, with a checkpoint."""

    def __init__(self, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.checkpoint = folder, folder / "log" / "checkpoint"
        self.ids, self.keys = {"public.t": "before", "public.u": "same"}, {"public.t": "id", "public.u": "id"}
        self.columns, self.oid = COLUMNS, 7
        monkeypatch.setattr(run_history, "topic_ids", lambda *_: dict(self.ids))
        monkeypatch.setattr(run_history, "open_catalog", lambda *_: nullcontext(catalog))
        monkeypatch.setattr(run_history, "source_catalogue", lambda *_: None)
        monkeypatch.setattr(run_history, "root_tables", lambda _p, catalogue, _s: self.tables(known=catalogue))
        monkeypatch.setattr(run_history, "known_shapes", lambda *_: self.shapes())
        assert self.bind() == []
        for number in (3, 4, 5):  # 5 was planned, and never committed
            self._write("offsets", number, 'v1\n{}\n{"public.t":{"0":9},"public.u":{"0":7}}')
        for number in (3, 4):
            self._write("commits", number, "v1\n{}")
        (folder / "log" / "begun.json").write_text(json.dumps({"topics": ["public.t", "public.u"]}))

    def _write(self, what: str, number: int, text: str) -> None:
        (self.checkpoint / what).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / what / str(number)).write_text(text)

    def tables(self, known: Any) -> dict[str, Table]:
        """As the database has them; who runs knew them before their keys became others."""
        keys = dict.fromkeys(self.keys, "id") if known is not None else self.keys
        return {name: Table("public", name[-1], self.columns, (key,)) for name, key in keys.items()}

    def shapes(self) -> Shapes:
        return Shapes({name: (Shape(table, oid=self.oid),) for name, table in self.tables(known=None).items()})

    def bind(self) -> list[str]:
        sink = SimpleNamespace(namespace="n")
        made: Any = SimpleNamespace(sinks={"w": sink}, topic=lambda table: table)
        place: Any = SimpleNamespace(system_identifier="1")
        return run_history._bound(made, place, "w", self.folder)


def test_a_topic_of_another_key_begins_anew_and_no_other_does(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All histories of the sink stood still for good once one table had got another key."""
    bound = Bound(tmp_path, catalog, monkeypatch)
    bound.ids["public.t"], bound.keys["public.t"] = "anew", "uid"
    (tmp_path / "log" / FILE).write_text('{"batch": 4, "offsets": {"public.t": {"0": 9}, "public.u": {"0": 7}}}')
    (line,) = bound.bind()
    assert "public.t has another key" in line and "n.t_history_by_id" in line
    assert applied_offsets(tmp_path / "log") == {"public.u": {0: 7}}, "cuts would not wait for the new topic"
    assert {name for _, name in catalog.list_tables("n")} == {"t_history_by_id", "u_history"}
    assert committed_offsets(bound.checkpoint) == (4, {"public.u": {0: 7}})
    assert planned(bound.checkpoint) == 4
    assert json.loads((tmp_path / "log" / "begun.json").read_text()) == {"topics": ["public.u"]}
    assert bound.bind() == []
    (former,) = all_histories(catalog, "n", "t", "public.t")
    assert former.name()[-1] == "t_history_by_id"
    assert all_histories(catalog, "n", "t", "other.t") == []
    assert all_histories(catalog, "not_made_yet", "t", "public.t") == []


def test_histories_of_a_table_are_its_own_and_one_that_goes_just_then_is_none(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all_histories(catalog, "n", "t", "other.t") == [], "of another schema's table of that name"
    assert put_aside(catalog, "n", "t") == "t_history_by_id"
    made = catalog.create_table(("n", "t_history"), Schema(), properties={TABLE: "public.t"})
    listed = [*catalog.list_tables("n"), ("n", "t_history_by_uid")]
    monkeypatch.setattr(catalog, "list_tables", lambda _: listed)
    found = [one.name()[-1] for one in all_histories(catalog, "n", "t", "public.t")]
    assert found == ["t_history", "t_history_by_id"]
    with made.transaction() as transaction:
        transaction.set_properties({f"{CUT}november": "{}"})
    named = holding(catalog, "n", "t", "public.t", "november")
    assert named is not None and named.name()[-1] == "t_history"
    assert holding(catalog, "n", "t", "public.t", "december") is None


def test_one_that_was_cut_in_between_is_taken_up(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Bound(tmp_path, catalog, monkeypatch)
    bound.ids["public.t"], bound.keys["public.t"] = "anew", "uid"
    with monkeypatch.context() as cut:
        cut.setattr(run_history, "_forget", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError):
            bound.bind()
    assert committed_offsets(bound.checkpoint)[1].keys() == {"public.t", "public.u"}
    (line,) = bound.bind()
    assert "begins anew" in line
    assert committed_offsets(bound.checkpoint)[1].keys() == {"public.u"}


def test_a_topic_of_the_same_key_that_was_made_anew_is_refused_and_status_knows(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log has lost of it is not known. `status` told what the flow had died of before, and `apply` for it."""
    bound = Bound(tmp_path, catalog, monkeypatch)
    bound.ids["public.u"] = "anew"
    with pytest.raises(TopicRecreated, match="was deleted and created again"):
        bound.bind()
    assert "topic public.u was deleted and created again" in str(refused(tmp_path))
    assert committed_offsets(bound.checkpoint)[1].keys() == {"public.t", "public.u"}
    bound.ids["public.u"] = "same"
    assert bound.bind() == [] and refused(tmp_path) is None


@pytest.mark.parametrize("moved", [Column("id", "uuid", "uuid", ordinal=1), Column("id", "integer", "int4", ordinal=7)])
def test_a_topic_of_a_key_of_another_type_or_column_begins_anew_though_it_has_the_same_name(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, moved: Column
) -> None:
    """It was taken for a topic that somebody had deleted, and all histories of the sink were refused."""
    bound = Bound(tmp_path, catalog, monkeypatch)
    bound.columns = (moved, COLUMNS[1])
    assert bound.bind() == []  # the topic is the former one as yet: its key stays what it was
    bound.ids["public.t"] = "anew"
    (line,) = bound.bind()
    assert "public.t has another key" in line and "n.t_history_by_id" in line
    bound.ids["public.t"] = "deleted by hand"
    catalog.create_table(("n", "t_history"), Schema(), properties={KEY: json.dumps(["id"]), TABLE: "public.t"})
    with pytest.raises(TopicRecreated):
        bound.bind()


def test_of_a_table_that_was_made_again_the_numbers_of_columns_tell_no_other_key(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic went on, for the key is the same one. A topic that was deleted later then passed for another key's,
    and nobody was told what its history lacks."""
    bound = Bound(tmp_path, catalog, monkeypatch)
    bound.columns, bound.oid = (replace(COLUMNS[0], ordinal=7), COLUMNS[1]), 8
    bound.ids["public.t"] = "deleted by hand"
    with pytest.raises(TopicRecreated, match="was deleted and created again"):
        bound.bind()
    bound.ids["public.t"] = "before"
    assert bound.bind() == []
    kept = json.loads((tmp_path / "identity.json").read_text())
    assert (kept["oids"]["public.t"], kept["keys"]["public.t"][0]["number"]) == (8, 7)
    bound.columns = (replace(COLUMNS[0], ordinal=9), COLUMNS[1])  # of the same table: another column was given the name
    bound.ids["public.t"] = "anew"
    (line,) = bound.bind()
    assert "public.t has another key" in line


def test_what_an_older_version_kept_of_a_key_is_compared_by_numbers_as_it_was(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, path = Bound(tmp_path, catalog, monkeypatch), tmp_path / "identity.json"
    kept = json.loads(path.read_text())
    del kept["oids"]
    path.write_text(json.dumps(kept))
    bound.columns, bound.ids["public.t"] = (replace(COLUMNS[0], ordinal=7), COLUMNS[1]), "anew"
    (line,) = bound.bind()
    assert "public.t has another key" in line
    assert json.loads(path.read_text())["oids"]["public.t"] == 7


def test_a_former_name_says_the_key_and_takes_nobodys() -> None:
    assert former_name("t", ["id"], ()) == "t_history_by_id"
    assert former_name("t", ["a b", "c"], {"t_history_by_a_b_c"}) == "t_history_by_a_b_c_2"


@pytest.mark.parametrize("shown", [True, False])
def test_an_erasure_looks_into_what_was_put_aside(catalog: Catalog, shown: bool) -> None:
    """By the present key's columns; where those are not, the file counts as one that can't be looked into."""
    table = catalog.load_table(("n", "t_history"))
    if shown:
        with table.update_schema() as change:
            change.add_column("uid", StringType())
            change.add_column(PARTITION, IntegerType())
            change.add_column(OFFSET, LongType())
    row = {"id": 1, "uid": "u1", PARTITION: 0, OFFSET: 7} if shown else {"id": 1}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    assert put_aside(catalog, "n", "t") == "t_history_by_id"
    subject: Any = SimpleNamespace(
        pipeline=SimpleNamespace(sinks={"w": SimpleNamespace(namespace="n")}),
        table=Table("public", "t", COLUMNS, ("uid",)),
        view=SimpleNamespace(key=("uid",)),
        key="u1",
        held_key="u1",
        key_in_history=lambda: "u1",
        say=lambda line: None,
    )
    (held,) = _history(subject, catalog, "w", "n")
    assert (held.name, history_name(held)) == ("n.t_history_by_id", "`hw_w`.`n`.`t_history_by_id`")
    assert (held.place.found, held.place.hidden) == ((1, 0) if shown else (0, 1))
    assert held.rows == ({0: [7]} if shown else {})


@pytest.mark.parametrize(("key", "hidden"), [("1|u1", 1), ("2|u1", 0)])
def test_what_was_put_aside_without_a_part_of_the_key_is_looked_into_by_the_others(
    catalog: Catalog, key: str, hidden: int
) -> None:
    """A part was added to the key: else each erasure of the table would have ended with "can't be looked into"."""
    table = catalog.load_table(("n", "t_history"))
    table.append(pa.Table.from_pylist([{"id": 1}], schema=table.schema().as_arrow()))
    there = remains(table, [((), ("id", "uid"))], key)
    assert (len(there.hidden), there.rows) == (hidden, {})
