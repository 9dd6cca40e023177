"""All that is wrong with views is said at once; nothing of a refused generation is written; old texts are not quoted
with the new file's lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.gather import parts_of
from cdc.pipeline import Pipeline, loads
from cdc.resolve.views import resolve_views
from operations import gate
from operations import opened as opening
from operations.generations.outdated import needed
from operations.state.folder import register_of
from spark.disk.made_of import define

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders, public.customers, public.lines]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
row_store: {url: "redis://h"}
views:
  order: {root: orders, columns: [id, at]}
  spare: {root: customers, columns: [nme]}
  card:
    root: orders
    columns: [id, att, xx]
    key: [idd]
    refs: {customer: {table: customers, on: {customer_id: nr}, columns: [nam, name]}}
    children: {lines: {table: lines, on: {id: order_id}, order_by: "plce", columns: [whot]}}
    aggregates:
      total: {table: lines, on: {id: order_id}, value: "sum(prize)"}
      first: {table: lines, on: {place: order_id}, value: "min(at)"}
sinks:
  cache: {type: redis, url: "redis://r", view: card}
  search: {type: elasticsearch, url: "http://e:9200", view: order, mapping: {aat: {}, idd: {}}}
  all: {type: redis, url: "redis://r", tables: all, key_prefix: "all:"}
engine: {state_dir: STATE}
"""
WRONG = {
    "card": (
        *("no column att", "no column xx", "no column idd", "no column nr", "no column nam,", "no column plce"),
        *("no column whot", "no column prize", "public.orders has no column place", "public.lines has no column at"),
    ),
    "spare": ("no column nme",),
    "search": ("a field 'aat'", "a field 'idd'"),
}


def table(name: str, *columns: str) -> Table:
    return Table("public", name, tuple(Column(column, "text", "text") for column in columns), (columns[0],))


ORDERS = table("orders", "id", "at", "customer_id")
CATALOGUE = Catalogue(
    {
        found.qualified: found
        for found in (
            ORDERS,
            table("customers", "id", "name"),
            table("lines", "id", "order_id", "place", "what", "price"),
        )
    }
)


def load(state: Path, *edits: tuple[str, str]) -> Pipeline:
    text = TEXT.replace("STATE", str(state))
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return loads(text, "shop.yaml", {})


def quiet(line: str) -> None:
    raise AssertionError(f"no expression was asked for: {line}")


def test_everything_that_is_wrong_is_said_at_once_and_once(tmp_path: Path) -> None:
    found = [str(error) for error in gate.wrong_in_file(load(tmp_path), CATALOGUE, quiet)]
    for words in (words for of in WRONG.values() for words in of):
        near = [said for said in found if words.rstrip(",") in said]
        assert len(near) == 1, (words, found)
    assert len(found) == sum(len(of) for of in WRONG.values())
    heads = [said for said in found if "column" in said.split("\n")[0] or "table" in said.split("\n")[0]]
    assert heads and all(said.startswith("shop.yaml:") for said in heads)
    with pytest.raises(ConfigError) as caught:  # and by `run` as well: one view's troubles come in one error
        resolve_views(load(tmp_path), CATALOGUE, "cache")
    assert len(parts_of(caught.value)) == len(WRONG["card"])


def test_a_view_that_names_a_missing_table_is_the_only_one_told_of(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path, ("columns: [nme]", "columns: [name]"), ("mapping: {aat: {}, idd: {}}", "mapping: {at: {}}")
    )
    left = Catalogue({name: found for name, found in CATALOGUE.tables.items() if name != "public.customers"})
    found = [str(error).split("\n")[0] for error in gate.wrong_in_file(pipeline, left, quiet)]
    assert not [said for said in found if "search" in said or "order:" in said]
    assert [said for said in found if "views.card.refs.customer.table: customers is not a captured table" in said]
    assert [said for said in found if "there is no table public.customers" in said]  # `tables: all` would lack it


def test_what_was_accepted_is_remembered_when_apply_sets_the_replica_identity(tmp_path: Path) -> None:
    """Else Spark is started once more for each expression of a file that nobody has changed."""
    right = load(tmp_path, ("columns: [id, at]", "columns: [id]"))
    full = {name: replace(found, replica_identity="full") for name, found in CATALOGUE.tables.items()}
    asked = [
        gate._question(right, view, steady=True)
        for tables in (CATALOGUE, Catalogue(full))
        for view in resolve_views(right, tables, "search")
    ]
    assert len(asked) > 1 and len({*asked}) == len(asked) / 2


