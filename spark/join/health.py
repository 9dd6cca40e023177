"""Is the row store what the checkpoint thinks it is? Found by what both recorded, and healed from Kafka when possible.

After each batch the driver writes the batch's number into the store, and then, on its own disk, that the store has it
and which run of the server that was. A server that was restarted may have lost its newest writes (Redis flushes its
log once a second), or may have been restored from a copy; what it holds is a state it was once in, and the batch number
that it still has says which. Replaying the batches since makes it whole. Documents of those batches may have been
written with higher versions than the store remembers: the version epoch is raised, so that every new version beats
every old one. A store that knows nothing was wiped and can't be healed: what compaction has removed is gone.

A checkpoint may be an older copy, behind what the store has noted. Its batches since are cut anew, so their numbers say
nothing any more: the store's mark is lowered to what the checkpoint has, or a loss among them would go unnoticed.

A node that is added to a cluster has lost nothing: its run is remembered beside the others'. One that is taken away
after its keys were moved has not either, but is not to be told from one that was lost. Of a cluster one node may go
back alone (each keeps the number, and the least one counts). What rows, indexes and sums on other nodes have got from
it can't be told apart any more: refused. So is a loss that is older than the time for which the log keeps every record:
documents may show what neither the store nor the log remembers. How old it is, is not how long the server was away: one
that is back within a second may have an hour's or yesterday's state. It is as old as the first batch that may be
missing, which the checkpoint tells; a pipeline that has rested since the newest batch has lost nothing.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cdc.ages import ago
from cdc.errors import SinkUnavailable, StateError
from cdc.formats import ROWS, refuse_newer
from cdc.join.layout import Arranged, Layout
from sinks.rowstore.contract import Marks, RowStore, still_runs
from spark.disk.applied import forget_applied
from spark.disk.checkpoint import committed_offsets, holds, planned, planned_at, rewind
from spark.disk.files import write_atomic
from spark.disk.notes import read_note
from spark.disk.state import rebuild_command
from spark.flow import Flow

# How often it is written down that the row store's server was seen to be the same run.
SEEN_SECONDS = 60.0


@dataclass(frozen=True)
class Known:
    """What the driver's disk knows of the row store.

    Attributes:
        batch: the newest batch that it has; -1 for none.
        epoch: what is added to versions, see ``spark.join.engine``; one more each time the store was healed.
        healed: the batch that it was last put back to; those after it were cut anew.
        server: the run of the server that said so, of a cluster those of its nodes; empty before the first.
        filled: whether the store bears the mark that a fill sets at its end (one that was filled long ago has none).
    """

    batch: int = -1
    epoch: int = 0
    healed: int = -1
    server: str = ""
    filled: bool = False


def _path(flow: Flow) -> Path:
    return flow.folder / "rowstore.json"


def known(flow: Flow) -> Known:
    """What the disk says.

    Raises:
        StateError: the note can't be read (terminal).
    """
    return read_note(_path(flow), lambda note: Known(**note), _restored(flow)) or Known()


def _restored(flow: Flow) -> str:
    return f"restore it from a copy; or {rebuild_command(flow.spec.sink)}"


def _remember(flow: Flow, state: Known) -> None:
    write_atomic(_path(flow), json.dumps(asdict(state)))


def note(store: RowStore, flow: Flow) -> int:
    """Record the newest committed batch, first in the store, then on disk; returns its number in the checkpoint.

    Raises:
        SinkUnavailable: the server was restarted, so it may have lost writes, or was emptied, or has gone back
            (transient: start the flow again).
    """
    ours, server = known(flow), store.server()
    if not still_runs(ours.server, server):
        raise SinkUnavailable(
            f"the row store's server of {flow.title} was restarted",
            means="its newest writes may be lost; the flow starts again and replays what the store does not have",
        )
    noted = store.noted()
    if not noted.identity:
        raise SinkUnavailable(
            f"the row store of {flow.title} has lost its marks",
            means="its server, or a node of it, was emptied; the flow starts again and finds out",
        )
    # The disk is told of a batch after the store was, and of a mark that is lowered before a flow starts.
    if _held(flow, noted) < ours.batch:
        raise SinkUnavailable(
            f"the row store of {flow.title} has gone back",
            means="another server was in its place, or an older state was put back; the flow starts again and replays "
            "what the store does not have",
        )
    if server != ours.server:  # from now on the nodes that were added may not be restarted either
        ours = replace(ours, server=server)
        _remember(flow, ours)
    if ago(_path(flow).stat().st_mtime, time.time()) > SEEN_SECONDS:
        _path(flow).touch()  # when it was last seen to be the same run
    batch, _ = committed_offsets(flow.checkpoint)
    if batch > ours.batch:
        store.note(batch + flow.spec.batches_before, epoch=ours.epoch)
        if not still_runs(ours.server, store.server()):
            raise SinkUnavailable(f"the row store's server of {flow.title} was restarted just now")
        _remember(flow, replace(ours, batch=batch))
    return batch


def remember_filled(flow: Flow, server: str) -> None:
    """Say so on disk, when it is certain that one run of the server has had every write."""
    _remember(flow, replace(known(flow), server=server, filled=True))


def _check_loss(flow: Flow, server: str, first: int, lag_seconds: float) -> None:
    """Whether what was lost can be replayed.

    Args:
        flow: whose row store.
        server: the run of the server that answers now.
        first: the first batch that the store may lack.
        lag_seconds: for how long the log keeps every record.

    Raises:
        StateError: one node of several may have gone back alone, or too long ago (terminal).
    """
    now = time.time()
    away, begun = ago(_path(flow).stat().st_mtime, now), planned_at(flow.checkpoint, first)
    old = math.inf if begun is None else ago(begun, now)
    kept = f"and the log keeps every record for {lag_seconds / 3600:.1f} h only"
    why = ""
    if " " in server:
        why = "a node may have lost its last writes, and what other nodes have of them does not fit any more"
    elif away == math.inf:
        why = "nobody knows how long ago that was, for the clock was put back since; the log may lack records of it"
    elif away > lag_seconds:
        why = f"that was {away / 3600:.1f} h ago, {kept}"
    elif old == math.inf:
        why = f"nobody knows how long ago batch {first}, which it may lack, was begun; the log may lack records of it"
    elif old > lag_seconds:
        why = f"what it may lack begins with batch {first}, of {old / 3600:.1f} h ago, {kept}"
    if why:
        raise StateError(
            f"sink {flow.spec.sink}: the row store's server of {flow.title} was restarted in the middle of a batch, or "
            "put back to an older state",
            means=f"{why}; nothing was written",
            fix=rebuild_command(flow.spec.sink),
        )


def arranged(layout: Layout, flow: Flow) -> Arranged:
    """How the flow's row store has the first of many children: as the version did that filled it.

    Args:
        layout: of the flow's view.
        flow: one whose layout was remembered (``check_layout``), or is new.
    """
    held = _laid_out(flow)
    if held is None:
        return "now"
    if "ordered" not in held:
        return "none"
    now, former = layout.description()["ordered"], layout.over("former").description()["ordered"]
    return "former" if now != former and former in (held["ordered"], layout.renamed(held)["ordered"]) else "now"


def _laid_out(flow: Flow) -> dict[str, Any] | None:
    """How the rows of a flow's row store are laid out, as its note says; None if there is none."""
    path = flow.folder / "layout.json"
    return read_note(path, lambda note: {**note, "tables": dict(note["tables"])}, _restored(flow))


