"""The difference between what a pipeline file asks for and what is there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cdc.outbox import is_outbox, topics_of_tables
from connectors.actions import Action
from connectors.actual import Actual
from connectors.brought import brought_to_tables
from connectors.captured.captured import plan_captured
from connectors.connector import keeping, plan_connector, plan_renewal
from connectors.database.grants import plan_grants
from connectors.database.publication import plan_publication, used_elsewhere
from connectors.database.replica_identity import plan_replica_identity
from connectors.database.schema import plan_schema
from connectors.database.truncate import plan_truncate
from connectors.database.write_tokens import plan_write_tokens
from connectors.debezium import connector_config
from connectors.failover import plan_failover
from connectors.gaps.lost_offset import refuse_read_twice
from connectors.plan_refusals import emptied_tables, refuse_discontinued, refuse_old_records, refuse_unfit, tables_anew
from connectors.servers import Servers
from connectors.snapshots.requests import plan_snapshot, plan_sweep
from connectors.tables.catalogue import read_catalogue
from connectors.tables.facts import read_facts
from connectors.topics import as_they_are, plan_topics, to_make, wanted_topics
from connectors.writers import plan_writers


def plan(servers: Servers, actual: Actual, *, adds_only: bool = False, generated: Collection[str] = ()) -> list[Action]:
    """The actions that lead from what is there to what the file asks for, in the order in which they are safe.

    Args:
        servers: for questions about rights and triggers, whose answers depend on the names asked for; not changed.
        actual: from ``observe``.
        adds_only: what the file's tables lack, and no more: tables that the file does not have, or that are gone, stay
            captured (those with their gap), and topics, connector and triggers as they are set.
        generated: with ``adds_only``, columns that were generated once (``schema.table.column``): the connector leaves
            them out because of that, and not because somebody has excluded them.

    Raises:
        SourceError: the slot can't give every change since the connector's last, or Connect has lost that (terminal).
        KafkaError: a topic would need another number of partitions, or holds records of an earlier capture (terminal).
    """
    refuse_discontinued(servers.pipeline, actual)
    first, noted, last = prepare(servers, actual, adds_only=adds_only)
    if actual.connector is not None:
        refuse_read_twice(servers.kafka, servers.pipeline, servers.setup, actual.captured)
    config = _config(servers, actual, generated, adds_only=adds_only)
    return [
        *first,
        *plan_connector(
            servers.connector, config, actual.connector, slot=actual.slot is not None, skipped=actual.skipped
        ),
        *([] if adds_only else plan_failover(servers, actual.slot, actual.connector)),
        *plan_sweep(servers, actual),
        *plan_snapshot(servers, actual, noted),
        *last,
    ]


def _config(servers: Servers, actual: Actual, generated: Collection[str], *, adds_only: bool) -> dict[str, str]:
    """The connector's configuration as it is to be."""
    pipeline, catalogue, facts = servers.pipeline, actual.catalogue, actual.facts
    if adds_only and (others := sorted(actual.captured.keys() - catalogue.tables.keys())):
        theirs = read_catalogue(servers.setup, others, absent=[]).tables
        catalogue = replace(catalogue, tables={**catalogue.tables, **theirs})
        facts = read_facts(servers.setup, catalogue.tables, pipeline.source.user)
    version = servers.source.info.server_version
    config = connector_config(pipeline, catalogue, list(facts.values()), actual.plugins, version)
    if not adds_only or actual.connector is None:
        return config
    now = [f"{fact.name}.{column}" for fact in facts.values() for column in fact.generated]
    ours = [*catalogue.tables, *actual.captured, *now, *generated]
    return brought_to_tables(actual.connector.config, config, ours, pipeline.connect.options)


def prepare(
    servers: Servers, actual: Actual, *, adds_only: bool = False
) -> tuple[list[Action], set[str], list[Action]]:
    """The actions on Postgres and on topics: before the connector's, and after them; and which tables it must read.

    Args:
        servers, actual, adds_only: as ``plan``.

    Raises:
        SourceError, KafkaError: as ``plan``.
    """
    pipeline, names = servers.pipeline, servers.names
    captured = list(actual.catalogue.tables)
    # Of the outbox only inserts matter: its updates, deletes and TRUNCATE are no events.
    facts = [fact for name, fact in actual.facts.items() if not is_outbox(pipeline, name)]
    refuse_unfit(servers)
    refuse_old_records(servers, actual)
    error = used_elsewhere(actual.publication, pipeline.source.publication, names, [*captured, *names.published])
    if error is not None and not actual.captured:
        raise error
    publication, publication_after = plan_publication(
        actual.publication,
        pipeline.source.publication,
        [*captured, *names.published],
        servers.setup.info.server_version,
        adds_only=adds_only,
    )
    triggers, triggers_after = plan_truncate(servers.setup, names, facts, pipeline.policy.truncate, adds_only=adds_only)
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
    )
    grants = plan_grants(servers.setup, pipeline.source.user, names, captured) if pipeline.source.setup_user else []
    wanted = wanted_topics(pipeline, actual.catalogue)
    if adds_only:
        come = topics_of_tables(pipeline, [table for table in captured if table not in actual.captured])
        wanted = as_they_are(wanted, {name: topic for name, topic in actual.topics.items() if name not in come})
    existing = servers.kafka.beginning([""]) if to_make(wanted, actual.topics) else ()
    renewed = [topic for topic in wanted if topic.name in {pipeline.topic(table) for table in anew}]
    before = [
        *plan_schema(servers.setup, names),
        *plan_write_tokens(servers.setup, names),
        *plan_replica_identity(facts, pipeline.policy.toast),
        *triggers,
        *grants,
        *publication,
        # A first slot is made behind the publication, and waits by itself for every transaction that is open.
        *([] if actual.fresh else plan_writers(pipeline.source.publication, captured, actual.captured, gaps)),
        *plan_topics(wanted, actual.topics, existing),
        *plan_renewal(servers.connector, sorted(gaps), renewed, keeping(pipeline), there=actual.connector is not None),
        *noted,
    ]
    after = [] if adds_only else [*publication_after, *triggers_after, *forgotten]
    return before, {action.name for action in noted if action.kind == "snapshot"}, after
