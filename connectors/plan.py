"""The difference between what a pipeline file asks for and what is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cdc.catalogue import Catalogue
from cdc.errors import KafkaError, SourceError
from cdc.log.client import Topic
from cdc.outbox import is_outbox, topics_of_table, topics_of_tables
from cdc.pipeline import Pipeline
from connectors.absent_keys import refuse_keys, unsure
from connectors.actions import Action
from connectors.captured import Captured, Gap, mark, plan_captured, read_captured, read_left
from connectors.changed import Change, complete, differences, left_out, look_at, merged, refusal
from connectors.connector import RunningConnector, keeping, plan_connector, plan_renewal, read_connector, wait_ready
from connectors.cut_snapshot import sweep
from connectors.database.grants import plan_grants
from connectors.database.history import Moment, read_moment
from connectors.database.identity import plan_replica_identity
from connectors.database.publication import Publication, plan_publication, read_publication
from connectors.database.schema import plan_schema
from connectors.database.slot import Slot, read_slot
from connectors.database.timeline import noted_timeline
from connectors.database.truncate import plan_truncate
from connectors.database.write_tokens import plan_write_tokens
from connectors.debezium import connector_config, marker_topic
from connectors.failover import plan_failover
from connectors.lost_records import lost_records
from connectors.marker_watch import has_skipped, refuse_lost_marker
from connectors.preflight import outbox, primary_keys, tables, toast
from connectors.preflight.gathered import gathered
from connectors.preflight.model import Level, Site
from connectors.servers import Servers
from connectors.signals import COMPLETE, Heard, Notifications, send_snapshot_signal
from connectors.source_gaps import (
    refuse_empty,
    refuse_future,
    refuse_gap,
    refuse_other,
    refuse_other_database,
    refuse_unfollowed,
)
from connectors.tables.catalogue import read_catalogue
from connectors.tables.facts import TableFacts, read_facts
from connectors.topics import plan_topics, wanted_topics

# A signal is seen within a second and begins at once; one that nobody works on after this long was lost.
LOST_SECONDS = 60


@dataclass(frozen=True)
class Actual:
    """Everything that is there; ``gaps`` are of tables that must be read again, for changes of theirs are missing.

    ``noted`` is the timeline that is followed, if that is noted; ``plugins`` the classes that Connect's worker has;
    ``skipped`` that the connector streams without having read the tables first.
    """

    catalogue: Catalogue
    facts: dict[str, TableFacts]
    publication: Publication | None
    slot: Slot | None
    connector: RunningConnector | None
    captured: dict[str, Captured]
    gaps: dict[str, Gap]
    topics: dict[str, Topic]
    records: dict[str, int]
    now: Moment
    noted: int | None = None
    plugins: frozenset[str] = frozenset()
    skipped: bool = False

    @property
    def fresh(self) -> bool:
        """Nothing was ever captured: the connector's initial snapshot will read every table."""
        return self.slot is None and (self.connector is None or self.connector.offset is None)


def observe(servers: Servers) -> Actual:
    """Read what is there, from all three servers; changes nothing.

    Raises:
        TableChanged: a captured table has another name now, or was dropped (terminal).
        KafkaError: the initial snapshot's position was deleted (terminal).
        SourceError, KafkaError, ConnectError: a server refused or does not answer (the last may be transient).
    """
    pipeline = servers.pipeline
    captured = read_captured(servers.setup, servers.names)
    changed = find_changes(servers, captured)
    places = {t: str(pipeline.locate(("source", "tables", i))) for i, t in enumerate(pipeline.source.tables)}
    catalogue = read_catalogue(servers.setup, pipeline.source.tables, places)
    left = read_left(servers.setup, servers.names)
    if back := {table: entry for table, entry in left.items() if table in catalogue.tables}:
        captured, changed = captured | back, changed | find_changes(servers, back)
    topics = servers.kafka.describe([topic.name for topic in wanted_topics(pipeline, catalogue)])
    counts = {topic.name: topic.partitions for topic in topics.values()}
    first, end = servers.kafka.ends(counts, first=True), servers.kafka.ends(counts)
    slot = read_slot(servers.source, pipeline.source.slot)
    connector = read_connector(servers.connect, servers.connector)  # after the slot, which must not overtake it
    if captured:
        refuse_lost_marker(servers.kafka, pipeline, first, connector, captured)
    lost = lost_records(pipeline, captured, first, servers.kafka.ids(counts) if captured else {})
    narrowed = left_out(captured, connector.config, pipeline.connect.options) if connector is not None else {}
    return Actual(
        catalogue=catalogue,
        facts=read_facts(servers.setup, catalogue.tables, pipeline.source.user),
        publication=read_publication(servers.setup, pipeline.source.publication),
        slot=slot,
        connector=connector,
        captured=captured,
        gaps=find_gaps(captured, {**narrowed, **lost, **changed}),
        topics=topics,
        records={name: sum(end[name].values()) - sum(first[name].values()) for name in topics},
        now=read_moment(servers.source),
        noted=noted_timeline(servers.setup, servers.names),
        plugins=frozenset(servers.connect.plugins(connectors_only=False)),
        skipped=any(entry.state == "initial" for entry in captured.values())
        and has_skipped(servers.kafka, pipeline, connector),
    )