def check_layout(layout: Layout, flow: Flow) -> None:
    """Remember how a new flow's rows are stored; refuse to read them as anything else later.

    Raises:
        StateError: the view stores other columns than before: a table of which it takes all has gained one (terminal).
    """
    how = arranged(layout, flow)
    described = layout.over(how).description()
    if how == "none":
        described.pop("ordered")
    path, text, before = flow.folder / "layout.json", json.dumps(described), _laid_out(flow)
    if before is None:
        write_atomic(path, text)
        return
    after = json.loads(text)
    if before == after:
        return
    if layout.renamed(before) == after:
        write_atomic(path, text)
        return
    changed = sorted(name for name, table in after["tables"].items() if before["tables"].get(name) != table)
    raise StateError(
        f"sink {flow.spec.sink}: {flow.title} stores other columns now of {', '.join(changed) or 'its tables'}",
        means="a table of the view has gained or lost a column; the rows in the row store lack it, nothing was written",
        fix=f"name the columns in the view; or {rebuild_command(flow.spec.sink)}",
    )


def check(store: RowStore, flow: Flow, identity: str, lag_seconds: float = math.inf) -> int:
    """Adopt the store, find out whether it has lost anything, and heal it; to be called before a flow starts.

    Args:
        store: the flow's.
        flow: one that is live.
        identity: of the fill that made the store.
        lag_seconds: for how long the log keeps every record, before compaction may remove superseded ones.

    Returns:
        the version epoch to run with.

    Raises:
        StateError: it was wiped, is an older Headwater's, or has lost more than the checkpoint can replay (terminal).
        NewerFormat: a newer Headwater's (terminal).
        Fenced: a newer runner has adopted it (terminal).
        SinkUnavailable: it has forgotten its identity since it was looked at (transient).
    """
    ours, server = known(flow), store.server()
    _refuse_other(flow, ours, store.noted(), identity)
    store.adopt(identity)  # nobody notes another batch from here on
    return _heal(store, flow, ours, server, lag_seconds)


