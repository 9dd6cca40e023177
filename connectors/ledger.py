"""The ledger: pairs of an LSN and Kafka's end offsets, from which «how far is a sink complete?» is answered.

Debezium confirms to the slot only what Kafka has acknowledged. So when the slot's ``confirmed_flush_lsn`` is F, every
change committed at or before F lies below the end offsets that are read *afterwards*. A consumer that has read up to
those offsets is complete through F. Read in the other order the pair would promise what need not hold, and so would the
ends of committed records alone: what is acknowledged may wait for its transaction's marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cdc.errors import SourceError, SourceUnavailable
from cdc.outbox import topics_of_tables
from connectors.database.slot import read_slot
from connectors.servers import Servers
from connectors.snapshots.snapshot import unfinished


@dataclass(frozen=True)
class LedgerEntry:
    """One pair.

    Attributes:
        lsn: every change committed at or before it, in bytes, …
        offsets: … lies below these: topic -> partition -> offset of the next record.
        silent: topics of which it says nothing, and why.
        ids: Kafka's own ids of the topics; empty where nobody asked.
    """

    lsn: int
    offsets: Mapping[str, Mapping[int, int]]
    silent: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def behind(self, consumed: Mapping[str, Mapping[int, int]]) -> int:
        """How many offsets a consumer that will next read ``consumed`` lacks of everything up to ``lsn``. Pure."""
        return sum(
            max(end - consumed.get(topic, {}).get(partition, 0), 0)
            for topic, ends in self.offsets.items()
            for partition, end in ends.items()
        )


def read_entry(servers: Servers, tables: Iterable[str], topics: Iterable[str] | None = None) -> LedgerEntry:
    """Read an entry now: first the slot, then the ends.

    Args:
        servers: of the pipeline.
        tables: the tables that matter, as ``schema.table``.
        topics: those of their topics that matter; None for all.

    Raises:
        SourceUnavailable: a table's snapshot is under way: the slot says nothing of its rows (transient).
        SourceError: there is no slot.
        KafkaUnavailable: no answer (transient).
    """
    tables, pipeline = list(tables), servers.pipeline
    if busy := sorted(unfinished(servers) & set(tables)):
        raise SourceUnavailable(
            f"the snapshot of {', '.join(busy)} is not complete", fix="`headwater apply FILE --wait`"
        )
    named = topics_of_tables(pipeline, tables) if topics is None else list(topics)
    counts = {topic.name: topic.partitions for topic in servers.kafka.describe(named).values()}
    slot = read_slot(servers.source, pipeline.source.slot)
    if slot is None or slot.confirmed_lsn is None:
        raise SourceError(f"slot {pipeline.source.slot} does not exist", fix="run `headwater apply FILE`")
    return LedgerEntry(slot.confirmed_lsn, servers.kafka.ends(counts, written=True))