def find_changes(servers: Servers, captured: Mapping[str, Captured]) -> dict[str, Change]:
    """Tables that are not those that were captured.

    Raises:
        TableChanged: one that the file names is not there under its name (terminal).
    """
    publication = servers.pipeline.source.publication
    found = differences(captured, look_at(servers.setup, publication, captured), publication)
    for table, change in found.items():
        if change.gone and table in servers.pipeline.source.tables:
            raise refusal(table, merged(captured[table].gap, change), gone=True)
    return found


def find_gaps(captured: Mapping[str, Captured], found: Mapping[str, Change]) -> dict[str, Gap]:
    """Tables whose changes are missing, found now or noted, and that are not being read again yet. Pure."""
    gaps = {}
    for table, entry in captured.items():
        # An older version that was killed could note a table as read, and its gap as being mended for ever.
        if table in found or (entry.gap is not None and (not entry.gap.mending or entry.state == "done")):
            gaps[table] = merged(entry.gap, found.get(table), mending=True)
    return gaps


def plan(servers: Servers, actual: Actual, *, forget: bool = True) -> list[Action]:
    """The actions that lead from what is there to what the file asks for, in the order in which they are safe.

    Args:
        servers: for questions about rights and triggers, whose answers depend on the names asked for; not changed.
        actual: from ``observe``.
        forget: captured tables that are gone are not captured any more; without it they stay in the list, with their
            gap.

    Raises:
        SourceError: the slot can't give every change since the connector's last (terminal).
        KafkaError: a topic would need another number of partitions, or holds records of an earlier capture (terminal).
    """
    refuse_discontinued(servers.pipeline, actual)
    first, noted, last = prepare(servers, actual, forget=forget)
    pipeline = servers.pipeline
    config = connector_config(pipeline, actual.catalogue, list(actual.facts.values()), actual.plugins)
    return [
        *first,
        *plan_connector(
            servers.connector, config, actual.connector, slot=actual.slot is not None, skipped=actual.skipped
        ),
        *plan_failover(servers, actual.slot, actual.connector),
        *plan_sweep(servers, actual),
        *plan_snapshot(servers, actual, noted),
        *last,
    ]


