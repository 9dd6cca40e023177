"""Names of cuts beside tags of somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cdc.errors import HistoryGap, SinkRefused, TagExists, UnknownName
from connectors.database.lost import Lost
from operations.as_of import naming, report
from operations.as_of.naming import drop_cut, list_cuts, name_cut, named_cut
from operations.as_of.report import as_of
from sinks.iceberg.history import SOURCE, TABLE, cuts_of, tag, untag


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"))
    catalog.create_namespace("n")
    rows = pa.table({"id": pa.array([1], pa.int32())})
    made = catalog.create_table(("n", "t_history"), rows.schema)
    made.append(rows)
    yield made
    catalog.close()


def cut_of(table: Table) -> Any:
    return SimpleNamespace(tables={"public.t": table}, cut=1, lsn="0/1", source="s")


def test_a_tag_that_is_no_cut_is_told_as_such_and_how_it_is_dropped(table: Table) -> None:
    """`as-of --drop` was advised, which knows nothing of it."""
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "march 1").commit()  # type: ignore[union-attr]
    with pytest.raises(TagExists, match=r"n\.t_history has a tag march 1 in Iceberg already, which is no cut") as found:
        name_cut(cut_of(table), "march 1")
    assert "ALTER TABLE n.t_history DROP TAG `march 1`" in found.value.fix and "--drop" not in found.value.fix
    assert cuts_of(table) == {}


def test_of_a_branch_nothing_is_advised_but_another_name(table: Table) -> None:
    with pytest.raises(TagExists, match="has a branch main in Iceberg") as found:
        name_cut(cut_of(table), "main")
    assert found.value.fix == "choose another name"


def test_a_cut_of_that_name_is_to_be_dropped_as_one(table: Table) -> None:
    name_cut(cut_of(table), "march")
    table.refresh()
    with pytest.raises(TagExists, match=r"there is a cut march already, on n\.t_history") as found:
        name_cut(cut_of(table), "march")
    assert "--drop NAME" in found.value.fix


# -- two at once -------------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("d", uri=f"sqlite:///{tmp_path}/d.db", warehouse=str(tmp_path / "v"))
    made.create_namespace("n")
    rows = pa.table({"id": pa.array([1], pa.int32())})
    for name in ("a", "b", "bare"):
        made.create_table(("n", name), rows.schema)
    for name in ("a", "b"):
        made.load_table(("n", name)).append(rows)
    yield made
    made.close()


def cut_over(catalog: SqlCatalog, number: int, *names: str) -> Any:
    tables = {name: catalog.load_table(("n", name)) for name in names}
    return SimpleNamespace(tables=tables, cut=number, lsn=f"0/{number}", source="s")


def cuts_on(catalog: SqlCatalog, name: str) -> tuple[Any, bool]:
    """Which cut a table says that the name is, and whether it has a tag of that name."""
    table = catalog.load_table(("n", name))
    return cuts_of(table).get("nightly", {}).get("cut"), "nightly" in table.refs()


def just_before(monkeypatch: pytest.MonkeyPatch, table: str, act: Callable[[], object]) -> None:
    """Somebody else does something between our look at a table and our commit to it."""
    waiting = [act]

    def tag_late(one: Table, name: str, said: Any) -> None:
        if one.name()[-1] == table and waiting:
            waiting.pop()()
        tag(one, name, said)

    monkeypatch.setattr(naming, "tag", tag_late)


@pytest.mark.parametrize("names", [("a", "b", "bare"), ("bare", "b", "a")])
def test_of_two_cuts_of_one_name_at_once_the_second_is_refused(
    catalog: SqlCatalog, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were told that the name is theirs, and the tables said the second one's, or some of each."""
    first, second = cut_over(catalog, 1, "a", "b", "bare"), cut_over(catalog, 2, *names)
    just_before(monkeypatch, "b" if names[0] == "bare" else "a", lambda: name_cut(first, "nightly"))
    with pytest.raises(TagExists, match=r"there is a cut nightly already, on n\."):
        name_cut(second, "nightly")
    assert [cuts_on(catalog, name) for name in ("a", "b", "bare")] == [(1, True), (1, True), (1, False)]


