"""The tables' keys as the sinks were brought to them: what an older version has not remembered of a key is told by it.

``act`` compares with the same. If the watch of the captured tables knew another key, flows would be stopped for a table
of which `headwater apply` finds no gap.
"""

from __future__ import annotations

from cdc.pipeline import Pipeline
from cdc.same_key import key_parts
from connectors.captured.changed import KeptKey
from operations.state.evolution import read_evolution


def kept_keys(pipeline: Pipeline) -> dict[str, KeptKey]:
    """Table -> its oid and its key, as that sink knows them which is furthest behind.

    Raises:
        StateError: what is kept of a sink can't be read (terminal).
    """
    found: dict[str, KeptKey] = {}
    shapes = [one for sink in pipeline.sinks for one in read_evolution(pipeline, sink).acted.items()]
    for table, shape in sorted(shapes, key=lambda one: -one[1].since):
        found[table] = shape.oid, key_parts(shape.table)
    return found