def prepare(servers: Servers, actual: Actual, *, forget: bool = True) -> tuple[list[Action], set[str], list[Action]]:
    """The actions on Postgres and on topics: before the connector's, and after them; and which tables it must read.

    Args:
        servers, actual, forget: as ``plan``.

    Raises:
        SourceError, KafkaError: as ``plan``.
    """
    pipeline, names = servers.pipeline, servers.names
    captured = list(actual.catalogue.tables)
    # Of the outbox only inserts matter: its updates, deletes and TRUNCATE are no events.
    facts = [fact for name, fact in actual.facts.items() if not is_outbox(pipeline, name)]
    refuse_unfit(servers)
    refuse_old_records(servers, actual)
    publication, publication_after = plan_publication(
        actual.publication,
        pipeline.source.publication,
        [*captured, *names.published],
        servers.setup.info.server_version,
    )
    triggers, triggers_after = plan_truncate(servers.setup, names, facts, pipeline.policy.truncate)
    emptied = emptied_tables(servers, actual)
    gaps = {t: gap for t, gap in actual.gaps.items() if t in actual.catalogue.tables and not actual.fresh}
    anew = tables_anew(actual, gaps) - {name for name in gaps if is_outbox(pipeline, name)}  # events stay
    noted, forgotten = plan_captured(
        names,
        pipeline.source.publication,
        captured,
        actual.captured,
        fresh=actual.fresh,
        emptied={*emptied, *anew},
        gaps=gaps,
        stay=() if forget else {table for table in actual.captured if pipeline.captures(table)},
    )
    grants = plan_grants(servers.setup, pipeline.source.user, names, captured) if pipeline.source.setup_user else []
    wanted = wanted_topics(pipeline, actual.catalogue)
    renewed = [topic for topic in wanted if topic.name in {pipeline.topic(table) for table in anew}]
    before = [
        *plan_schema(servers.setup, names),
        *plan_write_tokens(servers.setup, names),
        *plan_replica_identity(facts, pipeline.policy.toast),
        *triggers,
        *grants,
        *publication,
        *plan_topics(wanted, actual.topics),
        *plan_renewal(servers.connector, sorted(gaps), renewed, keeping(pipeline), there=actual.connector is not None),
        *noted,
    ]
    return (
        before,
        {action.name for action in noted if action.kind == "snapshot"},
        [
            *publication_after,
            *triggers_after,
            *forgotten,
        ],
    )


def tables_anew(actual: Actual, gaps: Mapping[str, Gap]) -> set[str]:
    """Tables whose topics can't be gone on with: of another key, or of one whose missed deletes can't be looked for.

    Raises:
        SourceError: one of them can't be read again at all (terminal).
    """
    changed = {table: actual.catalogue.tables[table] for table in gaps}
    refuse_keys(Catalogue(changed), sweep=False)
    return {name for name, table in changed.items() if gaps[name].key or unsure(table) is not None}


def refuse_discontinued(pipeline: Pipeline, actual: Actual) -> None:
    """Refuse what can't be continued from where the connector has read. Pure.

    Raises:
        SourceChanged, SlotLost, LogGap: (terminal).
    """
    running = actual.connector
    if running is None:
        return
    source = pipeline.source
    refuse_other(running.config, actual.now)
    refuse_other_database(pipeline.name, source.database, running.config, actual.slot)
    refuse_future(actual.now, running.offset)
    refuse_unfollowed(actual.noted, actual.now)
    refuse_empty(actual.slot, running.offset, actual.captured)
    # One that has failed before its first record has made its slot, and begins anew.
    begun = any(entry.state != "initial" for entry in actual.captured.values())
    if running.offset is not None or (actual.slot is not None and begun):
        refuse_gap(source.slot, actual.slot, running.offset)


def refuse_unfit(servers: Servers) -> None:
    """Refuse tables that can't be captured, or whose updates Postgres would refuse to the application once published.

    Raises:
        SourceError: every finding of the checks that are about the tables themselves (terminal).
    """
    site = Site(servers.pipeline, servers.source, servers.setup, servers.kafka, servers.connect)
    checks = [tables.CHECK, primary_keys.CHECK, toast.CHECK]
    if servers.pipeline.source.outbox is not None:
        checks.append(outbox.CHECK)
    found = [finding for check in checks for finding in check.run(site)]
    errors = gathered(finding for finding in found if finding.level is Level.ERROR)
    if errors:
        raise SourceError(
            "; ".join(finding.message for finding in errors),
            means="nothing was changed",
            fix="; ".join(dict.fromkeys(finding.fix for finding in errors)),
        )


def refuse_old_records(servers: Servers, actual: Actual) -> None:
    """Refuse to snapshot into a topic that holds an earlier capture: rows deleted since would stay in it for ever.

    Raises:
        KafkaError: names the topics (terminal).
    """
    new = [table for table in actual.catalogue.tables if actual.fresh or table not in actual.captured]
    topics = topics_of_tables(servers.pipeline, new)
    topics += [marker_topic(servers.pipeline)] if actual.fresh else []
    full = [topic for topic in topics if actual.records.get(topic)]
    if full:
        raise KafkaError(
            f"not captured yet, but there are records already: {', '.join(full)}",
            means="they are of an earlier capture; rows deleted since then would come back in every view",
            fix="`headwater drop FILE --topics` (all its topics) before apply; or choose another kafka.topic_prefix",
        )


