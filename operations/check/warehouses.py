"""``headwater check``, the warehouses: are their catalogues and the places of their files there, and let us in?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import ConfigError, HeadwaterError
from cdc.keyspaces import owner_of
from cdc.pipeline import Pipeline
from connectors.preflight import Answer, Check, Finding, Level
from operations.generations.targets import views_of_file
from operations.run.session import jars_of
from operations.state.folder import register_of
from sinks.iceberg import catalogue as iceberg
from spark.machine.jars import require_s3

WAREHOUSE = Check("warehouse", "catalogues and files of warehouses can be reached", lambda site: ())


def checked_warehouses(pipeline: Pipeline) -> Iterator[Answer]:
    """One answer for all warehouses of a pipeline; none if it has none. Changes nothing.

    Args:
        pipeline: the loaded file.
    """
    names = [name for name, sink in pipeline.sinks.items() if sink.form == "columns"]
    if names:
        yield Answer(WAREHOUSE, tuple(_findings(pipeline, names)))


def _findings(pipeline: Pipeline, names: list[str]) -> Iterator[Finding]:
    for name in names:
        sink = pipeline.sinks[name]
        try:
            iceberg.check(sink, iceberg.catalog_name(name))
            if iceberg.needs_s3(sink):
                require_s3(jars_of(pipeline))
            yield from _of_others(pipeline, name)
        except HeadwaterError as error:
            what = error.what if not isinstance(error, ConfigError) else f"sink {name}: {error.what}"
            yield Finding(Level.ERROR, name, what, error.fix)


def _of_others(pipeline: Pipeline, name: str) -> Iterator[Finding]:
    """Views whose table would be somebody else's: `run` would refuse them, and a promotion after a whole fill."""
    register = register_of(pipeline, name)
    views = {*views_of_file(pipeline, name), *register.generation(register.living()).views()}
    owner = owner_of(pipeline.name, name)
    others = iceberg.of_others(pipeline.sinks[name], iceberg.catalog_name(name), sorted(views), owner)
    for view, theirs in others.items():
        what = f"sink {name}, view {view}: its table's name is that of a table that {theirs} has made"
        fix = "give the sink a `namespace:` that nobody else uses, or rename the view"
        yield Finding(Level.ERROR, name, what, fix)
