"""The dbt example without dbt: its macro reads a cut as the product does, and its files fit the pipeline."""

from __future__ import annotations

import random
import re
import tomllib
from typing import Any

import duckdb
import jinja2
from ruamel.yaml import YAML

from cdc.pipeline import load
from cdc.records.history import as_of_sql
from tests.support.analysed import HERE
from tests.unit.project.test_docs import ROOT

PROJECT = HERE / "project"
COLUMNS = "id int, part int, a text, _hw_op text, _hw_position bigint, _hw_after bigint, _hw_offset bigint"


def macro(cut: int) -> str:
    """What ``as_of`` renders for a table of two key columns."""

    text = (PROJECT / "macros/cuts.sql").read_text()
    known = "{% macro cut_of(table, name) %}" + str(cut) + "{% endmacro %}"
    text = re.sub(r"\{% macro cut_of.*?endmacro %\}", known, text, flags=re.DOTALL)
    template = jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text)
    module: Any = template.make_module({"source": lambda _, name: name})
    return str(module.as_of("t", ["id", "part"], "monday"))


def test_a_cut_is_read_as_the_product_reads_it() -> None:
    rng = random.Random(3)
    words = ("read", "insert", "update", "delete")
    rows = [
        (rng.randint(1, 5), rng.randint(1, 3), str(n), rng.choice(words), rng.randint(1, 40), n, n) for n in range(200)
    ]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t_history ({COLUMNS})")
        connection.executemany("INSERT INTO t_history VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        for cut in (0, 1, 17, 90, 200):
            ours = connection.execute(as_of_sql(["id", "part", "a"], ["id", "part"], "t_history", cut)).fetchall()
            theirs = connection.execute(f"SELECT * FROM {macro(cut)}").fetchall()
            assert sorted(theirs) == sorted(ours)
            assert bool(ours) == (cut > 0)


def test_the_sources_are_what_the_pipeline_keeps() -> None:
    nowhere = {"HEADWATER_SOURCE_PASSWORD": "x", "HEADWATER_SETUP_PASSWORD": "x"}
    sink = load(HERE / "pipeline.yaml", nowhere).sinks["warehouse"]
    views = set(sink.view_names)
    [source] = YAML(typ="safe").load((PROJECT / "models/sources.yml").read_text())["sources"]
    named = {table["name"] for table in source["tables"]}
    assert named == views | {"orders_history", "order_lines_history", "_hw_cuts"}
    profile = YAML(typ="safe").load((PROJECT / "profiles.yml").read_text())["analytics"]["outputs"]["local"]
    [plugin] = profile["plugins"]
    assert "'hw_warehouse'" in plugin["config"]["catalog"] and "'analytics'" in plugin["config"]["namespace"]


def test_dbt_has_the_duckdb_that_we_test_and_nothing_of_it_is_ours() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["query"]
    locked = (HERE / "dbt.lock").read_text()
    assert all(f"{one} \\" in locked for one in ours)
    assert "dbt-" not in (ROOT / "requirements.lock").read_text()
