"""A start that nobody answers fails soon: the runner waits for all of a round, and begins them again by itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import SinkUnavailable
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from operations.rowstore import GIVE_UP_SECONDS
from spark.flow import Flow, Reading
from spark.join.start import START_SECONDS, start_joined
from spark.reading.spec import FlowSpec

NOBODY = "redis://127.0.0.1:1/0"
CACHE = {"type": "redis", "name": "s", "targets": {"v": {"generation": 1}}, "url": NOBODY}
STORE = {"url": NOBODY, "namespace": "n:", "title": "t", "give_up_seconds": GIVE_UP_SECONDS}


def test_a_row_store_that_is_off_is_told_within_seconds(tmp_path: Path) -> None:
    table = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
    root = Node("v", "root", table, columns=(("id", "id"),))
    view = JoinedView("v", table, ("id",), root.columns, root=root)
    spec = FlowSpec("s", {"v": view}, {"t": ()}, {}, CACHE, {}, row_store=STORE)
    flow, no_spark = Flow("main", spec, Reading("", {}, None), tmp_path / "g1" / "main"), cast(Any, None)
    began = time.monotonic()
    with pytest.raises(SinkUnavailable, match="row store") as caught:
        start_joined(no_spark, flow)
    assert caught.value.transient and time.monotonic() - began < 3 * START_SECONDS < GIVE_UP_SECONDS
