"""Expressions are read before anything is captured: all that is wrong with them, each with its line; and only once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, loads
from cdc.resolve.views import resolve_view
from console.cli import apply, check, plan
from operations import gate
from tests.integration.test_connectors_console import run, written
from tests.support.source import SourceDatabase

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders, public.lines]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
row_store: {url: "redis://h"}
views:
  order:
    root: orders
    columns: [id, att]
    fields:
      shout: uper(at)
      right: upper(at)
      parse: "at +"
    where: id + 1
  card:
    root: orders
    children:
      lines:
        table: lines
        on: {id: order_id}
        aggregates: {}
    aggregates:
      sum: {table: lines, on: {id: order_id}, value: "sum(price * 2)", where: "wat > 1"}
      word: {table: lines, on: {id: order_id}, value: "sum(upper(what))"}
      good: {table: lines, on: {id: order_id}, value: "max(price + 1)"}
sinks:
  cache: {type: redis, url: "redis://r", views: [card, order]}
engine: {state_dir: STATE}
"""
WRONG = {12: "uper", 14: "at +", 15: "must be true or false", 24: "wat", 25: "has no sum", 10: "no column att"}


def column(name: str, kind: str) -> Column:
    return Column(name, kind, kind)


def table(name: str, *columns: Column) -> Table:
    return Table("public", name, columns, ("id",))


CATALOGUE = Catalogue(
    {
        "public.orders": table("orders", column("id", "int4"), column("at", "text")),
        "public.lines": table(
            "lines", column("id", "int4"), column("order_id", "int4"), column("what", "text"), column("price", "int4")
        ),
    }
)


def load(state: Path, *edits: tuple[str, str]) -> Pipeline:
    text = TEXT.replace("STATE", str(state))
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return loads(text, "shop.yaml", {})


def test_every_wrong_expression_is_told_with_its_line_and_a_right_one_is_remembered(tmp_path: Path) -> None:
    said: list[str] = []
    found = [str(error) for error in gate.wrong_in_file(load(tmp_path), CATALOGUE, said.append)]
    for line, words in WRONG.items():
        assert [one for one in found if one.startswith(f"shop.yaml:{line}:") and words in one], (line, found)
    assert len(found) == len(WRONG)
    assert said == ["starting Spark to read the expressions of card, order"]
    assert SparkSession.getActiveSession() is None  # it was ended: `apply` needs its memory for nothing
    right = load(
        tmp_path,
        ("att]", "at]"),
        ("uper(at)", "lower(at)"),
        ("at +", "at"),
        ("id + 1", "id > 1"),
        ("wat", "price"),
        ("sum(upper(what))", "max(upper(what))"),
    )
    for attempt in (1, 2):
        said.clear()
        assert gate.wrong_in_file(right, CATALOGUE, said.append) == []
        assert bool(said) == (attempt == 1)
    # Another type of a column is another question.
    other = Catalogue(
        {**CATALOGUE.tables, "public.orders": table("orders", column("id", "int4"), column("at", "bool"))}
    )
    questions = {gate._question(right, resolve_view(right, tables, "order"), True) for tables in (CATALOGUE, other)}
    assert len(questions) == 2


def test_what_a_running_generation_may_say_a_file_may_not(tmp_path: Path) -> None:
    """The answer for what runs already is remembered, and is none for the file: it was, from the second time on."""
    moving = load(
        tmp_path,
        ("att]", "at]"),
        ("uper(at)", "current_timestamp()"),
        ("at +", "at"),
        ("id + 1", "id > 1"),
        ("wat", "price"),
        ("sum(upper(what))", "max(upper(what))"),
    )
    placed = [(moving, resolve_view(moving, CATALOGUE, "order"))]
    for _ in range(2):
        [error] = gate.wrong_in_file(moving, CATALOGUE, print)
        assert "shout: current_timestamp()" in str(error)
        assert gate.wrong_expressions(moving, placed, print) == []


@pytest.mark.stack
def test_nothing_is_captured_for_a_file_that_run_would_refuse(source: SourceDatabase, tmp_path: Path) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, at text)", "CREATE TABLE u (id int PRIMARY KEY)")
    source.pipeline("public.t")  # so that it is dropped at the end
    file = Path(written(source, tmp_path, "public.t, public.u"))
    views = "views: {t: {root: public.t, columns: [idd, att]}, u: {root: public.u, columns: [nr]}}"
    file.write_text(file.read_text().replace("views: {t: {root: public.t}}", views).replace("view: t", "views: [t, u]"))
    told = run(check.command, str(file))
    assert told.exit_code == 1
    for verb in (plan.command, apply.command):
        with pytest.raises(ConfigError) as caught:
            run(verb, str(file))
        for name in ("idd", "att", "nr"):
            assert f"has no column {name}" in told.output
            assert f"has no column {name}" in str(caught.value)
    with source.connect() as connection:
        assert connection.execute("SELECT 1 FROM pg_publication").fetchall() == []
        # One table less is the trouble of those that name it.
        connection.execute("DROP TABLE u")
    told = run(check.command, str(file))
    assert "has no column att" in told.output and "public.u is not a captured table" in told.output
