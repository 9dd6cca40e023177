"""Is the row store what the checkpoint thinks it is? Found by what both recorded, and healed from Kafka when possible.

After each batch the driver writes the batch's number into the store, and then, on its own disk, that the store has it.
A store that knows an older number than the disk has lost writes: a server that crashed between two flushes of its log,
or was restored from a copy. What it holds is then a state it was once in, so replaying the batches since makes it
whole. Documents of those batches may have been written with higher versions than the store remembers: the version epoch
is raised, so that every new version beats every old one. A store that knows nothing was wiped, and can't be healed:
what compaction has removed from the log is gone.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from cdc.errors import StateError
from sinks.rowstore.contract import RowStore
from spark.flow import Flow
from spark.state import committed_offsets, rewind, write_atomic

_BATCH = "batch"


class Known(NamedTuple):
    """What the driver's disk knows of the row store: the newest batch it has, and the version epoch."""

    batch: int
    epoch: int


def known(flow: Flow) -> Known:
    """What the disk says; (-1, 0) for a new flow."""
    path = flow.folder / "rowstore.json"
    if not path.exists():
        return Known(-1, 0)
    raw = json.loads(path.read_text())
    return Known(int(raw["batch"]), int(raw["epoch"]))


def _remember(flow: Flow, state: Known) -> None:
    write_atomic(flow.folder / "rowstore.json", json.dumps(state._asdict()))


def note(store: RowStore, flow: Flow, noted: int) -> int:
    """Record the newest committed batch, first in the store, then on disk; returns its number.

    Args:
        store: the row store.
        flow: whose checkpoint it is.
        noted: what the last call returned, so that nothing is written twice.
    """
    batch, _ = committed_offsets(flow.checkpoint)
    if batch > noted:
        # Batches count from 0; the store keeps the greater number, and 0 would be "nothing".
        store.note({_BATCH: batch + 1})
        _remember(flow, Known(batch, known(flow).epoch))
    return batch


def check(store: RowStore, flow: Flow) -> int:
    """Find out whether the store has lost anything, and heal it; to be called before a flow starts.

    Returns:
        the version epoch to run with.

    Raises:
        StateError: it was wiped, or has lost more than the checkpoint can replay (terminal).
    """
    ours = known(flow)
    held = store.noted().get(_BATCH, 0) - 1
    fix = f"fill the sink anew: `headwater drop FILE --sink {flow.spec.sink}`, then `headwater run FILE`"
    if held < 0 <= ours.batch:
        raise StateError(
            f"sink {flow.spec.sink}: the row store has none of the rows of {flow.title}",
            means="it was wiped, or row_store.url leads to another server; documents can't be put together",
            fix=f"point row_store.url at the server that has them, or {fix}",
        )
    if held >= ours.batch:
        return ours.epoch
    if not rewind(flow.checkpoint, held):
        raise StateError(
            f"the row store of {flow.title} is {ours.batch - held} batches behind its checkpoint",
            means="it was restored from an old copy, and the checkpoint no longer knows what to replay",
            fix=fix,
        )
    state = Known(held, ours.epoch + 1)
    _remember(flow, state)
    return state.epoch
