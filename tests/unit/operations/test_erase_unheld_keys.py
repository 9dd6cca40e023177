"""Erasure of a row whose key has no place in a table's columns: null there, it was found nowhere, and "ERASED"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cdc.catalogue import Catalogue
from cdc.errors import TagsHold
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.records.history import OFFSET, PARTITION
from cdc.table_key import TableKey
from cdc.view import View
from operations.erase import subject, tables, warehouse
from operations.erase.subject import Subject
from operations.erase.tables import Held
from sinks.iceberg.history import TABLE
from sinks.iceberg.remains import Remains
from tests.support.erase_cases import PERSONS, build, pipeline
from tests.support.trees import table

TERMS = table("terms", "customer_id valid_to", customer_id="int4", valid_to="date", note="text")
KEY, OTHER, END = "17|infinity", "17|-infinity", date(2026, 1, 1)
OWN = View.identity(TERMS)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    found = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    found.create_namespace("shop")
    yield found
    found.close()


@pytest.fixture
def row(tmp_path: Path) -> Subject:
    return Subject(pipeline(tmp_path), cast(Catalogue, None), TERMS, KEY, print)


def kept(catalog: Catalog, name: str, rows: pa.Table) -> Table:
    made = catalog.create_table(("shop", name), rows.schema, properties={TABLE: "public.terms"})
    made.append(rows)
    return made


def events(*days: date | None) -> pa.Table:
    """A history's rows of customer 17, by until when; their offsets begin with 5."""
    columns: dict[str, Any] = {
        "customer_id": pa.array([17] * len(days), pa.int32()),
        "valid_to": pa.array(days, pa.date32()),
        "note": ["secret"] * len(days),
        PARTITION: pa.array([0] * len(days), pa.int32()),
        OFFSET: pa.array(range(5, 5 + len(days)), pa.int64()),
    }
    return pa.table(columns)


def looked(catalog: Catalog, row: Subject, *, sibling: bool = False) -> Held:
    """What the history is said to hold, where the source has another row that it can't tell from this one, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "snapshot", lambda _: nullcontext())
        patch.setattr(subject, "has_sibling", lambda _, view, key: (view.name, key) == ("terms", KEY) and sibling)
        [held] = tables._history(row, catalog, "lake", "shop")
    return held


def test_what_columns_hold_of_a_key() -> None:
    key = TableKey.of(OWN)
    assert [key.as_held(one) for one in (KEY, OTHER, "17|2026-01-01")] == ["17|null", "17|null", "17|2026-01-01"]
    assert TableKey([table("t", "k", k="numeric(8,2)").by_name["k"]]).as_held("NaN") == "null"


def test_a_historys_rows_without_a_key_are_the_rows(catalog: Catalog, row: Subject) -> None:
    """To the history they are one row with those of another such key that is gone."""
    kept(catalog, "terms_history", events(None, END, None))
    held = looked(catalog, row)
    assert (held.place.found, held.place.hidden, held.rows) == (2, 0, {0: [5, 7]})


def test_while_another_such_row_lives_nothing_is_deleted_and_it_is_said(catalog: Catalog, row: Subject) -> None:
    """It may be that one's, so it is not deleted; and not certified. No tag is asked for because of it."""
    made = kept(catalog, "terms_history", events(None, END))
    made.manage_snapshots().create_tag(made.current_snapshot().snapshot_id, "march").commit()  # type: ignore[union-attr]
    held = looked(catalog, row, sibling=True)
    assert (held.place.found, held.place.hidden, held.place.empty, held.rows) == (0, 1, False, {})
    assert "rows that may be this one (docs/erasure.md#" in held.place.words and "1 snapshots" in held.place.words
    warehouse.refuse_tags([held], move=False)
    with pytest.raises(TagsHold):
        warehouse.refuse_tags([looked(catalog, row)], move=False)


def test_a_row_whose_key_the_columns_hold_is_found_as_ever(catalog: Catalog, row: Subject) -> None:
    kept(catalog, "terms_history", events(None, END))
    other = Subject(row.pipeline, row.catalogue, TERMS, "17|2026-01-01", print)
    held = looked(catalog, other, sibling=True)
    assert (held.place.found, held.place.hidden, held.rows) == (1, 0, {0: [6]})


def current(catalog: Catalog, row: Subject, view: View, made: Table, folder: Path) -> Held:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables.iceberg, "load_table", lambda *_: made)
        [held] = tables._current(row, catalog, build(folder, view))
    return held


def test_a_row_that_an_earlier_version_has_put_in_without_a_key_is_not_passed_over(
    catalog: Catalog, row: Subject, tmp_path: Path
) -> None:
    made = kept(catalog, "terms", events(END))
    assert current(catalog, row, OWN, made, tmp_path).place.empty, "no row of today has such a key"
    made.append(events(None))
    assert current(catalog, row, OWN, made, tmp_path).place.hidden == 1


def test_where_other_rows_documents_show_it_files_that_are_deleted_in_count(
    catalog: Catalog, row: Subject, tmp_path: Path
) -> None:
    """By its key it is not told from one that lives: files that hold living rows alone are not its."""
    below = Node(
        "terms", "child", TERMS, (("id", "customer_id"),), (("customer_id", "customer_id"), ("valid_to", "valid_to"))
    )
    root = Node("card", "root", PERSONS, (), (("id", "id"),), children=(below,))
    view = JoinedView("card", PERSONS, ("id",), root.columns, root=root)
    term = pa.struct([("customer_id", pa.int32()), ("valid_to", pa.date32())])

    def document(*days: date | None) -> pa.Table:
        shown = [{"customer_id": 17, "valid_to": day} for day in days]
        return pa.table({"id": pa.array([17], pa.int32()), "terms": pa.array([shown], pa.list_(term))})

    made = kept(catalog, "card", document(None, None))
    assert current(catalog, row, view, made, tmp_path).place.empty, "of the two that were there both live"
    made.overwrite(document(None))
    assert current(catalog, row, view, made, tmp_path).place.hidden == 1


def test_files_that_may_hold_it_are_written_anew(row: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once somebody has deleted what was theirs by hand, nothing of it is to be in them."""
    anew = list[bool]()
    monkeypatch.setattr(warehouse, "forget_rows", lambda *_: None)
    monkeypatch.setattr(warehouse, "rewrite", lambda *_, files: anew.append(files) or "")
    warehouse._erase(row, [Held("lake", None, "", "n.past", Remains(unsure={"f"}))], cast(Any, None))
    assert anew == [True]
