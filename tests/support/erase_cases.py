"""A pipeline whose rows are to be erased, and its joined views."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from cdc.catalogue import Catalogue, Column, Table
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline
from cdc.view import View
from operations.erase.readers import Build
from operations.erase.subject import Subject
from operations.opened import Opened
from spark.disk.register import Registered
from spark.disk.state import Generation


def table(name: str, *columns: str, key: tuple[str, ...] = ("id",)) -> Table:
    kinds = {one: "int4" if one in ("id", "who", "line") else "text" for one in columns}
    made = tuple(Column(one, kind, kind) for one, kind in kinds.items())
    return Table("public", name, made, key)


PERSONS = table("persons", "id", "name")
LINES = table("lines", "id", "line", "who", key=("id", "line"))


def joined(person: tuple[tuple[str, str], ...], **more: Any) -> JoinedView:
    """Lines with the person who wrote each."""
    below = Node("who", "ref", PERSONS, (("who", "id"),), person, **more)
    root = Node("card", "root", LINES, (), (("id", "id"), ("line", "line")), (below,))
    return JoinedView("card", LINES, ("id", "line"), root.columns, root=root)


def pipeline(tmp_path: Path) -> Pipeline:
    raw = {
        "version": 1,
        "name": "p",
        "source": {"host": "h", "database": "d", "user": "u", "tables": ["public.persons"]},
        "kafka": {"bootstrap": "h:9092"},
        "connect": {"url": "http://h:8083"},
        "views": {"person": {"root": "persons"}},
        "sinks": {"cache": {"type": "redis", "url": "redis://h", "view": "person"}},
        "engine": {"state_dir": str(tmp_path)},
    }
    return Pipeline.model_validate(raw)


def subject(tmp_path: Path, key: str = "4711") -> Subject:
    return Subject(pipeline(tmp_path), cast(Catalogue, None), PERSONS, key, print)


def build(tmp_path: Path, view: View, stage: Any = "previous", number: int = 2) -> Build:
    made = pipeline(tmp_path)
    return Build(
        Registered(number, stage), Opened(made, Generation(tmp_path, "p", "cache", number), [view], 0), (view,)
    )
