"""What is looked at before a flow starts, whatever kind of flow it is."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import CheckpointLost
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.pipeline import loads
from cdc.resolve.views import resolve_views
from cdc.view import View
from operations.run import flows
from spark.disk.status import FlowStatus
from spark.flow import Flow, Reading, flow_name, flow_of
from spark.reading.spec import FlowSpec

TABLE = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
ROOT = Node("v", "root", TABLE, columns=(("id", "id"),))
FILE = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.t]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
row_store: {url: "redis://127.0.0.1:1"}
views:
  plain: {root: t}
  some: {root: t, where: id > 1}
  more: {root: t, fields: {n: id + 1}}
  joined: {root: t, aggregates: {n: {table: public.t, on: {id: id}, value: count(*)}}}
  t: {root: t, where: id > 1}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", views: [plain, some, more, joined]}
  whole: {type: redis, url: "redis://127.0.0.1:1", tables: all, key_prefix: "w:"}
  warehouse: {type: iceberg, catalog_uri: "sqlite:///STATE/c", warehouse: STATE/w, namespace: n, views: [plain, some]}
engine: {state_dir: STATE}
"""
JOINED = JoinedView("v", TABLE, ("id",), ROOT.columns, root=ROOT)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of flows that went through to their start; the log is as it should be."""
    monkeypatch.setattr(flows, "check_log", lambda _flow: None)
    return []


def start(folder: Path, view: View, started: list[str]) -> None:
    spec = FlowSpec("search", {"v": view}, {}, {}, {}, {})
    flow = Flow("v", spec, Reading("", cast(Any, {}), None), folder)
    flows._checked(lambda _spark, one: cast(Any, started.append(one.name)))(cast(Any, None), flow)


def write_cut_fill(folder: Path) -> None:
    """As kill -9 leaves it: the runner has written a status, the fill its place, and no query has begun."""
    places = {"begins": {"t": {"0": 0}}, "ends": {"t": {"0": 9}}, "rows": {}, "documents": {}}
    (folder / "fill.json").write_text(json.dumps({"server": "s", "attempt": "a", "root": "t", "once": True, **places}))
    (folder / "status.json").write_text("{}")


def test_a_fill_that_was_cut_goes_on(tmp_path: Path, started: list[str]) -> None:
    write_cut_fill(tmp_path)
    start(tmp_path, JOINED, started)
    assert started == ["v"]


@pytest.mark.parametrize("view", [JOINED, View.identity(TABLE)], ids=["joined", "plain"])
def test_a_live_flow_without_its_checkpoint_is_refused(tmp_path: Path, started: list[str], view: View) -> None:
    write_cut_fill(tmp_path)
    (tmp_path / "phase.json").write_text('{"phase": "live"}')
    with pytest.raises(CheckpointLost, match="is gone, but it has run before"):
        start(tmp_path, view, started)
    assert started == []


@pytest.mark.parametrize(
    ("state", "current_at", "refused"),
    [("retrying", 0.0, False), ("failed", 0.0, False), ("retrying", 9.0, True), ("running", 0.0, True)],
)
def test_a_flow_that_never_came_to_run_has_no_checkpoint_to_lose(
    tmp_path: Path, started: list[str], state: str, current_at: float, refused: bool
) -> None:
    """A first start that fails, because something is not installed say, is simply tried again."""
    status = FlowStatus("s/v", state, 1, -1, 0, 0, 0, 0, 0, 0, 0, 0, "no pandas", [], 9.0, current_at)
    status.write(tmp_path)
    with pytest.raises(CheckpointLost) if refused else nullcontext():
        start(tmp_path, View.identity(TABLE), started)
    assert started == ([] if refused else ["v"])


def test_a_view_s_flow_is_known_without_its_tables(tmp_path: Path) -> None:
    made = loads(FILE.replace("STATE", str(tmp_path)), "shop.yaml", {})
    for sink in made.sinks:
        for view in resolve_views(made, Catalogue({"public.t": TABLE}, "1", 1), sink):
            name = flow_name(view, separate=made.sinks[sink].form == "columns")
            assert flow_of(made, sink, view.name) == name, (sink, view.name)
