"""Histories that nobody writes any more hold a row as the others do: an erasure looks into them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from cdc.pipeline import IcebergSink, Pipeline
from cdc.records.history import OFFSET, PARTITION
from operations.erase import readers, tables
from operations.erase.subject import Subject
from operations.state.history import FORMER, IDENTITY, history_folder
from sinks.iceberg.history import TABLE
from tests.support.erase_cases import pipeline, subject

TOPIC = "p.public.persons"


class Warehouse:
    """A sink's catalogue with histories in some namespaces, each with one row.

    Attributes:
        subject: the row.
    """

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
        sink: dict[str, Any] = {
            "type": "iceberg",
            "catalog_uri": f"sqlite:///{folder}/c.db",
            "warehouse": f"{folder}/w",
        }
        sink |= {"views": ["person"], "namespace": "shop", "history": True, **more}
        raw = pipeline(folder).model_dump(by_alias=True, exclude_unset=True, mode="json") | {"sinks": {"lake": sink}}
        self.subject: Subject = replace(subject(folder), pipeline=Pipeline.model_validate(raw))

    def history(self, namespace: str, key: int = 4711) -> None:
        self.catalog.create_namespace(namespace)
        numbers = {PARTITION: pa.int32(), OFFSET: pa.int64()}
        rows = pa.table(
            {"id": pa.array([key], pa.int32()), "name": ["Ann"]}
            | {name: pa.array([0], kind) for name, kind in numbers.items()}
        )
        made = self.catalog.create_table(
            (namespace, "persons_history"), rows.schema, properties={TABLE: "public.persons"}
        )
        made.append(rows)

    def note(self, folder: str, namespace: str) -> None:
        path = history_folder(self.subject.pipeline, "lake") / folder / IDENTITY
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"namespace": namespace, "topic_ids": {TOPIC: "x"}, "system_identifier": "7"}))

    def found(self) -> dict[str, int]:
        return {one.name: one.place.found for one in tables.tables_of(self.subject, [])}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Warehouse]]:
    """Whose catalogue is opened."""
    there: list[Warehouse] = []

    @contextmanager
    def catalogue(_subject: Subject, _sink: str) -> Iterator[SqlCatalog]:
        yield there[0].catalog

    monkeypatch.setattr(tables, "opened", catalogue)
    monkeypatch.setattr(readers, "root_tables", lambda *_: {"public.persons": None})
    yield there
    for one in there:
        one.catalog.close()


def test_a_namespace_that_the_file_named_before_is_looked_into(tmp_path: Path, opened: list[Warehouse]) -> None:
    opened.append(there := Warehouse(tmp_path))
    there.history("shop")
    there.history("before")
    there.history("others")
    there.note("", "shop")
    assert there.found() == {"shop.persons_history": 1}
    there.note(f"{FORMER}/before", "before")
    assert there.found() == {"before.persons_history": 1, "shop.persons_history": 1}
    there.note("", "before")  # the file's is not taken up yet
    assert there.found() == {"before.persons_history": 1, "shop.persons_history": 1}


def test_a_history_that_is_not_kept_any_more_is_looked_into_and_waited_for_by_nobody(
    tmp_path: Path, opened: list[Warehouse]
) -> None:
    opened.append(there := Warehouse(tmp_path, history=False))
    there.history("shop")
    assert there.found() == {}, "it never kept one"
    there.note("", "shop")
    assert there.found() == {"shop.persons_history": 1}
    assert readers.behind(there.subject, [], {TOPIC: {0: 9}}) == []
    assert isinstance(there.subject.pipeline.sinks["lake"], IcebergSink)
