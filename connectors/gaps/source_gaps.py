"""Gaps at the source: places where the log can't be continued, each refused by name.

Debezium keeps how far it has read (its offset) in Kafka, in the transaction that holds the changes, and only then
confirms that to the slot. So a slot that stands past the offset is not the one that was read from: changes in between
are in no log. And an offset past the end of the database's own log was read from another history.

Docs: docs/decisions/gaps.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import psycopg

from cdc.errors import ConnectError, LogGap, SlotLost, SourceChanged, SourceError, SourceRefused
from cdc.pipeline import Pipeline
from cdc.records.position import format_lsn
from connectors.captured.captured import read_captured
from connectors.database.history import Moment, raise_witness, read_moment, read_witness
from connectors.database.slot import Slot, read_slot
from connectors.database.timeline import noted_timeline, timelines_before
from connectors.debezium import SYSTEM_IDENTIFIER, connector_name
from connectors.gaps.lost_offset import READ_AGAIN, refuse_lost_offset
from connectors.gaps.renamed import refuse_renamed
from connectors.names import Names
from connectors.offset import reached_lsn, stored_lsn
from connectors.postgres import ANSWER_SECONDS, Connection, connect, within
from connectors.rest import ConnectClient

GONE = "our own tables are gone from the database: it was restored from a copy from before `apply`"
BEGIN_AGAIN = "`headwater recapture FILE`, which tells first what it costs"
FIRST_AGAIN = "`headwater drop FILE --topics`, then `headwater apply FILE --wait` for a new snapshot"


@dataclass(frozen=True)
class Remembered:
    """What a runner has seen of its source; plain values, to be kept as JSON.

    Attributes:
        system_identifier: of the Postgres cluster.
        timeline: of its log.
        wal_lsn: how far its log went.
        confirmed_lsn: what the slot had confirmed; None if there was none.
        offset_lsn: how far the connector had read; None before streaming began.
        runner: who remembers; names its witness in the database.
        installation: which installation of our tables bore witness; None if it had no witness table.
        witness: the number that the runner left there.
        followed: timelines before this one, from which a promoted standby was followed.
    """

    system_identifier: str
    timeline: int
    wal_lsn: int
    confirmed_lsn: int | None
    offset_lsn: int | None
    runner: str
    installation: str | None = None
    witness: int = 0
    followed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "followed", tuple(self.followed))  # JSON knows lists only

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what most never need is left out, so that an older version can read it."""
        return {name: value for name, value in asdict(self).items() if name != "followed" or value}


# Follows a promoted standby, or raises (connectors/gaps/promotion.py).
Follow = Callable[[Connection, Pipeline, Remembered, Moment, tuple[str, int] | None], None]


def check_source(
    pipeline: Pipeline,
    remembered: Remembered | None,
    follow: Follow | None = None,
    told: Callable[[str | None], None] = lambda refused: None,
) -> Remembered | None:
    """Whether the log can still be continued: to be asked at a runner's start and then now and again.

    Args:
        pipeline: the loaded file.
        remembered: what the last call returned, in this process or before; None at the very first.
        follow: asked when a standby of the same cluster was promoted; None refuses every other timeline.
        told: is told in a line that the server has refused the login, and None when it has taken it.

    Returns:
        What to remember from now on. The same as given when a server does not answer: that is no gap.

    Raises:
        SourceChanged: another database, an older copy of it, or another timeline (terminal).
        SlotLost: the slot is gone or was invalidated (terminal).
        LogGap: the slot is not the one that was read from, or Connect has lost the offset (terminal).
    """
    try:
        connection = connect(pipeline.source)
    except SourceError as error:  # down, or it refuses the login: the sinks go on with what the log holds
        if not error.transient or isinstance(error, SourceRefused):
            told(error.what)
        return remembered
    told(None)
    try:
        with connection:
            return _check(connection, pipeline, remembered, follow)
    except (SlotLost, LogGap, SourceChanged):
        raise
    except (SourceError, psycopg.Error):
        return remembered


