"""Removes what apply made, in the order in which a half-done drop can be run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from cdc.errors import SourceError
from cdc.log.client import Topic
from cdc.outbox import events_topics
from cdc.pipeline import Pipeline
from cdc.pipeline.models import DEAD_LETTERS
from cdc.sql_names import sql_name
from connectors.actions import Action, Show, run_all
from connectors.advisory_lock import changing
from connectors.captured.captured import read_captured, read_left
from connectors.connector import read_connector
from connectors.database.owners import refuse_foreign
from connectors.database.publication import made_here, read_publication
from connectors.database.schema import drop_schema
from connectors.database.sessions import end_sessions
from connectors.database.slot import drop_lost_slot, drop_slot, read_slot
from connectors.database.truncate import TRIGGERS, drop_triggers
from connectors.debezium import connector_name, marker_topic, signal_group
from connectors.gaps.renamed import refuse_renamed
from connectors.gaps.source_gaps import refuse_other_database
from connectors.only_copies import GONE, Holds, only_copies
from connectors.postgres import connect, explained
from connectors.rest import ConnectClient
from connectors.servers import Servers, open_servers
from connectors.tables.catalogue import read_catalogue
from connectors.topics import control_topics


def plan_drop(servers: Servers, *, topics: bool) -> list[Action]:
    """What ``drop`` would remove. Changes nothing.

    Args:
        servers: of the pipeline.
        topics: the changelog topics and dead letters too; the connector's control topics always go.

    Raises:
        SourceChanged: the file names another slot, publication, schema or prefix than the connector has, or another
            database than its slot decodes (terminal).
        SourceError: the slot, or the helper schema, is that of somebody else (terminal).
    """
    pipeline, names = servers.pipeline, servers.names
    actions = []
    running = read_connector(servers.connect, servers.connector)
    slot = read_slot(servers.source, pipeline.source.slot)
    if running is not None:
        refuse_renamed(pipeline, running.config)  # nobody could find what it has, once the connector is gone
        refuse_other_database(pipeline.name, pipeline.source.database, running.config, slot)
        detail = "stop, forget its offsets, delete"
        actions.append(Action("connector", servers.connector, detail, "present", None, _connector))
    if slot is not None:
        actions.append(_slot(servers, slot.plugin, slot.database))
    actions += _of_publication(servers)
    with explained("reading what there is to drop"):
        triggers = sorted(t for t, _, _ in servers.setup.execute(TRIGGERS, [names.truncate_trigger]))
        ours = servers.setup.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = ANY(%s)",
            [names.schema, list(names.tables)],
        ).fetchall()
    if ours:
        refuse_foreign(servers.setup, names)
    if triggers:
        detail, of = "drop the TRUNCATE triggers", tuple(triggers)
        actions.append(Action("trigger", ", ".join(of), detail, "present", None, _triggers, of))
    there = servers.kafka.describe(_topics(servers, topics=topics))
    alone = _only_copies(servers, there)
    for holds in (None, *GONE):
        if gone := tuple(sorted(name for name in there if alone.get(name) == holds)):
            detail = f"delete: {GONE[holds]}" if holds else "delete"
            run = partial(_delete_topics, topics=gone)
            actions.append(Action("topic", ", ".join(gone), detail, "present", None, run, gone))
    if ours:  # last: it holds the list of captured tables, by which a second run finds the topics
        actions.append(Action("schema", names.schema, "drop this pipeline's tables", "present", None, _schema))
    return actions


def _topics(servers: Servers, *, topics: bool) -> list[str]:
    """Control topics; with ``topics`` also those of the listed tables, whether the file still names them or not."""
    pipeline = servers.pipeline
    names = [topic.name for topic in control_topics(pipeline)]
    if topics:
        captured = {*read_captured(servers.setup, servers.names), *read_left(servers.setup, servers.names)}
        named = [table for table in pipeline.source.tables if not table.endswith(".*")]
        names += [pipeline.topic(table) for table in captured.union(named)] + [
            *events_topics(pipeline),
            marker_topic(pipeline),
            pipeline.dead_letter_topic,
            *_topics_of_schemas(servers, listed=bool(captured)),
        ]
    return sorted(set(names))  # no broker describes one twice


def _only_copies(servers: Servers, there: Mapping[str, Topic]) -> dict[str, Holds]:
    """As ``only_copies``, without those that never held a record. One whose events are over `keep_days` stays among
    them: sinks may hold what was made of these."""
    found = only_copies(servers.pipeline, there)
    if not found:
        return {}
    ends = servers.kafka.ends({name: there[name].partitions for name in found}, written=True)
    return {name: holds for name, holds in found.items() if any(ends[name].values())}


def _topics_of_schemas(servers: Servers, *, listed: bool) -> list[str]:
    """Topics of schemas that the file has captured whole.

    Where an earlier ``drop`` took the list that names their tables, nobody knows the names of those that are gone;
    their topics go by theirs. What has another dot behind the schema, or is called as dead letters are, may be of a
    pipeline whose prefix is ours with the schema; what is not compacted, as each topic of a table is, is somebody
    else's: that pipeline's control topics and events, or what an application makes of our topics' names.
    """
    pipeline = servers.pipeline
    whole = [table for table in pipeline.source.tables if table.endswith(".*")]
    if not whole:
        return []
    names = {pipeline.topic(table) for table in read_catalogue(servers.setup, whole, absent=[]).tables}
    if listed:
        return sorted(names)
    begins = [pipeline.topic(table.removesuffix("*")) for table in whole]
    rests = {
        name: next(name.removeprefix(one) for one in begins if name.startswith(one))
        for name in servers.kafka.beginning(begins)
    }
    guessed = [name for name, rest in rests.items() if "." not in rest and rest != DEAD_LETTERS]
    found = servers.kafka.describe(guessed).values()
    # A list, which somebody may have lengthened (`compact,delete`).
    return sorted(names | {topic.name for topic in found if "compact" in topic.config.get("cleanup.policy", "")})


def _slot(servers: Servers, plugin: str, database: str) -> Action:
    name = servers.pipeline.source.slot
    if plugin != "pgoutput" or database != servers.pipeline.source.database:
        raise SourceError(
            f"slot {name} is not this pipeline's: it decodes database {database} with {plugin}",
            means="dropping it would break whatever reads from it; nothing was dropped",
            fix="correct source.slot, or source.database, in the pipeline file",
        )
    return Action("slot", name, "drop; Postgres may then forget the WAL it kept", "present", None, _drop_slot)


def _of_publication(servers: Servers) -> list[Action]:
    """What is to be done with the publication; one that stays is an action that does nothing, and says why."""
    name = servers.pipeline.source.publication
    actual = read_publication(servers.setup, name)
    if actual is None:
        return []
    if actual.owned and made_here(actual, name, servers.names):
        return [Action("publication", name, "drop", "present", None, _publication)]
    whose = "nothing tells that this pipeline has made it" if actual.owned else f"it belongs to {actual.owner}"
    return [Action("publication", name, f"stays: {whose}; DROP PUBLICATION {sql_name(name)}", "present", "present")]


def _connector(servers: Servers) -> None:
    name = servers.connector
    drop_lost_slot(servers.source, servers.pipeline.source.slot)
    servers.connect.stop(name)
    servers.connect.wait_stopped(name)
    # Connect keeps the offsets of a deleted connector, and a namesake would go on from them into a gap.
    servers.connect.delete_offsets(name)
    servers.connect.delete(name)
    end_sessions(servers.source, servers.names, servers.pipeline.source.slot)


def _drop_slot(servers: Servers) -> None:
    drop_slot(servers.source, servers.pipeline.source.slot)


def _publication(servers: Servers) -> None:
    from psycopg import sql

    name = servers.pipeline.source.publication
    with explained(f"dropping publication {name}"):
        servers.setup.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def _triggers(servers: Servers) -> None:
    drop_triggers(servers.setup, servers.names)


def _delete_topics(servers: Servers, topics: Sequence[str]) -> None:
    servers.kafka.delete(list(topics))
    servers.kafka.delete_group(signal_group(servers.pipeline))


def _schema(servers: Servers) -> None:
    drop_schema(servers.setup, servers.names)


def plan_drop_pipeline(pipeline: Pipeline, *, topics: bool = False) -> list[Action]:
    """What ``drop`` would remove. Changes nothing."""
    with open_servers(pipeline) as servers:
        return plan_drop(servers, topics=topics)


def is_captured(pipeline: Pipeline) -> bool:
    """Whether a pipeline's connector is there, or its slot; nothing else is asked.

    Raises:
        ConnectError, SourceError: Kafka Connect or Postgres does not answer, or refuses.
    """
    with closing(ConnectClient(pipeline.connect)) as client:
        if client.config(connector_name(pipeline)) is not None:
            return True
    with connect(pipeline.source) as source:
        return read_slot(source, pipeline.source.slot) is not None


def deleted_for_good(pipeline: Pipeline) -> dict[str, Holds]:
    """Topics that ``drop`` would delete with the others, and that are the only copy of what they hold: topic -> of
    what. Changes nothing.

    Raises:
        HeadwaterError: Postgres or Kafka does not answer, or refuses.
    """
    with open_servers(pipeline) as servers:
        return _only_copies(servers, servers.kafka.describe(_topics(servers, topics=True)))


def drop(
    pipeline: Pipeline, progress: Show = lambda action: None, *, topics: bool = False, first: Sequence[Action] = ()
) -> list[Action]:
    """Remove connector, offsets, slot, publication, triggers, control topics and helper tables.

    Args:
        pipeline: the loaded file.
        progress: called after each action.
        topics: delete the changelog topics and the dead letters too.
        first: what else is to be removed, before all of that: nobody applies or drops meanwhile, and none of it is done
            where the rest would be refused.

    Returns:
        What was removed; empty when there was nothing. What stays, as it is somebody else's, is among them, with an
        ``after``.

    Raises:
        HeadwaterError: an action failed; the message says how far it got. Running it again continues.
        SourceUnavailable: another ``apply`` or ``drop`` of the same pipeline takes long (transient).
    """
    with open_servers(pipeline) as servers, changing(servers):
        actions = [*first, *plan_drop(servers, topics=topics)]
        run_all(servers, actions, progress)
        return actions
