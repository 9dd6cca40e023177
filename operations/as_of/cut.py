"""One cut over all tables of a sink's history: where it is, whether it may be, and what it is called."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc.catalogue import Table as Root
from cdc.errors import BadToken, BeforeHistory, BeyondFrontier, HistoryGap, SinkRefused, SourceChanged, UnknownName
from cdc.history_names import HISTORY
from cdc.pipeline import Pipeline
from cdc.records.history import (
    AFTER,
    EARLY_US,
    OFFSET,
    OP,
    PARTITION,
    POSITION,
    READ,
    TIME,
    TX,
    cut_at_lsn,
    cut_at_time,
    cut_behind,
)
from cdc.records.position import format_lsn, unpack
from cdc.saying import Say
from cdc.token import differs, parse_token
from connectors.database.history import read_moment
from connectors.database.lost import read_lost
from connectors.database.write_tokens import read_history, read_standing
from connectors.marker_watch import read_snapshot_lsn
from connectors.names import Names
from connectors.postgres import Connection, connect
from operations.as_of.begun import NotBegun, being_read, have_rows, whole_since
from operations.as_of.frontier import FrontierWatch
from operations.as_of.lost import refuse_lost
from operations.as_of.put_back import refuse_put_back
from operations.as_of.reads import reads_of, refuse_early, refuse_unread, refuse_unread_moment
from operations.as_of.seen import Frontier
from operations.state.catalogue import source_catalogue
from operations.state.history import STREAM, history_folder, history_sink, root_tables
from sinks.iceberg.catalogue import catalog_name, open_catalog
from sinks.iceberg.history import BEGINS, CUT, SOURCE, bounds, gaps, holding, load_history
from spark.disk.applied import applied_offsets

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

WAIT_SECONDS = 30.0
# The log has of a transaction's id (xid8) the lower half alone.
_IN_THE_LOG = 0xFFFFFFFF
# Between two looks whether a history has begun: some calls to Postgres, Kafka and the catalogue each.
AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Asked:
    """What a cut is asked for; nothing of it means now.

    Attributes:
        lsn: in bytes.
        at: epoch seconds; the millisecond that it lies in counts whole.
        token: of a write (cdc/token.py).
        wait: how long history may take to begin and to come there, in seconds.
        cut: the very cut, packed: one that was given a name.
        name: that name; its tables are read where it was given, though their rows have had other keys since.
        tables: show these alone; none for all. The cut is the same.
    """

    lsn: int | None = None
    at: float | None = None
    token: str | None = None
    wait: float = WAIT_SECONDS
    cut: int | None = None
    tables: tuple[str, ...] = ()
    name: str | None = None


@dataclass(frozen=True)
class Cut:
    """A cut.

    Attributes:
        sink: whose history.
        cut: rows with ``_hw_after`` below it, packed.
        frontier: up to where history was complete.
        tables: their histories, by the source's names.
        source: identity of the source.
    """

    sink: str
    cut: int
    frontier: int
    tables: dict[str, Table]
    source: str

    @property
    def lsn(self) -> str:
        """Where it is, in Postgres's notation."""
        return format_lsn(unpack(self.cut)[1])


