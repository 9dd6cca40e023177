"""What a flow's tasks must know, as plain data that travels to executors once and is opened there once."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cdc.catalogue import Table
from cdc.join.layout import Arranged
from cdc.log.registry import encoding_of
from cdc.records.debezium_json import Decoder, Fit
from cdc.records.events import EventDecoder
from cdc.view import View


@dataclass(frozen=True)
class FlowSpec:
    """One streaming query's work.

    Attributes:
        sink: the sink's name in the pipeline file.
        views: the views this flow keeps, by name.
        topics: topic -> the names of the views rooted in it.
        tables: topic -> the source table behind it.
        events: those of the topics whose records are events (cdc/outbox.py).
        sink_config: plain settings for ``sinks.factory.open_sink``; holds secrets, so never logged.
        dead_letters: ``{"topic": …, "client": librdkafka settings}``.
        epoch: the source epoch that positions carry (see cdc/records/position.py).
        snapshot_lsn: position of the initial snapshot, in bytes of WAL (see cdc/records/debezium_json.py).
        row_store: settings of ``sinks.rowstore.settings.StoreSettings`` for a joined view; holds secrets.
        version_epoch: see spark/join/health.py.
        arranged: how the row store has the first of many children by their order: one of an older version stays as
            it is until its generation is made anew (``spark.join.health.arranged``).
        batches_before: slices of the fill: micro-batches are counted on from there.
        away_seconds: see ``sinks.awake``; 0 where workers live and die with this process.
        compaction_lag_seconds: how long the log keeps every record, before compaction may remove superseded ones.
        generation: which build of the sink.
        registry: settings of the schema registry (``cdc.log.registry.encoding_of``); None when no record can be Avro.
        fits: topic -> what of its table must fit; see ``cdc.records.debezium_json.Fit``.
    """

    sink: str
    views: Mapping[str, View]
    topics: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Table]
    sink_config: Mapping[str, Any] = field(repr=False)
    dead_letters: Mapping[str, Any] = field(repr=False)
    epoch: int = 0
    snapshot_lsn: int = 0
    fits: Mapping[str, Fit] = field(default_factory=dict)
    events: frozenset[str] = frozenset()
    row_store: Mapping[str, Any] | None = field(default=None, repr=False)
    version_epoch: int = 0
    arranged: Arranged = "now"
    batches_before: int = 0
    away_seconds: float = 0.0
    compaction_lag_seconds: float = 0.0
    generation: int = 1
    registry: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def view(self) -> View:
        """The one view of a flow that keeps no other."""
        (view,) = self.views.values()
        return view

    def pack(self) -> bytes:
        """Serialise for a task's closure."""
        return pickle.dumps(self)

    def decoders(self) -> dict[str, Decoder]:
        """A decoder a topic."""
        encoding = encoding_of(self.registry)
        return {
            topic: self._kind(topic)(table, self.epoch, self.snapshot_lsn, encoding, self.fits.get(topic, Fit()))
            for topic, table in self.tables.items()
        }

    def _kind(self, topic: str) -> type[Decoder]:
        return EventDecoder if topic in self.events else Decoder


@lru_cache(maxsize=32)
def _unpack(digest: bytes, packed: bytes) -> FlowSpec:
    spec = pickle.loads(packed)  # noqa: S301 (our own driver's bytes, over Spark's channel)
    assert isinstance(spec, FlowSpec)
    return spec


def unpack(packed: bytes) -> FlowSpec:
    """Read a spec in a worker; the same bytes give the same object, so what hangs on it is opened once a worker."""
    return _unpack(hashlib.blake2b(packed, digest_size=16).digest(), packed)
