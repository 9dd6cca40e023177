"""What is there of a pipeline: in Postgres, in Kafka and in Kafka Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.catalogue import Catalogue
from cdc.log.client import Topic
from connectors.captured.captured import Captured, Gap, read_captured, read_left
from connectors.captured.changed import Change, differences, left_out, look_at, merged, refusal
from connectors.captured.lost_records import lost_records
from connectors.connector import RunningConnector, read_connector
from connectors.database.history import Moment, read_moment
from connectors.database.owners import refuse_foreign
from connectors.database.publication import Publication, read_publication
from connectors.database.slot import Slot, read_slot
from connectors.database.timeline import noted_timeline
from connectors.marker_watch import has_skipped, refuse_lost_marker
from connectors.servers import Servers
from connectors.tables.catalogue import read_catalogue
from connectors.tables.facts import TableFacts, read_facts
from connectors.topics import wanted_topics


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
        SourceError, KafkaError, ConnectError: a server refused or does not answer (the last may be transient); or the
            helper schema is somebody else's (terminal).
    """
    pipeline = servers.pipeline
    refuse_foreign(servers.setup, servers.names)
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