def find_cut(pipeline: Pipeline, catalog: Catalog, sink: str, asked: Asked, say: Say) -> Cut:
    """Find the cut that was asked for; nothing is changed.

    Args:
        pipeline: the loaded file.
        catalog: the sink's, open.
        sink: one that keeps history.
        asked: where the cut is to be, and how long history is waited for.
        say: told a line while it waits.

    Raises:
        NotBegun: the history of a table is about to begin.
        BeforeHistory: it is before the history of a table begins (terminal).
        HistoryGap: history may lack events there (terminal).
        BeyondFrontier: history has not come to it, or was put back and lacks something (transient).
        SourceChanged: the history, or the token, is another source's (terminal).
        UnknownName: a table has no history here (terminal).
        BadToken: the token is none, or its transaction was rolled back (terminal).
    """
    catalogue = source_catalogue(pipeline)
    namespace = pipeline.sinks[sink].namespace  # type: ignore[union-attr]
    all_of = root_tables(pipeline, catalogue, sink)
    roots = _chosen(all_of, asked.tables)
    tables = {name: _shown(catalog, namespace, table, asked.name) for name, table in roots.items()}
    # The cut is found over all of them: that of one table alone might be another, and have a part of a transaction.
    for name, root in all_of.items():
        with suppress(SinkRefused):
            tables[name] = tables[name] if name in roots else load_history(catalog, namespace, root.name)
    for name, table in tables.items():
        if table.properties.get(SOURCE) != str(catalogue.system_identifier):
            raise SourceChanged(
                f"the history of {name} is of another Postgres cluster ({table.properties.get(SOURCE)})",
                means="its positions are of another log; no cut was made",
                fix="query that history as it is; give the sink another namespace for the new one",
            )
    snapshot = read_snapshot_lsn(pipeline)
    folder = history_folder(pipeline, sink) / STREAM
    with connect(pipeline.source) as connection:
        # First: what has been read by now lies below the log's ends that history is waited for.
        unread, lost = being_read(pipeline, connection, all_of), read_lost(connection, Names.of(pipeline))
        whole = whole_since(pipeline, connection)
        topics = [pipeline.topic(table) for table in tables]
        watch = FrontierWatch(pipeline, connection, topics, folder, snapshot, whole=not unread)
        frontier, place = _frontier(pipeline, connection, watch, asked, list(tables.values()), say)
    written = applied_offsets(folder)  # first: what is written by then is in the tables that are loaded now
    tables = every = {name: table.refresh() for name, table in tables.items()}
    own = _own_after(list(tables.values()), place)
    found = asked.cut if asked.cut is not None else _cut(list(tables.values()), frontier, place, own)
    lsn, at_us = place.lsn if own is None else None, place.at_us
    tables = {name: tables[name] for name in roots}
    # A moment is held against the reading of every table, also of those that are not shown.
    anew = {name for name, table in every.items() if table.name()[-1] == all_of[name].name + HISTORY}
    for name in sorted(anew):
        refuse_put_back(name, every[name], written.get(pipeline.topic(name), {}))
    begun = {name: int(every[name].properties[BEGINS]) for name in anew if BEGINS in every[name].properties}
    # One that was begun anew behind that had been read whole under its former key.
    whole = {name: at for name, at in whole.items() if at > begun.get(name, 0)}
    reads = reads_of(tables if at_us is None else every, whole, times=at_us is not None)
    # What a cut has was read before it got its name, whatever was read again, or missed, since.
    unnamed = {name: table for name, table in tables.items() if CUT + (asked.name or "") not in table.properties}
    unread |= have_rows(pipeline, (begun.keys() & tables.keys()) - reads.keys() - whole.keys())
    again = whole.keys() & reads.keys()
    refuse_unread(reads, [name for name in unnamed if name in anew and name in unread - again], snapshot)
    refuse_early(reads, unnamed, found, snapshot, begun)
    if at_us is not None:
        refuse_unread_moment(reads, roots, at_us, snapshot)
    refuse_lost(lost, max(unpack(found)[1], lsn or 0), at_us, None if own is None else unpack(own)[1] + 1)
    _refuse_gap(pipeline, gaps(catalog, namespace, sink), unnamed, found)
    return Cut(sink, found, frontier.after, tables, str(catalogue.system_identifier))


def _shown(catalog: Catalog, namespace: str, table: Root, cut: str | None) -> Table:
    """A table's history; of a cut with a name the one that it was named in."""
    held = None if cut is None else holding(catalog, namespace, table.name, table.qualified, cut)
    if held is not None:
        return held
    try:
        return load_history(catalog, namespace, table.name)
    except SinkRefused as error:
        fix = f"{error.fix}; or ask for the tables whose history goes back so far (--table)"
        before = BeforeHistory(error.what, means=f"{error.means}; no cut was made", fix=fix)
        raise NotBegun(before) from error


def _chosen(roots: dict[str, Root], wanted: Sequence[str]) -> dict[str, Root]:
    for name in wanted:
        if name not in roots:
            raise UnknownName(f"no history of a table {name}", fix=f"there is that of {', '.join(roots)}")
    return {name: table for name, table in roots.items() if not wanted or name in wanted}


