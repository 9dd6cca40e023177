"""Where a sink's history keeps its place in the log. Imports nothing heavy: `status` is asked often.

    <state_dir>/<pipeline>/<sink>/history/lease.json
                                         /identity.json
                                         /refused.json      (why nobody writes it)
                                         /log/checkpoint/   (Spark's)
                                         /log/status.json
                                         /log/claim.json    (the newest token with which it was claimed from here)
                                         /former/<namespace>/identity.json, log/    (of one that the file had before)

It lies beside the generations: none of them is made, promoted or removed with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError
from cdc.history_names import GAPS, VERSIONS
from cdc.history_names import HISTORY as NAME
from cdc.pipeline import IcebergSink, Pipeline
from cdc.resolve.names import letter_twins
from cdc.resolve.views import resolve_roots
from cdc.types import supported
from operations.state.folder import chosen_sinks, state_dir
from operations.state.frozen import with_gone
from spark.disk.lease import Lease

HISTORY, STREAM = "history", "log"
FRONTIERS, IDENTITY = "frontiers.json", "identity.json"
# Where the place in the log is kept of a namespace that the file names no more.
FORMER = "former"


def keeps_history(pipeline: Pipeline, sink: str) -> bool:
    """Whether a sink keeps history."""
    part = pipeline.sinks[sink]
    return isinstance(part, IcebergSink) and part.history


def history_sinks(pipeline: Pipeline, only: Sequence[str] = ()) -> list[str]:
    """Those of these sinks (none for all) that keep history."""
    return [name for name in chosen_sinks(pipeline, only) if keeps_history(pipeline, name)]


def history_sink(pipeline: Pipeline, sink: str | None) -> str:
    """The sink whose history is meant.

    Raises:
        ConfigError: it keeps none, or there are several and none was named (terminal).
    """
    if sink is not None:
        if not keeps_history(pipeline, chosen_sinks(pipeline, [sink])[0]):
            raise ConfigError(f"sink {sink} keeps no history", fix="say `history: true` of an Iceberg sink")
        return sink
    found = history_sinks(pipeline)
    if not found:
        raise ConfigError("no sink of this pipeline keeps history", fix="say `history: true` of an Iceberg sink")
    if len(found) > 1:
        raise ConfigError(f"several sinks keep history: {', '.join(found)}", fix="say which with --sink")
    return found[0]


def history_folder(pipeline: Pipeline, sink: str) -> Path:
    """The folder of a sink's history."""
    return state_dir(pipeline) / pipeline.name / sink / HISTORY


def history_lease(folder: Path, sink: str) -> Lease:
    """Who writes it."""
    return Lease(folder, f"history of sink {sink}")


def namespaces_left(pipeline: Pipeline, sink: str, topic: str) -> list[str]:
    """Namespaces in which a sink's history may hold what a topic had, although the file names them no more, or asks for
    no history any more: nobody writes there, and what was written stays.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        topic: of the table.
    """
    part, folder = pipeline.sinks[sink], history_folder(pipeline, sink)
    if not isinstance(part, IcebergSink):
        return []
    found = {path.parent.name for path in (folder / FORMER).glob(f"*/{IDENTITY}")}
    bound = _bound(folder)
    if topic in bound.get("topic_ids", {}):
        found.add(bound.get("namespace", part.namespace))  # another one than the file's, until `run` has taken that up
    return sorted(found - ({part.namespace} if part.history else set()))


def bound_here(pipeline: Pipeline, sink: str) -> bool:
    """Whether a sink's history in the namespace that the file names is of the database, and the topics, that were
    captured: of others it can't go on there."""
    part, folder = pipeline.sinks[sink], history_folder(pipeline, sink)
    if not isinstance(part, IcebergSink):
        return False
    bound = _bound(folder)  # an older version has noted no namespace
    here = bool(bound) and bound.get("namespace", part.namespace) == part.namespace
    return here or (folder / FORMER / part.namespace / IDENTITY).exists()


def topics_read(pipeline: Pipeline, sink: str) -> frozenset[str]:
    """The topics that a sink's history has begun to read, whether it still keeps their tables or not."""
    return frozenset(_bound(history_folder(pipeline, sink)).get("topic_ids", {}))


def topics_here(pipeline: Pipeline, sink: str) -> frozenset[str]:
    """The topics that a sink's history has begun to read in the namespace that the file names."""
    part, folder = pipeline.sinks[sink], history_folder(pipeline, sink)
    if not isinstance(part, IcebergSink):
        return frozenset()
    bound = _bound(folder)
    if bound.get("namespace", part.namespace) != part.namespace:
        bound = _bound(folder / FORMER / part.namespace)
    return frozenset(bound.get("topic_ids", {}))


def _bound(folder: Path) -> dict[str, Any]:
    """What a history is of; empty if nobody knows."""
    try:
        found = json.loads((folder / IDENTITY).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def root_tables(pipeline: Pipeline, catalogue: Catalogue, sink: str) -> dict[str, Table]:
    """The tables whose history a sink keeps: ``schema.table`` -> Table, of every table that a view is rooted in.

    Only roots are looked at: a joined view that names a column which is gone stops its flows until somebody corrects
    it, and a history that stood still with them would have a gap once the log is compacted.

    Raises:
        ConfigError: a root is not there or has no key, two of them are of one name, a view has the name that one's
            history is to have, or one has columns whose names differ only in letter case (terminal).
    """
    # One that is gone has its past: what the log has of it is written as before.
    whole = with_gone(pipeline, sink, catalogue)
    roots = resolve_roots(pipeline, whole, sink)
    tables = {table.qualified: whole.tables[table.qualified] for table in roots.values()}
    taken = {view: f"view {view}" for view in roots} | {GAPS: "the table of gaps"}
    for table in tables.values():
        for first, other in letter_twins(column.name for column in supported(table).columns):
            what = f"sink {sink}: {first} and {other} of {table.qualified} are one column to Spark"
            fix = "rename one of them in the source, or take `history` out of the sink: a history has all columns"
            raise pipeline.error_at(("sinks", sink, "history"), what, fix)
        for name in (table.name + NAME, table.name + VERSIONS):
            if name in taken:
                what = f"{taken[name]} has the name that the history of {table.qualified} needs ({name})"
                another = "keep one of the two in a sink of its own, with another `namespace`"
                fix = f"rename the view, or {another}" if name in roots else another
                raise pipeline.error_at(("sinks", sink, "history"), what, fix)
            taken[name] = f"the history of {table.qualified}"
    return tables
