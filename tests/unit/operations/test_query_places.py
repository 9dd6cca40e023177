"""A query reads the tables that readers see, wherever the file wants the next ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from cdc.pipeline import Pipeline, loads
from operations.query.tables import Name, held
from operations.state.folder import register_of
from sinks.iceberg.owners import GENERATION
from spark.disk.made_of import define
from tests.support.promoted import promoted

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views: {orders: {root: orders}}
sinks:
  lake:
    {type: iceberg, views: [orders], namespace: SPACE, catalog_uri: "sqlite:///HERE/c.db", warehouse: "HERE/w"}
engine: {state_dir: HERE}
"""


def load(folder: Path, namespace: str) -> Pipeline:
    return loads(TEXT.replace("HERE", str(folder)).replace("SPACE", namespace), "shop.yaml", {})


def table(folder: Path, namespace: str, generation: int) -> None:
    catalog = SqlCatalog("hw_lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    catalog.create_namespace(namespace)
    rows = pa.table({"id": pa.array([1], pa.int32())})
    made = catalog.create_table((namespace, "orders"), rows.schema, properties={GENERATION: str(generation)})
    made.append(rows)
    catalog.close()


def seen(pipeline: Pipeline) -> list[tuple[int | None, bool]]:
    found = held(pipeline, [Name("lake", "orders")])
    return [(one.generation, "/before" in one.metadata) for one in found]


def test_another_namespace_in_the_file_leads_no_query_away_from_what_readers_see(tmp_path: Path) -> None:
    before, after = load(tmp_path, "before"), load(tmp_path, "after")
    table(tmp_path, "before", 1)
    register = register_of(before, "lake")
    define(register.generation(1), before, [])
    assert seen(before) == seen(after) == [(1, True)], "until the promotion the next one's tables are not there"
    table(tmp_path, "after", 2)
    number = register.create("another namespace").number
    define(register.generation(number), after, [])
    assert seen(after) == [(1, True)]
    promoted(register, number)
    assert seen(after) == seen(before) == [(2, False)]
    promoted(register, 1)
    assert seen(after) == [(1, True)], "and so after a rollback"