def earlier(cut: Cut, lsn: int) -> Cut:
    """Another cut of the same look, through an LSN (packed) that is not behind its frontier."""
    assert lsn <= cut.frontier
    return replace(cut, cut=_cut(list(cut.tables.values()), Frontier(cut.frontier, 0), _Place(lsn)))


class _Place(NamedTuple):
    """Through what a cut goes: a position, a moment (µs since 1970), or a transaction (its id in the log; the position
    is then one behind its commit); all None means what there is now."""

    lsn: int | None = None
    at_us: int | None = None
    transaction: int | None = None


def _frontier(
    pipeline: Pipeline,
    connection: Connection,
    watch: FrontierWatch,
    asked: Asked,
    tables: Sequence[Table],
    say: Say,
) -> tuple[Frontier, _Place]:
    """Wait until history has come to what was asked for."""
    now = read_moment(connection)
    if asked.at is not None:
        clock = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        at_us = whole_ms(asked.at)
        moment = datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat()
        if clock is None or asked.at > float(clock[0]):
            raise _future(moment)
        words = f"the moment {moment}"
        # Of a heartbeat that is hardly younger what was committed at the moment may stand behind it.
        return watch.wait(lambda one: one.at_us > at_us + EARLY_US, words, asked.wait, say), _Place(at_us=at_us)
    if asked.cut is not None:
        lsn = unpack(asked.cut)[1]
        return watch.wait(lambda one: one.after >= lsn, f"position {format_lsn(lsn)}", asked.wait, say), _Place()
    lsn = now.wal_lsn if asked.lsn is None else asked.lsn
    place, own = _Place(asked.lsn), None
    if asked.token is not None:
        place = _token_place(pipeline, connection, asked.token)
        lsn, own = place.lsn or 0, _own_after(tables, place)
    if own is not None:  # it has come: what was committed since is not waited for
        return watch.wait(lambda one: one.after > own, "the token's transaction", asked.wait, say), place
    if lsn > now.wal_lsn and asked.token is None:
        raise _future(format_lsn(lsn))
    found = watch.wait(lambda one: one.after >= lsn, f"position {format_lsn(lsn)}", asked.wait, say)
    return found, place


def _future(words: str) -> BeyondFrontier:
    return BeyondFrontier(
        f"{words} is in the future of the source",
        means="nobody knows what will be committed until then; no cut was made",
        fix="ask for one that has been",
    )


def _token_place(pipeline: Pipeline, connection: Connection, text: str) -> _Place:
    """A token's transaction, and a position at or behind its commit."""
    token, names = parse_token(text), Names.of(pipeline)
    now = read_history(connection, names)
    if now is None or (why := differs(token.history, now)) is not None:
        raise SourceChanged(
            f"the token is of another history of the database: {'it is a standby' if now is None else why}",
            means="whether its write is there can't be said; no cut was made",
            fix="ask for a position or a moment",
        )
    if token.kind == "lsn":
        return _Place(token.value)
    standing = read_standing(connection, pipeline.source.slot, [token.value])
    fate = standing.fates.get(token.value, "unknown")
    if fate == "in progress":
        raise _future("the token's transaction")
    if fate == "aborted":
        raise BadToken("the token's transaction was rolled back", fix="there is nothing of it to be found in any cut")
    return _Place(standing.insert_lsn, transaction=token.value & _IN_THE_LOG)


def _own_after(tables: Sequence[Table], place: _Place) -> int | None:
    """The last commit before the place's transaction; None if it is none, or history has no row of it."""
    if place.transaction is None:
        return None
    found = (bounds(table, AFTER, f"{OP} <> '{READ}' AND {TX} = {place.transaction}") for table in tables)
    return max((one[1] for one in found if one is not None), default=None)


