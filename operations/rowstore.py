"""Where one view's rows are kept, as plain data for the workers."""

from __future__ import annotations

from typing import Any

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from sinks.awake import AWAY_SECONDS
from sinks.rowstore.key_names import namespace
from spark.disk.state import Generation
from spark.machine.cluster import is_local

# A batch that the row store does not take for so long fails, so that `status` shows why; its flow starts again.
GIVE_UP_SECONDS = 60.0


def away_seconds(pipeline: Pipeline) -> float:
    """How long a worker may be away: for ever where all of them live and die with this process."""
    return 0.0 if is_local(pipeline.engine.master) else AWAY_SECONDS


def row_store_settings(pipeline: Pipeline, generation: Generation, view: str) -> dict[str, Any]:
    """``sinks.rowstore.settings.StoreSettings`` of one view's rows as plain data; holds secrets.

    Raises:
        ConfigError: the file has no ``row_store``.
    """
    if pipeline.row_store is None:
        raise ConfigError(f"view {view} joins tables, and the file has no row_store", fix="add `row_store: {url: …}`")
    return reading_settings(pipeline) | {
        "namespace": namespace(pipeline.name, generation.sink, view, generation.number),
        "title": f"{pipeline.name}/{generation.sink}/{view}/g{generation.number}",
        "fade_seconds": int(pipeline.kafka.tombstone_retention_hours * 3600),
        "give_up_seconds": GIVE_UP_SECONDS,
        "away_seconds": away_seconds(pipeline),
    }


def refuse_no_store(pipeline: Pipeline, generation: Generation) -> None:
    """Refuse a file without a row store in which a generation has rows.

    Args:
        pipeline: as the generation was defined.
        generation: whose rows they are; one that has written nothing has none.

    Raises:
        ConfigError: it has joined views, and the file has no ``row_store``.
    """
    sink, number = generation.sink, generation.number
    joined = [name for name in pipeline.sinks[sink].view_names if pipeline.views[name].joins]
    if joined and pipeline.row_store is None and generation.started:
        file = pipeline.file or "FILE"
        raise ConfigError(
            f"sink {sink}: generation {number} joins tables ({', '.join(joined)}), and the file has no row_store",
            means="it could not be run, nor gone back to, and its rows could not be removed; nothing was changed",
            fix="leave row_store in the file until no generation with joins is kept: once another one is shown, "
            f"`headwater retire {file} {sink} --generation {number}`",
        )


def reading_settings(pipeline: Pipeline) -> dict[str, Any]:
    """Where the row store of a file that has one is, for who asks its server and no view's rows; holds secrets."""
    part = pipeline.row_store
    assert part is not None
    return {
        "url": part.url,
        "user": part.user,
        "password": None if part.password is None else part.password.get_secret_value(),
        "cluster": part.cluster,
        "ca_certs": part.ca_certs,
        "namespace": "",
        "title": pipeline.name,
    }
