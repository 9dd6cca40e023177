"""Do the brokers answer, are the topics as they must be, and do they hold all that was written into them?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cdc.errors import ConfigError, ConnectError, KafkaError
from cdc.java_kafka import java_client
from cdc.log.client import Topic
from connectors.captured.captured import read_captured
from connectors.captured.changed import merged, refusal
from connectors.captured.lost_records import lost_records
from connectors.connector import read_connector
from connectors.debezium import connector_name, marker_topic
from connectors.marker_watch import refuse_lost_marker
from connectors.preflight.gathered import some
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.topics import plan_topics, settings_said, to_make, wanted_topics


def run(site: Site) -> Iterator[Finding]:
    """Brokers answer and take records; existing topics have the right partitions and settings, and lost nothing."""
    try:
        site.kafka.describe([])
    except KafkaError as error:
        yield Finding(Level.ERROR, site.pipeline.kafka.bootstrap, error.what, error.fix)
        return
    try:
        java_client(site.pipeline.kafka.options_plain())
    except ConfigError as error:  # of a file: what the options themselves lack was refused with the pipeline's
        yield Finding(Level.ERROR, "kafka.options", error.what, error.fix)
    if "tables" in site.failed:
        return
    wanted = wanted_topics(site.pipeline, site.catalogue)
    actual = site.kafka.describe([topic.name for topic in wanted])
    try:
        actions = plan_topics(wanted, actual, site.kafka.beginning([""]) if to_make(wanted, actual) else ())
    except KafkaError as error:
        yield Finding(Level.ERROR, "topics", f"{error.what}: {error.means}", error.fix)
        return
    missing = [action.name for action in actions if action.before is None]
    if missing:
        yield _missing(site, missing)
    for action in actions:
        if action.before is not None:
            level = Level.ERROR if "cleanup.policy" in action.after else Level.WARNING
            wanted_here = f"other settings than the pipeline's: {settings_said(action.after)} is wanted"
            many = f"{{n}} topics ({{names}}) have {wanted_here}"
            yield Finding(level, action.name, wanted_here, "`headwater apply` sets them", many)
    yield from _few_copies(wanted, actual)
    yield from _lost(site, actual)


def _few_copies(wanted: Iterable[Topic], actual: Mapping[str, Topic]) -> Iterator[Finding]:
    """Topics that hold fewer copies than the file says: who has raised it there believes them safe. Pure."""
    fix = "give them more with Kafka's kafka-reassign-partitions.sh; `headwater apply` makes only new topics with them"
    for topic in wanted:
        there = actual.get(topic.name)
        if there is not None and 0 < there.replication < topic.replication:
            copies = "1 copy" if there.replication == 1 else f"{there.replication} copies"
            said = f"of each record, and kafka.replication_factor is {topic.replication}"
            many = f"{{n}} topics ({{names}}) hold {copies} {said}"
            yield Finding(Level.WARNING, topic.name, f"it holds {copies} {said}", fix, many)


def _lost(site: Site, actual: Mapping[str, Topic]) -> Iterator[Finding]:
    """Topics that have lost records which nobody writes again: a sink that is built anew would lack those rows."""
    if isinstance(site.source, Exception):
        return
    connection = site.db if isinstance(site.setup, Exception) else site.setup
    captured = read_captured(connection, site.names)
    if not captured:
        return
    first = site.kafka.ends({topic.name: topic.partitions for topic in actual.values()}, first=True)
    for table, change in lost_records(site.pipeline, captured, first, site.kafka.ids(actual)).items():
        error = refusal(table, merged(None, change))
        yield Finding(Level.ERROR, table, f"{error.what}: {error.means}", error.fix)
    try:
        connector = read_connector(site.connect, connector_name(site.pipeline))
        refuse_lost_marker(site.kafka, site.pipeline, first, connector, captured)
    except ConnectError:
        return  # the check «connect» says so
    except KafkaError as error:
        yield Finding(Level.ERROR, marker_topic(site.pipeline), f"{error.what}: {error.means}", error.fix)


def _missing(site: Site, topics: list[str]) -> Finding:
    """Before the first apply that is as it should be; later a connector waits for such a topic for ever."""
    try:
        exists = site.connect.config(connector_name(site.pipeline)) is not None
    except ConnectError:
        exists = False  # the check «connect» says so
    if not exists:
        return Finding(Level.NOTE, "topics", f"{len(topics)} topics do not exist yet", "`headwater apply` creates them")
    message, short = (
        f"topics are gone that the connector writes to: {named}; it waits, and says RUNNING"
        for named in (", ".join(topics), some(topics))
    )
    fix = "`headwater apply` creates them, and reads the tables again"
    return Finding(Level.ERROR, "topics", message, fix, short=short)


CHECK = Check("kafka", "Kafka answers and the topics are right", run)