def _check(
    connection: Connection, pipeline: Pipeline, remembered: Remembered | None, follow: Follow | None
) -> Remembered:
    runner = remembered.runner if remembered else str(uuid.uuid4())
    name, names = pipeline.source.slot, Names.of(pipeline)
    # In this order: what the slot has confirmed was stored before, and what is stored was written before.
    with within(connection, ANSWER_SECONDS):  # a frozen server would hide that another one has been promoted
        slot = read_slot(connection, name)
        known, offset = _stored_offset(pipeline, missed=slot is None)
        now = read_moment(connection)
        witness = read_witness(connection, names, runner)
    if remembered is not None and follow is not None and _promoted(now, remembered):
        follow(connection, pipeline, remembered, now, witness)
        since = (*remembered.followed, remembered.timeline)
        remembered = replace(remembered, timeline=now.timeline, followed=since)
        return _check(connection, pipeline, remembered, None)  # the connector has moved meanwhile
    refuse_moved(pipeline, now, remembered)
    refuse_forgotten(remembered, witness)
    refuse_shorter(pipeline, now, remembered, witness)
    refuse_future(now, offset)
    with within(connection, ANSWER_SECONDS):
        noted = noted_timeline(connection, names)
    refuse_unfollowed(noted, now)
    if remembered is not None:
        since = remembered.followed
    else:  # a memory that was lost: sinks may be bound to a timeline from which a promoted standby was followed
        since = timelines_before(pipeline.source, now.timeline) if follow and noted == now.timeline else ()
    streamed = stored_lsn(offset) if known else remembered.offset_lsn if remembered else None
    if known and streamed is None:
        with within(connection, ANSWER_SECONDS):
            refuse_lost_offset(offset, read_captured(connection, names))
    if known and offset is not None:
        refuse_gap(name, slot, offset)
    elif not known and streamed is not None and (slot is None or slot.wal_status == "lost"):
        refuse_gap(name, slot, {"lsn": streamed})  # Connect is down, and need not be asked
    count = 0
    if witness is not None and not now.standby:
        with within(connection, ANSWER_SECONDS):
            count = raise_witness(connection, names, runner)
    return Remembered(
        system_identifier=now.system_identifier,
        timeline=now.timeline,
        wal_lsn=now.wal_lsn,
        confirmed_lsn=slot.confirmed_lsn if slot else None,
        offset_lsn=streamed,
        runner=runner,
        installation=witness[0] if witness else None,
        witness=count,
        followed=since,
    )


def _promoted(now: Moment, remembered: Remembered) -> bool:
    same = now.system_identifier == remembered.system_identifier
    return same and not now.standby and now.timeline > remembered.timeline


def _stored_offset(pipeline: Pipeline, *, missed: bool) -> tuple[bool, Mapping[str, Any] | None]:
    """(whether Connect has answered, the connector's offset).

    Raises:
        SourceChanged: the slot is ``missed`` because the file names another one than the connector has (terminal).
    """
    try:
        with ConnectClient.impatient(pipeline.connect) as client:
            offset = client.offset(connector_name(pipeline))
            if missed:
                refuse_renamed(pipeline, client.config(connector_name(pipeline)) or {})
    except ConnectError:
        return False, None
    return True, offset


# -- the rules, pure ---------------------------------------------------------------------------------------------------


def refuse_gap(slot_name: str, slot: Slot | None, offset: Mapping[str, Any] | None) -> None:
    """Refuse to go on when the slot can't give every change since the offset.

    Args:
        slot_name: for the message.
        slot: as it is; None if there is none.
        offset: how far the connector has read; None if it has read nothing.

    Raises:
        SlotLost: it is lost or gone (terminal).
        LogGap: it was created anew, or moved (terminal).
        SourceError: it is there, and nothing of ours has read from it (terminal).
    """
    streamed = stored_lsn(offset)
    if slot is not None and slot.wal_status == "lost":
        why, prevents = slot.why_lost
        raise SlotLost(
            f"Postgres has invalidated slot {slot_name}: {why} (wal_status lost)",
            means="changes since then cannot be read; the connector would stay silent, or fail",
            fix=f"{READ_AGAIN if streamed is not None else FIRST_AGAIN}; {prevents}",
        )
    if slot is None and streamed is not None:
        raise SlotLost(
            f"slot {slot_name} is gone, but the connector has read up to {format_lsn(streamed)}",
            means="a new slot would begin now, and every change in between would be missing in every view",
            fix=READ_AGAIN,
        )
    if slot is not None and offset is None:
        raise SourceError(
            f"slot {slot_name} is there, but Kafka Connect knows no connector that has read from it",
            means="a snapshot now would not fit the position of this slot, which something else created",
            fix="`headwater drop FILE` removes it, if it is this pipeline's; or choose another source.slot",
        )
    if slot is not None and streamed is not None and (slot.confirmed_lsn or 0) > streamed:
        raise LogGap(
            f"slot {slot_name} stands at {format_lsn(slot.confirmed_lsn or 0)}, past {format_lsn(streamed)}, read last",
            means="the slot was dropped and created again, or was moved: the changes in between are lost",
            fix=READ_AGAIN,
        )


def refuse_empty(slot: Slot | None, offset: Mapping[str, Any] | None, captured: Collection[str]) -> None:
    """Refuse a database that knows neither our slot nor a captured table, while the connector has read from one that
    did: it was restored into the same cluster, say from a dump. To make the slot anew is no way out there: nobody knows
    what was captured.

    Raises:
        SourceChanged: (terminal).
    """
    if slot is None and not captured and stored_lsn(offset) is not None:
        raise changed(GONE)