def test_who_is_refused_half_way_takes_back_its_own_names_alone(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cut of the same name, of other tables, was untagged with them."""
    first, second = cut_over(catalog, 1, "b"), cut_over(catalog, 2, "a", "b")
    just_before(monkeypatch, "b", lambda: name_cut(first, "nightly"))
    with pytest.raises(TagExists):
        name_cut(second, "nightly")
    assert cuts_on(catalog, "a") == (None, False)
    assert cuts_on(catalog, "b") == (1, True)


def test_a_tag_of_somebody_else_that_is_set_meanwhile_stays(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def theirs() -> None:
        table = catalog.load_table(("n", "a"))
        table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "nightly").commit()  # type: ignore[union-attr]

    just_before(monkeypatch, "a", theirs)
    with pytest.raises(TagExists, match="which is no cut"):
        name_cut(cut_over(catalog, 1, "a", "bare"), "nightly")
    assert cuts_on(catalog, "a") == (None, True) and cuts_on(catalog, "bare") == (None, False)


def test_a_name_on_an_empty_table_is_seen_although_no_catalogue_refuses_it(catalog: SqlCatalog) -> None:
    first, second = cut_over(catalog, 1, "bare"), cut_over(catalog, 2, "bare")
    name_cut(first, "nightly")  # the second has looked before
    with pytest.raises(TagExists, match=r"on n\.bare"):
        name_cut(second, "nightly")
    assert cuts_on(catalog, "bare") == (1, False)


def test_a_commit_of_a_writer_that_comes_between_is_no_reason_to_refuse(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": pa.array([2], pa.int32())})
    just_before(monkeypatch, "a", lambda: catalog.load_table(("n", "a")).append(rows))
    name_cut(cut_over(catalog, 1, "a"), "nightly")
    assert cuts_on(catalog, "a") == (1, True)


def test_a_name_whose_acknowledgement_is_lost_is_taken_back_too(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(one: Table, name: str, said: Any) -> None:
        tag(one, name, said)
        raise ConnectionError("no answer")

    monkeypatch.setattr(naming, "tag", lost)
    with pytest.raises(ConnectionError):
        name_cut(cut_over(catalog, 1, "a", "b"), "nightly")
    assert cuts_on(catalog, "a") == (None, False)


# -- of a sink ---------------------------------------------------------------------------------------------------------


class Sink:
    """A sink that keeps some tables now, in a namespace that has histories of others, too.

    Args:
        catalog: with namespace n.
        kept: the tables that it keeps.
    """

    def __init__(self, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, *kept: str) -> None:
        self.catalog = catalog
        self.kept: dict[str, Any] = {f"public.{name}": None for name in kept}
        self.pipeline: Any = SimpleNamespace(
            sinks={"lake": SimpleNamespace(namespace="n")}, topic=lambda table: f"shop.{table}"
        )
        monkeypatch.setattr(naming, "history_sink", lambda *_: "lake")
        monkeypatch.setattr(naming, "root_tables", lambda *_: self.kept)
        monkeypatch.setattr(naming, "source_catalogue", lambda *_: None)
        monkeypatch.setattr(naming, "topics_read", lambda *_: frozenset({"shop.public.a", "shop.public.b"}))
        monkeypatch.setattr(naming, "open_catalog", lambda *_: nullcontext(catalog))

    def make(self, name: str, *, rows: bool = True, end: str = "_history") -> Table:
        """The history of a table."""
        given = pa.table({"id": pa.array([1], pa.int32())})
        properties = {TABLE: f"public.{name}", SOURCE: "1"}
        made = self.catalog.create_table(("n", name + end), given.schema, properties=properties)
        if rows:
            made.append(given)
        return made

    def name(self, number: int, at: str, *tables: str) -> None:
        """Give a cut a name, as if its tables were those that the sink keeps."""
        found = {name: self.catalog.load_table(("n", f"{name}_history")) for name in tables}
        name_cut(cast(Any, SimpleNamespace(tables=found, cut=number, lsn=f"0/{number}", source="1")), at)

    def refs(self, table: str) -> set[str]:
        return set(self.catalog.load_table(("n", table)).refs())


@pytest.fixture
def sink(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(catalog, monkeypatch, "a", "b")


def test_a_tag_of_somebody_elses_stays_when_a_cut_of_its_name_is_dropped(sink: Sink) -> None:
    """An analyst's own tag on a table that the cut was not of went with it, and the files that it kept."""
    sink.make("a")
    theirs = sink.make("b")
    theirs.manage_snapshots().create_tag(theirs.current_snapshot().snapshot_id, "eom").commit()  # type: ignore[union-attr]
    sink.name(1, "eom", "a")
    drop_cut(sink.pipeline, None, "eom")
    assert sink.refs("a_history") == {"main"} and sink.refs("b_history") == {"main", "eom"}
    assert list_cuts(sink.pipeline, None) == []


def test_no_branch_goes_with_a_cut_that_is_called_like_one(sink: Sink) -> None:
    """Named while a history had no snapshot, `main` could be dropped, and with it all rows of every history."""
    empty = sink.make("a", rows=False)
    sink.make("b")
    sink.name(1, "main", "a")
    empty.refresh()
    empty.append(pa.table({"id": pa.array([1], pa.int32())}))
    drop_cut(sink.pipeline, None, "main")
    for name in ("a_history", "b_history"):
        assert sink.refs(name) == {"main"}
        assert sink.catalog.load_table(("n", name)).scan().to_arrow().num_rows == 1
    assert list_cuts(sink.pipeline, None) == []


@pytest.mark.parametrize("name", ["main", "headwater"])
def test_a_branchs_name_is_given_to_no_cut_and_nothing_is_waited_for(name: str) -> None:
    nothing: Any = None
    with pytest.raises(TagExists, match=f"no cut can be called {name}: so is") as found:
        as_of(nothing, None, nothing, name, print)
    assert found.value.fix == "choose another name"


def test_before_a_cut_is_named_all_tables_are_seen_whole(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused as lying in doubt, for half a minute at most, once a table was altered next."""
    sink.make("a")
    cut, seen = cut_over(sink.catalog, 7, "a_history"), list[set[str]]()
    cut.sink = "lake"
    monkeypatch.setattr(report, "with_cut", lambda *asked: asked[-1](cut))
    monkeypatch.setattr(report, "kept_keys", lambda _: {})
    monkeypatch.setattr(report, "told", lambda *_: {})
    monkeypatch.setattr(report, "look_once", lambda *_: seen.append(sink.refs("a_history")))
    monkeypatch.setattr(report, "connect", lambda _: nullcontext())
    monkeypatch.setattr(report, "Names", SimpleNamespace(of=lambda _: None))
    monkeypatch.setattr(sink.pipeline, "source", None, raising=False)
    monkeypatch.setattr(report, "read_lost", lambda *_: lost)
    lost: list[Lost] = []
    nothing: Any = None
    as_of(sink.pipeline, None, nothing, None, print)
    assert seen == [], "a cut without a name is asked for anew each time"
    as_of(sink.pipeline, None, nothing, "march", print)
    assert (seen, sink.refs("a_history")) == ([{"main"}], {"main", "march"})
    lost.append(Lost(-1, 0, None, None))  # the look has found a table that was altered just now
    with pytest.raises(HistoryGap):
        as_of(sink.pipeline, None, nothing, "april", print)
    assert sink.refs("a_history") == {"main", "march"}


def test_a_name_is_taken_back_of_a_table_that_the_sink_keeps_no_more(sink: Sink) -> None:
    """Its tag stayed, and its files with it for ever, and nothing showed it any more."""
    for name in ("a", "b"):
        sink.make(name)
    sink.make("b", end="_history_by_uid")
    sink.make("others")
    sink.name(1, "november", "a", "b", "others")
    del sink.kept["public.b"]
    drop_cut(sink.pipeline, None, "november")
    assert sink.refs("a_history") == sink.refs("b_history") == {"main"}
    assert sink.refs("others_history") == {"main", "november"}, "another pipeline's is its own"
    with pytest.raises(UnknownName, match="there is no cut november"):
        drop_cut(sink.pipeline, None, "november")


def test_a_cut_that_a_table_out_of_the_sink_alone_was_named_in_has_its_name(sink: Sink) -> None:
    sink.make("a")
    sink.make("b")
    sink.name(1, "november", "b")
    del sink.kept["public.b"]
    assert [one["cut"] for one in list_cuts(sink.pipeline, None)] == [1]
    with pytest.raises(TagExists, match="there is a cut november already"):
        naming.refuse_named(sink.pipeline, "lake", "november")


def test_of_two_cuts_of_one_name_neither_is_shown_for_both(sink: Sink) -> None:
    """Given twice while one table was out of the sink, whose first one was not seen: whichever table came first told
    where the cut is, and the others were shown there, too."""
    for name in ("a", "b"):
        sink.make(name)
    sink.name(1, "november", "b")
    sink.name(2, "november", "a")
    assert [(one["name"], one["cut"]) for one in list_cuts(sink.pipeline, None)] == [("november", 1), ("november", 2)]
    with pytest.raises(UnknownName, match=r"several cuts: 0/2 in public\.a, 0/1 in public\.b") as found:
        named_cut(sink.pipeline, None, "november")
    assert "--table" in found.value.fix and "--drop november" in found.value.fix
    assert named_cut(sink.pipeline, None, "november", ["public.b"])["cut"] == 1
    del sink.kept["public.b"]
    assert named_cut(sink.pipeline, None, "november")["cut"] == 2
    drop_cut(sink.pipeline, None, "november")
    assert list_cuts(sink.pipeline, None) == []


def test_a_cut_that_is_dropped_while_it_is_named_is_named_nowhere(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first table had lost the name and the second one got it afterwards, and whoever named it heard nothing."""
    sink.make("a")
    sink.make("b")
    just_before(monkeypatch, "b_history", lambda: drop_cut(sink.pipeline, None, "november"))
    with pytest.raises(SinkRefused, match="cut november was dropped while its tables got the name"):
        sink.name(1, "november", "a", "b")
    assert list_cuts(sink.pipeline, None) == []
    assert sink.refs("a_history") == sink.refs("b_history") == {"main"}


def test_a_cut_that_gets_its_name_while_it_is_dropped_is_dropped_whole(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at before its second table had the name, it kept that one."""
    sink.make("a")
    second = sink.make("b")
    sink.name(1, "november", "a")
    said = cuts_of(sink.catalog.load_table(("n", "a_history")))["november"]
    waiting = [lambda: tag(second, "november", said)]

    def untag_late(table: Table, name: str) -> None:
        while waiting:
            waiting.pop()()
        untag(table, name)

    monkeypatch.setattr(naming, "untag", untag_late)
    drop_cut(sink.pipeline, None, "november")
    assert list_cuts(sink.pipeline, None) == []
    assert sink.refs("b_history") == {"main"}


def test_a_cut_that_got_the_name_once_it_was_dropped_keeps_it(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.make("a")
    sink.make("b")
    sink.name(1, "november", "a", "b")

    waiting = [lambda: sink.name(2, "november", "a", "b")]

    def untag_then_named(table: Table, name: str) -> None:
        untag(table, name)
        if table.name()[-1] == "b_history" and waiting:
            waiting.pop()()

    monkeypatch.setattr(naming, "untag", untag_then_named)
    drop_cut(sink.pipeline, None, "november")
    assert [one["cut"] for one in list_cuts(sink.pipeline, None)] == [2]