def _cut(tables: Sequence[Table], frontier: Frontier, place: _Place, own: int | None = None) -> int:
    lsn, at_us = place.lsn, place.at_us

    def afters(where: str) -> list[int]:
        """The least of each table."""
        found = (bounds(table, AFTER, f"{OP} <> '{READ}' AND {where}") for table in tables)
        return [one[0] for one in found if one is not None]

    if at_us is not None:
        moment = datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat()
        return cut_at_time(frontier.after, afters(f"{TIME} > '{moment}'"))
    if own is not None:
        return cut_behind(own, frontier.after, afters(f"{AFTER} > {own}"))
    if lsn is None:
        return frontier.after
    return cut_at_lsn(lsn, afters(f"{POSITION} >= {lsn} AND {AFTER} < {lsn}"))


def _refuse_gap(pipeline: Pipeline, found: Sequence[Mapping[str, Any]], tables: Mapping[str, Table], cut: int) -> None:
    """What was superseded while nobody read may be missing; the newest of each row never is."""
    topics = {pipeline.topic(name): table for name, table in tables.items()}
    for gap in found:
        starts: Mapping[str, Mapping[str, int]] = json.loads(gap["offsets"])
        concerned = [(topics[topic], parts) for topic, parts in starts.items() if topic in topics]
        low, high = _inside(concerned, gap["until"].isoformat())
        if low + 1 < cut <= high:
            raise HistoryGap(
                f"history may lack events that were committed until {gap['until']:%Y-%m-%d %H:%M:%S} UTC: {gap['why']}",
                means=f"a cut before {format_lsn(unpack(high + 1)[1])} could be torn; no cut was made",
                fix="ask for a later one; kafka.compaction_lag_hours says how long history may be away",
            )


def _inside(starts: Sequence[tuple[Table, Mapping[str, int]]], until: str) -> tuple[int, int]:
    """(the last commit before which nothing is missing, the last at or before which something may be).

    What is missing of a partition follows the last record of it that had been read. Of a row whose event compaction has
    taken a newer one is left that was old enough to be compacted too.
    """
    before = [
        bounds(table, AFTER, f"{PARTITION} = {part} AND {OFFSET} < {at}")
        for table, parts in starts
        for part, at in parts.items()
    ]
    low = min((-1 if one is None else one[1] for one in before), default=-1)
    behind = (bounds(table, AFTER, f"{TIME} <= '{until}'") for table, _ in starts)
    return low, max((one[1] for one in behind if one is not None), default=-1)


def with_cut(pipeline: Pipeline, sink: str | None, asked: Asked, say: Say, work: Callable[[Cut], Any]) -> Any:
    """Find a cut, and do something with it while the catalogue is open; what that returns.

    Args:
        pipeline: the loaded file.
        sink: whose history; None for the only one that keeps it.
        asked: as ``find_cut``, which is tried again, for as long as it may wait, while histories begin.
        say: told a line while it waits.
        work: given the cut.

    Raises:
        ConfigError: the sink keeps no history, or none was named and several do (terminal).
        HeadwaterError: as ``find_cut``; of a history that has not begun in time BeforeHistory.
    """
    if asked.token is not None:
        parse_token(asked.token)  # one that is none is not waited with
    name, until, told = history_sink(pipeline, sink), time.monotonic() + asked.wait, False
    with open_catalog(pipeline.sinks[name], catalog_name(name)) as catalog:
        while True:
            left = max(until - time.monotonic(), 0.0)
            try:
                return work(find_cut(pipeline, catalog, name, replace(asked, wait=left), say))
            except NotBegun as found:
                if left <= AGAIN_SECONDS:
                    raise found.error from found
                if not told:
                    say(f"waiting for history to begin: {found}")
                    told = True
            time.sleep(AGAIN_SECONDS)


def whole_ms(at: float) -> int:
    """The millisecond (as µs since 1970) that a moment (epoch seconds) lies in: the log has no more of when something
    was committed, so nothing within it can be told from the moment. Pure."""
    return round(at * 1_000_000) // 1000 * 1000


def moment_of(text: str) -> float:
    """Epoch seconds of ISO 8601; without a zone it is UTC.

    Raises:
        ValueError: it is none.
    """
    found = datetime.fromisoformat(text)
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except OverflowError as error:  # in UTC it is of the year 0 or 10000
        raise ValueError(f"no moment in UTC: {text}") from error