def _held(flow: Flow, noted: Marks) -> int:
    """The newest batch that a store says it has, as the checkpoint counts; -1 for none."""
    return noted.batch - flow.spec.batches_before if noted.batch >= 0 else -1


def _refuse_other(flow: Flow, ours: Known, noted: Marks, identity: str) -> None:
    """Refuse a store that is not the one which the checkpoint goes with, or holds what nobody can tell.

    Args:
        flow: whose store.
        ours: what the disk says.
        noted: what the store says.
        identity: of the fill that made the store.

    Raises:
        StateError: it was wiped, is an older Headwater's, or was put back to before it was healed (terminal).
        NewerFormat: a newer Headwater's (terminal).
    """
    fix = rebuild_command(flow.spec.sink)
    what = f"sink {flow.spec.sink}: the row store of {flow.title}"
    if noted.format and refuse_newer(what, noted.format, ROWS) < ROWS:
        raise StateError(
            f"{what} was written by an older Headwater",
            means=f"its rows are laid out otherwise (format {noted.format}, here {ROWS}); nothing was written",
            fix=fix,
        )
    if noted.identity != identity or not noted.filled:
        raise StateError(
            f"sink {flow.spec.sink}: the row store has none of the rows of {flow.title}",
            means="it, or a node of it, was wiped, or row_store.url leads elsewhere; documents can't be put together",
            fix=f"point row_store.url at the server that has them; or {fix}",
        )
    if noted.epoch < ours.epoch and _held(flow, noted) > ours.healed:
        raise StateError(
            f"sink {flow.spec.sink}: the row store of {flow.title} was restored from a copy of before it was healed",
            means="batches were cut otherwise since then, so what it holds can't be told; nothing was written",
            fix=fix,
        )


def _heal(store: RowStore, flow: Flow, ours: Known, server: str, lag_seconds: float) -> int:
    """Have the checkpoint replay what the store has lost, with a version epoch that beats what was written since; have
    the store say no more than the checkpoint, which may be an older copy.

    Args:
        store: the flow's, adopted.
        flow: whose store.
        ours: what the disk says.
        server: the run of the server that answers now.
        lag_seconds: for how long the log keeps every record.

    Returns:
        the version epoch to run with.

    Raises:
        StateError: it has lost more than the checkpoint can replay (terminal).
    """
    noted, (committed, _) = store.noted(), committed_offsets(flow.checkpoint)
    said = held = _held(flow, noted)
    ours = replace(ours, epoch=max(ours.epoch, noted.epoch))  # it was healed since an older copy was made
    # The same run of the server has what it was told, unless it holds less than the disk was told that it holds.
    restarted = bool(ours.server) and not still_runs(ours.server, server)
    if restarted:
        held = min(held, ours.batch)  # what was noted while the server went down says nothing of the rows before it
    lost = committed > held and (restarted or held < ours.batch)
    cut = restarted and planned(flow.checkpoint) > committed
    back = held if lost else committed
    if lost and not holds(flow.checkpoint, held):
        raise StateError(
            f"the row store of {flow.title} is {committed - held} batches behind its checkpoint",
            means="it was restored from an old copy, and the checkpoint no longer knows what to replay",
            fix=rebuild_command(flow.spec.sink),
        )
    if lost or cut:
        _check_loss(flow, server, back + 1, lag_seconds)
    if lost or cut or said > committed:
        # The batch that was under way is replayed too, and may have left documents with versions that the store has
        # forgotten. The epoch is on disk before the checkpoint is touched: killed in between, this is done again.
        ours = replace(ours, epoch=ours.epoch + 1, healed=back)
        if said > back:  # else it would be trusted to have batches that are to be cut anew, should it lose some of them
            store.lower(back + flow.spec.batches_before, epoch=ours.epoch)
        _remember(flow, ours)
    if lost:
        # Documents that a fan-out had deferred are forgotten too: until they are made again, nothing of it is applied.
        forget_applied(flow.folder)
        rewind(flow.checkpoint, held)
    _remember(flow, replace(ours, server=server, batch=min(ours.batch, back)))
    return ours.epoch
