"""`headwater check` of warehouses: a table that another pipeline or tool has made, told before it is in the way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cdc.pipeline import Pipeline, load
from operations.check.warehouses import checked_warehouses
from operations.state.folder import register_of
from sinks.iceberg import catalogue
from sinks.iceberg.owners import GENERATION, MADE_BY

FILE = """
version: 1
name: shop
source: {{host: 127.0.0.1, port: 1, database: d, user: u, password: x, tables: [public.t, public.u]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
sinks: {{lake: {{type: iceberg, catalog_uri: {folder}/lake/c.db, warehouse: {folder}/w, namespace: n, tables: all}}}}
engine: {{state_dir: {folder}/state}}
"""


def made(folder: Path) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(FILE.format(folder=folder))
    return load(path)


def found(pipeline: Pipeline) -> list[str]:
    [answer] = checked_warehouses(pipeline)
    return [f"{one.level.value}: {one.message}" for one in answer.findings]


def test_tables_of_others_are_errors_and_ours_are_none(tmp_path: Path) -> None:
    pipeline = made(tmp_path)
    assert found(pipeline) == [] and not (tmp_path / "lake").exists(), "nothing is made by looking"
    schema = pa.schema([("id", pa.int64())])
    said = {
        "t": {GENERATION: "1", MADE_BY: "shop/lake/t"},
        "u": {GENERATION: "1", MADE_BY: "shop_test/lake/u"},
        "former": {},
    }
    with catalogue.open_catalog(pipeline.sinks["lake"], "hw_lake") as opened:
        opened.create_namespace("n")
        for name, properties in said.items():
            opened.create_table(("n", name), schema, properties=properties)
    theirs = "error: sink lake, view u: its table's name is that of a table that shop_test/lake/u has made"
    assert found(pipeline) == [theirs]
    # Of a whole schema only the state folder knows the views.
    register_of(pipeline, "lake").generation(1).note_views(["t", "former"])
    tool = "error: sink lake, view former: its table's name is that of a table that another tool has made"
    assert found(pipeline) == [tool, theirs]
