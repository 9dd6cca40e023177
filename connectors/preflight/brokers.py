"""Do the brokers answer, and are the topics as they must be?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import ConnectError, KafkaError
from connectors.debezium import connector_name
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.topics import plan_topics, wanted_topics


def run(site: Site) -> Iterator[Finding]:
    """Brokers answer; existing topics have the right partitions and settings."""
    try:
        site.kafka.describe([])
    except KafkaError as error:
        yield Finding(Level.ERROR, site.pipeline.kafka.bootstrap, error.what, error.fix)
        return
    if "tables" in site.failed:
        return
    wanted = wanted_topics(site.pipeline, site.catalogue)
    actual = site.kafka.describe([topic.name for topic in wanted])
    try:
        actions = plan_topics(wanted, actual)
    except KafkaError as error:
        yield Finding(Level.ERROR, "topics", f"{error.what}: {error.means}", error.fix)
        return
    missing = [action.name for action in actions if action.before is None]
    if missing:
        yield _missing(site, missing)
    for action in actions:
        if action.before is not None:
            level = Level.ERROR if "cleanup.policy" in action.after else Level.WARNING
            message = f"other settings than the pipeline's: {action.detail.removeprefix('set ')} is wanted"
            yield Finding(level, action.name, message, "`headwater apply` sets them")


def _missing(site: Site, topics: list[str]) -> Finding:
    """Before the first apply that is as it should be; later a connector waits for such a topic for ever."""
    try:
        exists = site.connect.config(connector_name(site.pipeline)) is not None
    except ConnectError:
        exists = False  # the check «connect» says so
    if not exists:
        return Finding(Level.NOTE, "topics", f"{len(topics)} topics do not exist yet", "`headwater apply` creates them")
    message = f"topics are gone that the connector writes to: {', '.join(topics)}; it waits, and says RUNNING"
    return Finding(Level.ERROR, "topics", message, "`headwater apply` creates them, and reads the tables again")


CHECK = Check("kafka", "Kafka answers and the topics are right", run)
