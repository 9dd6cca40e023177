"""From the pipeline file's views to resolved ones: names are checked against the source's catalogue. (LEAD's stopgap)"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from cdc.view import View


def resolve_views(pipeline: Pipeline, catalogue: Catalogue, sink: str) -> list[View]:
    spec = pipeline.sinks[sink]
    names = [spec.view] if spec.view else list(spec.views)
    if names:
        return [resolve_view(pipeline, catalogue, name) for name in names]
    tables = list(catalogue.tables.values())
    if spec.tables != "all" and spec.tables is not None:
        tables = [find_table(catalogue, name, f"sinks.{sink}.tables") for name in spec.tables]
    return [View.identity(table) for table in tables]


def find_table(catalogue: Catalogue, name: str, where: str) -> Table:
    found = [t for t in catalogue.tables.values() if name in (t.qualified, t.name)]
    if len(found) != 1:
        near = difflib.get_close_matches(
            name, [t.qualified for t in catalogue.tables.values()] + [t.name for t in catalogue.tables.values()]
        )
        raise ConfigError(
            f"{where}: no captured table {name}" if not found else f"{where}: {name} is ambiguous",
            fix=f"did you mean {' or '.join(near)}?" if near else "",
        )
    return found[0]


def _known(table: Table, names: Iterable[str], where: str) -> None:
    for name in names:
        if name not in table.by_name:
            near = difflib.get_close_matches(name, list(table.by_name))
            raise ConfigError(
                f"{where}: {table.qualified} has no column {name}",
                fix=f"did you mean {' or '.join(near)}?" if near else "",
            )


def resolve_view(pipeline: Pipeline, catalogue: Catalogue, name: str) -> View:
    model = pipeline.views[name]
    where = f"views.{name}"
    table = find_table(catalogue, model.root, where)
    columns: list[tuple[str, str]] = []
    for item in model.columns:
        columns += [(item, item)] if isinstance(item, str) else list(item.items())
    _known(table, [source for source, _ in columns], where)
    if not columns:
        columns = [(c.name, c.name) for c in table.columns]
    return View(name, table, tuple(model.key) or table.primary_key, tuple(columns), dict(model.fields), model.where)
