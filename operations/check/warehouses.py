"""``headwater check``, the warehouses: are their catalogues and the places of their files there, and let us in?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import ConfigError, HeadwaterError
from cdc.pipeline import Pipeline
from connectors.preflight import Answer, Check, Finding, Level
from operations.run.session import jars_of
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
        except HeadwaterError as error:
            what = error.what if not isinstance(error, ConfigError) else f"sink {name}: {error.what}"
            yield Finding(Level.ERROR, name, what, error.fix)
