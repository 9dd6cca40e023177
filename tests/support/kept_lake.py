"""The example of events in time, and a fold, in a cache and in a warehouse side by side."""

from __future__ import annotations

import warnings
from typing import Any

from ruamel.yaml import YAML

from cdc.pipeline import load
from sinks.iceberg import catalogue as iceberg
from tests.support.joined import Documents, Joined

FOLD = """
root: outbox
events: [order]
columns: [{aggregateid: order}]
fold:
  initial: >-
    named_struct('ordered', cast(null as timestamp), 'total', cast(null as decimal(10,2)), 'paid', 0,
    'seen', cast(map() as map<string, timestamp>))
  step: >-
    named_struct('ordered', coalesce(state.ordered, if(event.type = 'ordered', event.at, null)),
    'total', coalesce(state.total, cast(get_json_object(event.payload, '$.total') as decimal(10,2))),
    'paid', state.paid + if(event.type = 'paid', 1, 0),
    'seen', map_concat(map_filter(state.seen, (k, v) -> k <> event.type), map(event.type, event.at)))
"""
VIEWS = ("views_by_hour", "search", "unpaid", "order_state")


class KeptLake(Joined):
    """The pipeline."""

    def write_pipeline(self) -> None:
        yaml = YAML(typ="safe")
        document = yaml.load((self.folder_of(self.loaders[0]) / "pipeline.yaml").read_text(encoding="utf-8"))
        views = document["views"] | {"order_state": yaml.load(FOLD)}
        names, lake = [self.view(name) for name in VIEWS], self.folder / "warehouse"
        cache = document["sinks"]["cache"] | {"key_prefix": f"{self.name}:", "views": names}
        warehouse = {"catalog_uri": str(lake / "catalog.db"), "warehouse": str(lake), "namespace": self.name}
        # pyiceberg, which takes a row away in the test, writes tables of the second format.
        warehouse |= {"type": "iceberg", "trigger_seconds": 1, "format_version": 2, "views": names}
        document |= {
            "name": self.name,
            "views": {self.view(name): views[name] for name in VIEWS},
            "sinks": {"cache": cache, "warehouse": warehouse},
            "engine": {"state_dir": str(self.folder / "state")},
        }
        document["source"] |= {"database": self.name, "setup_user": self.owner}
        self.write_file(document)

    def lake(self) -> Any:
        """The warehouse's part of the pipeline file."""
        return load(self.file, self.environment()).sinks["warehouse"]

    def columns(self, view: str) -> dict[str, str]:
        """Column -> its type, in the table that readers see."""
        with iceberg.open_catalog(self.lake(), "hw_warehouse") as catalog:
            table = iceberg.load_table(catalog, self.lake(), self.view(view))
            return {field.name: str(field.field_type) for field in table.schema().fields}

    def take_away(self, view: str, key: str) -> None:
        """A row of a table goes, past us."""
        with iceberg.open_catalog(self.lake(), "hw_warehouse") as catalog, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Merge on read is not yet supported")
            warnings.filterwarnings("ignore", "Parquet writer option")  # of ours, which Spark knows
            iceberg.load_table(catalog, self.lake(), self.view(view)).delete(f"_hw_id = '{key}'")

    def rows(self, view: str) -> Documents:
        """id -> row, as readers get them."""
        found: Documents = {}
        for batch in iceberg.scan(self.lake(), "hw_warehouse", self.view(view)):
            for row in batch.to_pylist():
                assert row.pop("_hw_version") > 0
                key = row.pop("_hw_id") if "_hw_id" in row else row["order"]
                assert key not in found, f"{key} is there twice"
                found[key] = row
        return found