def emptied_tables(servers: Servers, actual: Actual) -> list[str]:
    """Captured tables whose topic somebody has deleted: a new one would lack every row that does not change again.

    Raises:
        KafkaError: it is the marker's topic, whose one record only an initial snapshot can write (terminal).
    """
    if actual.fresh or not actual.captured:
        return []
    if marker_topic(servers.pipeline) not in actual.topics:
        raise KafkaError(
            f"topic {marker_topic(servers.pipeline)} is gone, which holds the initial snapshot's position",
            fix="`headwater drop FILE --topics`, then `headwater apply FILE` for a new snapshot, and rebuild the sinks",
        )
    pipeline = servers.pipeline
    return [table for table in actual.captured if not {*topics_of_table(pipeline, table)} & actual.topics.keys()]


def plan_snapshot(servers: Servers, actual: Actual, noted: set[str]) -> list[Action]:
    """One signal for all tables whose rows are still to be asked for, or whose request was lost."""
    if actual.fresh:
        return []
    asked = {entry.table for entry in actual.captured.values() if entry.state == "wanted"}
    asked |= lost_requests(servers, actual.captured, actual.connector)
    missing: dict[str, str | None] = {table: actual.captured[table].condition for table in asked}
    missing |= dict.fromkeys(noted)  # read for the first time, or because of a gap: whole
    missing = {table: condition for table, condition in missing.items() if table in actual.catalogue.tables}
    if not missing:
        return []

    def run(servers: Servers) -> None:
        wait_ready(servers)
        request(servers, missing)

    of = tuple(sorted(missing))
    return [Action("snapshot", ", ".join(of), "send a signal for an incremental snapshot", None, "requested", run, of)]


def request(servers: Servers, tables: Mapping[str, str | None]) -> None:
    """Send a signal for tables, each with a condition on its rows or None, to a connector that runs; note it."""
    signal_id = send_snapshot_signal(servers.kafka, servers.pipeline, tables)
    mark(servers.setup, servers.names, tables, "requested", signal_id)


def plan_sweep(servers: Servers, actual: Actual) -> list[Action]:
    """Remove what an interrupted initial snapshot left behind, if nobody has waited for its end (which does it too)."""
    initial = sorted(entry.table for entry in actual.captured.values() if entry.state == "initial")
    initial = [table for table in initial if table in actual.catalogue.tables]
    if not initial or actual.connector is None or not actual.connector.streaming or actual.slot is None:
        return []
    if hear(servers).attempts < 2:
        return []

    def run(servers: Servers) -> None:
        sweep(servers, initial)
        seen = [actual.captured[table] for table in initial]
        complete(servers.setup, servers.names, servers.pipeline.source.publication, seen)

    detail, of = "remove what an interrupted snapshot left", tuple(initial)
    return [Action("snapshot", ", ".join(of), detail, "interrupted", "done", run, of)]


def hear(servers: Servers) -> Heard:
    """What Debezium has told of its snapshots up to now."""
    notifications = Notifications(servers.kafka, servers.pipeline)
    try:
        return notifications.catch_up()
    finally:
        notifications.close()


def lost_requests(servers: Servers, captured: Mapping[str, Captured], connector: RunningConnector | None) -> set[str]:
    """Tables that were asked for a while ago, and that Debezium neither works on nor has finished."""
    requested = [entry for entry in captured.values() if entry.state == "requested"]
    old = [e for e in requested if datetime.now(UTC) - e.changed_at > timedelta(seconds=LOST_SECONDS)]
    if not old or (connector is not None and connector.in_incremental_snapshot):
        return set()
    heard = hear(servers)
    return {entry.table for entry in old if not is_complete(heard, entry)}


def is_complete(heard: Heard, entry: Captured) -> bool:
    """Debezium has said that all rows of a requested table were sent."""
    return heard.statuses.get(entry.signal_id or "", {}).get(entry.table) in COMPLETE


def has_failed(heard: Heard, entry: Captured) -> bool:
    """Debezium has said that it could not read a requested table."""
    return heard.statuses.get(entry.signal_id or "", {}).get(entry.table, "SUCCEEDED") not in COMPLETE


__all__ = ["Actual", "has_failed", "hear", "is_complete", "lost_requests", "observe", "plan", "prepare", "request"]
