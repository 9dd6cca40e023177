"""What a joined view has still to write though its flow has read the log; and whether its row store can be believed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.rowstore import row_store_settings
from sinks.rowstore.contract import still_runs
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.disk.filling import in_fill, is_live
from spark.disk.state import Generation

# The row store is asked on the side; one that does not answer proves nothing.
STORE_SECONDS = 2.0
_UNREADABLE = "what is known of view {}'s row store can't be read: {}"


class Deferred:
    """Asks the row stores of a pipeline's joined views, over connections that stay open. Not for several threads.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._stores: dict[Path, RedisRowStore] = {}

    def close(self) -> None:
        """Close what was opened."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def keep(self, generations: Iterable[Generation]) -> None:
        """Close what was opened for other generations than these: they are gone."""
        folders = {generation.folder for generation in generations}
        for folder in [flow for flow in self._stores if flow.parent not in folders]:
            self._stores.pop(folder).close()

    def why(self, generation: Generation, flow: str) -> str | None:
        """Why a flow has not written all that its offsets say; None if it has, or if it keeps no joined view."""
        said, known = self.noted(generation, flow)
        if known is None:
            return said
        try:
            return self._ask(generation, flow, known)
        except HeadwaterError as error:
            return f"the row store does not tell what view {flow} has still to write: {error.what}"
        except (OSError, ValueError, KeyError) as error:
            return _UNREADABLE.format(flow, error)

    @staticmethod
    def noted(generation: Generation, flow: str) -> tuple[str | None, str | None]:
        """What the state folder alone says of it, and the server that is to be asked; None where that is all. In any
        thread."""
        folder = generation.flow_folder(flow)
        try:
            if in_fill(folder):
                return f"view {flow} is being filled", None
            if not is_live(folder):
                return None, None
            return None, str(json.loads((folder / "rowstore.json").read_text())["server"])
        except (OSError, ValueError, KeyError) as error:
            return _UNREADABLE.format(flow, error), None

    def _ask(self, generation: Generation, flow: str, known: str) -> str | None:
        store = self._store(generation, flow)
        waiting, server = store.waiting(), store.server()
        same = still_runs(known, server)
        if not same:
            # After a fail-over this connection may lead to the former server: the next look makes another.
            self._stores.pop(generation.flow_folder(flow)).close()
        # A server that was restarted may have forgotten which documents were still to be written: its flow finds out,
        # and reads again what the store has lost (spark/join/health.py).
        if not same or not store.noted().identity:
            return f"the row store of view {flow} was restarted: its flow has to look what it has lost"
        if waiting:
            return f"{waiting:,} documents of view {flow} that a change has touched are still to be written"
        return None

    def _store(self, generation: Generation, flow: str) -> RedisRowStore:
        folder = generation.flow_folder(flow)
        if folder not in self._stores:
            patience = {"give_up_seconds": STORE_SECONDS, "request_timeout_seconds": STORE_SECONDS}
            settings = row_store_settings(self.pipeline, generation, flow) | patience
            self._stores[folder] = RedisRowStore(StoreSettings(**settings))
        return self._stores[folder]
