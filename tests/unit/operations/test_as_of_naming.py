"""Names of cuts beside tags of somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cdc.errors import TagExists
from operations.as_of import naming
from operations.as_of.naming import name_cut
from sinks.iceberg.history import tag, tags


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
    assert tags([table]) == {}


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
    return tags([table]).get("nightly", {}).get("cut"), "nightly" in table.refs()


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
