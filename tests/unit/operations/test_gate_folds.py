"""`mapping:` of a search sink beside a fold: Spark says what the fold shows, and `check` asks it once."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, loads
from cdc.view import View
from operations import gate
from operations.run import flows

TEXT = """\
version: 1
name: shop
source:
  {database: shop, user: u, tables: [public.outbox], outbox: {table: public.outbox, types: [order]}}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views:
  orders: {root: outbox, events: [order], fold: {initial: "named_struct('total', 0)", step: "state"}}
sinks:
  search: {type: elasticsearch, url: "http://e:9200", view: orders, mapping: {FIELD: {type: keyword}}}
engine: {state_dir: STATE}
"""
COLUMNS = ("aggregatetype", "aggregateid", "type", "payload")
OUTBOX = Table(
    "public",
    "outbox",
    (Column("id", "uuid", "uuid", nullable=False), *(Column(name, "text", "text") for name in COLUMNS)),
    ("id",),
)
CATALOGUE = Catalogue({OUTBOX.qualified: OUTBOX})


def load(state: Path, field: str) -> Pipeline:
    return loads(TEXT.replace("STATE", str(state)).replace("FIELD", field), "shop.yaml", {})


def test_a_field_that_no_fold_shows_is_refused_before_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def analysed(_spark: Any, _pipeline: Pipeline, view: View) -> tuple[View, Any]:
        asked.append(view.name)
        return replace(view, state={"total": "int"}), {}  # type: ignore[call-arg]

    monkeypatch.setattr(gate, "analyser", lambda _: nullcontext())
    monkeypatch.setattr(flows, "refuse_moving", analysed)
    for field, wrong in (("totla", True), ("total", False), ("aggregateid", False), ("totla", True)):
        found = gate.wrong_in_file(load(tmp_path, field), CATALOGUE, lambda _: None)
        assert ["did you mean 'total'?" in one.fix for one in found] == ([True] if wrong else [])
    assert asked == ["orders"], "Spark takes ten seconds"
    path = tmp_path / "shop" / "expressions.json"
    path.write_text(json.dumps(list(json.loads(path.read_text()))))  # as an older Headwater leaves it
    assert len(gate.wrong_in_file(load(tmp_path, "totla"), CATALOGUE, lambda _: None)) == 1
    assert asked == ["orders"] * 2


def test_where_spark_can_not_be_asked_any_name_is_taken(tmp_path: Path) -> None:
    """Who only applies needs no Java; `run` refuses it."""
    said = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "analyser", lambda _: (_ for _ in ()).throw(ConfigError("no Java")))
        assert gate.wrong_in_file(load(tmp_path, "totla"), CATALOGUE, said.append) == []
    assert said[-1] == "warning: the expressions were not read: no Java"
