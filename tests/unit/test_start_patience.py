"""A start that nobody answers fails soon: the runner waits for all starts of a round, and begins them again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import SinkUnavailable
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from operations.run.flows import _with_setup
from spark.flow import Flow, Reading
from spark.join.start import start_joined
from spark.spec import START_SECONDS, FlowSpec

# What a file says by default (sinks) and what a row store is given: half a minute and a minute.
NOBODY, NO_SPARK = "127.0.0.1:1", cast(Any, None)
CACHE = {"type": "redis", "name": "s", "targets": {"v": {"generation": 1}}, "url": f"redis://{NOBODY}/0"}
TARGET = {"index": "v", "generation": 1, "properties": {}}
INDEX = {**CACHE, "type": "elasticsearch", "targets": {"v": TARGET}, "url": f"http://{NOBODY}", "give_up_seconds": 30.0}
STORE = {"url": f"redis://{NOBODY}/0", "namespace": "n:", "title": "t", "give_up_seconds": 60.0}


def never(*_: object) -> Any:
    raise AssertionError("started without its server")


def joined(folder: Path) -> Any:
    table = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
    root = Node("v", "root", table, columns=(("id", "id"),))
    view = JoinedView("v", table, ("id",), root.columns, root=root)
    flow = flow_of(folder, CACHE)
    return start_joined(NO_SPARK, replace(flow, spec=replace(flow.spec, views={"v": view})))


def spec_of(sink: dict[str, Any]) -> FlowSpec:
    return FlowSpec("s", {}, {"t": ()}, {}, sink, {}, row_store=STORE)


def flow_of(folder: Path, sink: dict[str, Any]) -> Flow:
    return Flow("main", spec_of(sink), Reading("", {}, None), folder / "g1" / "main")


@pytest.mark.parametrize(
    ("start", "who"),
    [
        pytest.param(joined, "row store", id="a joined view without its row store"),
        pytest.param(
            lambda folder: _with_setup(never)(NO_SPARK, flow_of(folder, INDEX)),
            "sink 's'",
            id="a view without its index",
        ),
    ],
)
def test_a_server_that_is_off_is_told_within_seconds(tmp_path: Path, start: Callable[[Path], Any], who: str) -> None:
    began = time.monotonic()
    with pytest.raises(SinkUnavailable, match=who) as caught:
        start(tmp_path)
    assert caught.value.transient and time.monotonic() - began < 3 * START_SECONDS


def test_less_patience_is_kept_and_the_flow_itself_keeps_its_own() -> None:
    spec = spec_of({**CACHE, "give_up_seconds": 1.0})
    assert spec.at_start.sink_config["give_up_seconds"] == 1.0
    assert spec.at_start.row_store == {**STORE, "give_up_seconds": START_SECONDS}
    assert spec.row_store == STORE and replace(spec, row_store=None).at_start.row_store is None
