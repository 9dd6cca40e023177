"""Which generation a rebuild fills: one that was begun is gone on with, if it can be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import Pipeline, loads
from operations.rebuild import Rebuild
from operations.state_folder import register_of
from spark.register import define

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
row_store: {url: "redis://127.0.0.1:1"}
views:
  order: {root: orders, columns: [COLUMNS]}
  card: {root: orders, aggregates: {n: {table: public.orders, on: {id: id}, value: count(*)}}}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", views: [order, card]}
engine: {state_dir: STATE}
"""


class Target:
    """What is left of a generation's targets."""

    def __init__(self, there: set[str]) -> None:
        self.seen = there

    def there(self, view: str) -> bool:
        """Whether the test has put it there."""
        return view in self.seen

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def retired(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    gone: list[int] = []

    def retire(pipeline: Pipeline, sink: str, number: int, _say: Any) -> None:
        gone.append(number)
        register_of(pipeline, sink).begin_retiring(number)
        register_of(pipeline, sink).remove(number)

    monkeypatch.setattr("operations.rebuild.retire", retire)
    yield gone


def pipeline(state: Path, columns: str = "id") -> Pipeline:
    return loads(TEXT.replace("STATE", str(state)).replace("COLUMNS", columns), "shop.yaml", {})


def entry(made: Pipeline) -> int:
    rebuild = Rebuild(made, Path("shop.yaml"), "cache", 1.0, threading.Event(), lambda _line: None)
    return rebuild._entry().number


def begun(made: Pipeline, *flows: str) -> None:
    """A rebuild that was cut when these flows had made their targets ready."""
    register = register_of(made, "cache")
    generation = register.generation(register.create("asked for").number)
    generation.folder.mkdir(parents=True)
    define(generation, made, ["public.orders"])
    generation.note_views(["order", "card"])
    for flow in flows:
        (generation.flow_folder(flow) / "checkpoint").mkdir(parents=True)
        (generation.flow_folder(flow) / "checkpoint" / "metadata").touch()


def test_one_that_never_came_to_write_is_gone_on_with_if_the_file_says_the_same(
    tmp_path: Path, retired: list[int]
) -> None:
    begun(pipeline(tmp_path))
    assert entry(pipeline(tmp_path)) == 2 and retired == []
    # Its views are noted: a promotion would look for all of them.
    assert entry(pipeline(tmp_path, "id, n")) == 3 and retired == [2]


@pytest.mark.parametrize(("there", "number"), [({"order"}, 2), (set[str](), 3)])
def test_a_flow_that_never_made_its_target_has_not_lost_it(
    tmp_path: Path, retired: list[int], monkeypatch: pytest.MonkeyPatch, there: set[str], number: int
) -> None:
    """The joined view waits for its row store while the plain one is filled for an hour."""
    monkeypatch.setattr("operations.rebuild.open_target", lambda _config: Target(there))
    begun(pipeline(tmp_path), "main")
    assert entry(pipeline(tmp_path)) == number
    assert retired == ([] if number == 2 else [2])
