"""What `apply` refuses because changes would be missing, or come back; and tables whose topics begin anew."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.catalogue import Catalogue
from cdc.errors import KafkaError, SourceError
from cdc.outbox import topics_of_table, topics_of_tables
from cdc.pipeline import Pipeline
from connectors.actual import Actual
from connectors.captured.captured import Gap
from connectors.debezium import marker_topic
from connectors.gaps.lost_offset import refuse_lost_offset
from connectors.gaps.renamed import refuse_renamed
from connectors.gaps.source_gaps import (
    refuse_empty,
    refuse_future,
    refuse_gap,
    refuse_other,
    refuse_other_database,
    refuse_unfollowed,
)
from connectors.preflight import outbox, primary_keys, tables, toast
from connectors.preflight.gathered import gathered
from connectors.preflight.model import Level, Site
from connectors.servers import Servers
from connectors.snapshots.absent_keys import refuse_keys, unsure


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
    refuse_renamed(pipeline, running.config)  # by another slot's name its own looks gone
    refuse_other(running.config, actual.now)
    refuse_other_database(pipeline.name, source.database, running.config, actual.slot)
    refuse_future(actual.now, running.offset)
    refuse_unfollowed(actual.noted, actual.now)
    refuse_empty(actual.slot, running.offset, actual.captured)
    refuse_lost_offset(running.offset, actual.captured)
    # One that has failed before its first record has made its slot, and begins anew.
    begun = any(entry.state != "initial" for entry in actual.captured.values())
    if running.offset is not None or (actual.slot is not None and begun):
        refuse_gap(source.slot, actual.slot, running.offset)


def refuse_unfit(servers: Servers, *, anew: bool = False) -> None:
    """Refuse tables that can't be captured, or whose updates Postgres would refuse to the application once published.

    Args:
        servers: of the pipeline.
        anew: what is captured is about to be left: what is only told of captured tables is refused.

    Raises:
        SourceError: every finding of the checks that are about the tables themselves (terminal).
    """
    site = Site(servers.pipeline, servers.source, servers.setup, servers.kafka, servers.connect, anew)
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
            fix="`headwater drop FILE --topics` (all its topics) before apply"
            + ("; or choose another kafka.topic_prefix" if actual.connector is None else ""),
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