PLAIN = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders, public.lines]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views: {order: {root: orders}}
sinks: {cache: {type: redis, url: "redis://r", view: order}}
engine: {state_dir: STATE}
"""
STORE = 'row_store: {url: "redis://h"}\n'
JOINED = STORE + PLAIN.replace("root: orders", "root: orders, children: {lines: {table: lines, on: {id: order_id}}}")


def test_a_file_without_a_row_store_is_refused_while_a_generation_has_rows_in_it(tmp_path: Path) -> None:
    """`plan` told only of the rebuild; then nobody could run that generation, go back to it or remove its rows."""
    texts = (JOINED, STORE + PLAIN, PLAIN)
    joined, stored, without = (loads(text.replace("STATE", str(tmp_path)), "shop.yaml", {}) for text in texts)
    generation = register_of(joined, "cache").generation(1)
    define(generation, joined, [])
    assert gate.wrong_in_file(without, CATALOGUE, quiet) == []  # it has written nothing
    (generation.flow_folder("order") / "checkpoint").mkdir(parents=True)
    assert gate.wrong_in_file(stored, CATALOGUE, quiet) == []
    (said,) = map(str, gate.wrong_in_file(without, CATALOGUE, quiet))
    assert said.startswith("sink cache: generation 1 joins tables (order), and the file has no row_store")
    assert "`headwater retire shop.yaml cache --generation 1`" in said
    (generation.folder / "definition.json").write_text("{")
    assert gate.wrong_in_file(without, CATALOGUE, quiet) == []  # whoever opens it says so


# -- nothing is written before it is accepted -------------------------------------------------------------------------


def test_a_refused_generation_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = load(tmp_path)
    generation = register_of(wrong, "cache").generation(1)
    with pytest.raises(ConfigError, match="no column att"):
        opening.open_generation(wrong, CATALOGUE, "cache", 1)
    assert {path.name for path in generation.folder.iterdir()} == {"lease.json", "life", "lock"}
    # The corrected file is taken, and its definition is written when its expressions have been read, not before.
    monkeypatch.setattr(opening, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    right = load(tmp_path, ("columns: [id, at]", "columns: [id]"))
    build = opening.open_generation(right, CATALOGUE, "search", 1)
    try:
        folder = build.generation.folder
        assert {path.name for path in folder.iterdir()} == {"lease.json", "life", "lock"}
        opening.accept(build)
        assert json.loads((folder / "definition.json").read_text())["views"]["order"]["columns"] == ["id"]
        assert (folder / "identity.json").exists() and build.generation.views() == ["order"]
    finally:
        build.generation.unlock()


def test_a_definition_that_never_started_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that an earlier version has written, with its identity, before it looked at the views."""
    monkeypatch.setattr(opening, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    wrong, right = load(tmp_path, ("[id, at]", "[id, att2]")), load(tmp_path)
    generation = register_of(wrong, "search").generation(1)
    define(generation, wrong, [])
    flow = generation.flow_folder("main")
    flow.mkdir()
    (flow / "status.json").write_text(json.dumps({"state": "retrying", "batch_id": -1, "current_at": 0}))
    assert needed(right) == []  # no rebuild: there is nothing to rebuild
    build = opening.open_generation(right, CATALOGUE, "search", 1)
    opening.accept(build)
    build.generation.unlock()
    kept = json.loads((generation.folder / "definition.json").read_text())
    assert kept["views"]["order"]["columns"] == ["id", "at"]


@pytest.mark.parametrize("left", ["checkpoint", "fill.json", "phase.json", "batch"])
def test_a_definition_that_has_written_is_kept_and_quoted_as_such(tmp_path: Path, left: str) -> None:
    old, new = load(tmp_path, ("[id, at]", "[id, gone]")), load(tmp_path)
    generation = register_of(old, "search").generation(1)
    define(generation, old, [])
    flow = generation.flow_folder("main")
    flow.mkdir()
    if left == "batch":
        (flow / "status.json").write_text(json.dumps({"state": "failed", "batch_id": 0}))
    else:
        (flow / left).mkdir()
    with pytest.raises(ConfigError) as caught:
        opening.open_generation(new, CATALOGUE, "search", 1)
    said = "generation 1 of sink search, as it was defined, views.order.columns.1: public.orders has no column gone"
    assert str(caught.value).startswith(said)
    with pytest.raises(ConfigError, match=r"shop\.yaml:8:"):  # what is as in the file is quoted from the file
        opening.open_generation(old, CATALOGUE, "search", 1)
    assert [(sink, number) for sink, number, _ in gate.wrong_in_generations(new, CATALOGUE, quiet)] == [("search", 1)]