def refuse_moved(pipeline: Pipeline, now: Moment, remembered: Remembered | None) -> None:
    """Refuse another cluster, and another timeline.

    Raises:
        SourceChanged: (terminal).
    """
    if remembered is None:
        return
    where = pipeline.source.address
    if now.system_identifier != remembered.system_identifier:
        raise changed(
            f"{where} is another Postgres cluster: its system identifier is {now.system_identifier}, not"
            f" {remembered.system_identifier}"
        )
    if now.timeline != remembered.timeline:
        raise changed(
            f"{where} is on timeline {now.timeline}, not {remembered.timeline}: it failed over, or was restored to a"
            " point in time"
        )


def refuse_shorter(
    pipeline: Pipeline, now: Moment, remembered: Remembered | None, witness: tuple[str, int] | None
) -> None:
    """Refuse a log that has become shorter; another installation of our tables voids what was remembered.

    Raises:
        SourceChanged: (terminal).
    """
    if remembered is None or now.standby:
        return
    if remembered.installation is not None and witness is not None and witness[0] != remembered.installation:
        return
    where = pipeline.source.address
    if now.wal_lsn < remembered.wal_lsn:
        raise changed(
            f"the log of {where} ends at {format_lsn(now.wal_lsn)}, and went to {format_lsn(remembered.wal_lsn)}"
            " before: it was restored from an older copy"
        )


def refuse_forgotten(remembered: Remembered | None, witness: tuple[str, int] | None) -> None:
    """Refuse a database that does not know what this runner has written into it.

    Another installation of our tables is no reason: then the pipeline was dropped and applied again.

    Raises:
        SourceChanged: (terminal).
    """
    if remembered is None or remembered.installation is None:
        return
    if witness is None:
        raise changed(GONE)
    installation, count = witness
    if installation == remembered.installation and count < remembered.witness:
        raise changed(
            f"the database does not know what was written into it: {remembered.witness} times by this runner, it says"
            f" {count}: it was restored from an older copy"
        )


def refuse_future(now: Moment, offset: Mapping[str, Any] | None) -> None:
    """Refuse an offset beyond the end of the log: Debezium would wait, and skip all changes up to there.

    Raises:
        SourceChanged: (terminal).
    """
    if offset is None or now.standby:
        return
    read = reached_lsn(offset)  # also in a snapshot
    if read > now.wal_lsn:
        raise changed(
            f"the connector has read up to {format_lsn(read)}, but the database's log ends at"
            f" {format_lsn(now.wal_lsn)}: it was restored from an older copy, or is another one"
        )


def refuse_unfollowed(noted: int | None, now: Moment) -> None:
    """Refuse a timeline that nobody has followed: the connector does not read there either.

    Args:
        noted: the timeline that is followed, as the database says; None where nothing is noted.
        now: where the server is.

    Raises:
        SourceChanged: (terminal).
    """
    if noted is None or now.standby or noted == now.timeline:
        return
    error = changed(f"the database is on timeline {now.timeline}, and timeline {noted} is what was followed")
    error.fix = f"`headwater run FILE` where it ran before: it follows a promoted standby, or says why not; {error.fix}"
    raise error


def refuse_other(config: Mapping[str, str], now: Moment) -> None:
    """Refuse a connector that was made for another cluster.

    Raises:
        SourceChanged: (terminal).
    """
    known = config.get(SYSTEM_IDENTIFIER)
    if known is not None and known != now.system_identifier:
        raise changed(
            f"the connector was made for the Postgres cluster {known}; the address now leads to {now.system_identifier}"
        )


def refuse_other_database(name: str, database: str, config: Mapping[str, str], slot: Slot | None) -> None:
    """Refuse a connector that reads another database of the same cluster.

    One that was renamed is no other: its slot bears the new name.

    Args:
        name: the pipeline's.
        database: which the file names.
        config: the connector's, as it runs.
        slot: as it is; None if there is none.

    Raises:
        SourceChanged: (terminal).
    """
    if slot is None or slot.database == database:
        return
    raise SourceChanged(
        f"pipeline {name} captures database {config.get('database.dbname', slot.database)} already, and the file names"
        f" {database}; its slot decodes {slot.database}",
        means="two pipelines have one name, or the file leads to another database: rows of both would stand in one log;"
        " nothing was changed",
        fix=f"give one of them another `name`; or, if this pipeline has moved, `headwater drop OLDFILE --topics"
        f" --keep-sinks` with a copy of the file that has `source.database: {slot.database}`, then {BEGIN_AGAIN};"
        " readers keep what they have meanwhile",
    )


def changed(what: str) -> SourceChanged:
    """The error for another history."""
    return SourceChanged(
        what,
        means="positions of the two histories can't be compared: new changes could look older than what the sinks"
        " hold, and rows that are no longer there would stay; nothing was written",
        fix=f"point the pipeline at the right server again, or accept this one: {BEGIN_AGAIN}",
    )
