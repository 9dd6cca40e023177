"""How much memory the row store has taken, as `run` notes it for `/metrics`: nothing that it holds can be evicted."""

from __future__ import annotations

from typing import Any

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.rowstore import reading_settings
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings

# It is asked on the side; one that does not answer tells nothing.
STORE_SECONDS = 2.0


class RowStoreMemory:
    """Asks the row store of a pipeline, over a connection that stays open. For one thread.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._store: RedisRowStore | None = None

    def look(self) -> dict[str, dict[str, Any]]:
        """node -> ``used_bytes`` and ``limit_bytes`` (0 for none); empty without a row store, or an answer."""
        if self.pipeline.row_store is None:
            return {}
        try:
            if self._store is None:
                patience = {"give_up_seconds": STORE_SECONDS, "request_timeout_seconds": STORE_SECONDS}
                self._store = RedisRowStore(StoreSettings(**reading_settings(self.pipeline) | patience))
            found = self._store.memory()
        except HeadwaterError:
            self.close()
            return {}
        return {node: {"used_bytes": one.used, "limit_bytes": one.limit} for node, one in found.items()}

    def close(self) -> None:
        """Close what was opened."""
        if self._store is not None:
            self._store.close()
            self._store = None
