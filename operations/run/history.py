"""A sink's history, taken by who runs it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc.catalogue import Catalogue, Table
from cdc.errors import HeadwaterError, SourceChanged, TopicRecreated
from cdc.log.letters import letters_config
from cdc.log.topic_ids import topic_ids
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import Fit
from cdc.same_key import key_from, key_parts, same_key
from cdc.shapes import Shapes
from cdc.types import supported
from cdc.view import View
from operations.generations.elsewhere import note_claim, noted_claim, refuse_claimed
from operations.run.flows import reading
from operations.state.catalogue import source_catalogue
from operations.state.folder import numbered_state_dir
from operations.state.history import (
    FORMER,
    FRONTIERS,
    IDENTITY,
    STREAM,
    history_folder,
    history_lease,
    root_tables,
    topics_read,
)
from operations.state.pausing import refuse_paused
from operations.state.shapes import known_shapes
from sinks.iceberg.catalogue import catalog_name, open_catalog
from sinks.iceberg.history import claimed_history, has_key, put_aside
from spark.disk.applied import forget_applied
from spark.disk.checkpoint import forget_topics
from spark.disk.files import write_atomic
from spark.disk.lease import Lease
from spark.disk.notes import read_note
from spark.disk.refused import accepted, refuse
from spark.flow import Flow
from spark.reading.spec import FlowSpec
from spark.running import Query, Start
from spark.wanted import refuse_unwanted
from spark.warehouse.history.history import BEGUN, FLOW, begun_topics, start_history
from spark.warehouse.history.tables import HistoryPlace
from spark.warehouse.upkeep.upkeep import policy_of

_log = logging.getLogger(__name__)
LATE = (
    "compaction may begin to take events that it has not read: its tables would have a gap (raise "
    "kafka.compaction_lag_hours)"
)


@dataclass(frozen=True)
class OpenedHistory:
    """A sink's history: made once, by who runs it.

    Attributes:
        pipeline: the loaded file.
        sink: the sink's name.
        folder: its own.
        lease: on that.
        token: of the lease.
        source: identity of the source.
        said: what was done to take it, a line each.
    """

    pipeline: Pipeline
    sink: str
    folder: Path
    lease: Lease
    token: int
    source: str
    said: tuple[str, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """What lines about it are about (cdc/journal.py)."""
        return {"sink": self.sink, "flow": FLOW}


def open_history(pipeline: Pipeline, catalogue: Catalogue, sink: str) -> OpenedHistory:
    """Take a history's lease, and check that what it was read from is what is there.

    Raises:
        StateError: another process writes it, or its sink is paused (terminal).
        Fenced: a topic is another one now, and another state folder's process has claimed its history since (terminal).
        SourceChanged, TopicRecreated: it is the history of something else (terminal).
        ConfigError: a name of its tables is taken, by a view of the sink or another table (terminal).
    """
    numbered_state_dir(pipeline)
    folder = history_folder(pipeline, sink)
    lease = history_lease(folder, sink)
    token = lease.take()
    try:
        refuse_paused(pipeline, [sink], "nothing is written to its history")
        said = _bound(pipeline, catalogue, sink, folder)
    except BaseException:
        lease.release()
        raise
    return OpenedHistory(pipeline, sink, folder, lease, token, str(catalogue.system_identifier), tuple(said))


def _bound(pipeline: Pipeline, catalogue: Catalogue, sink: str, folder: Path) -> list[str]:
    """Bind it, and leave word if it can't be."""
    try:
        said = _bind(pipeline, catalogue, sink, folder, root_tables(pipeline, catalogue, sink))
    except HeadwaterError as error:
        refuse(folder, str(error))
        raise
    accepted(folder)
    return said


def _bind(pipeline: Pipeline, catalogue: Catalogue, sink: str, folder: Path, tables: dict[str, Table]) -> list[str]:
    """Remember what it is the history of; refuse something else later. What was done about it, a line each."""
    ids = topic_ids(pipeline, {pipeline.topic(table) for table in tables})
    path = folder / IDENTITY
    namespace = pipeline.sinks[sink].namespace  # type: ignore[union-attr]
    known, said = _of_namespace(folder, sink, namespace)
    elsewhere = "give the sink another namespace, where history begins anew; the old one stays readable"
    if known and known["system_identifier"] != str(catalogue.system_identifier):
        raise SourceChanged(
            f"history of sink {sink}: the address now leads to another Postgres cluster",
            means="two histories in one table could not be told apart; nothing was written",
            fix=elsewhere,
        )
    bound = known.get("topic_ids", {})
    other = {topic for topic, before in bound.items() if ids.get(topic, before) != before}
    anew, shapes = dict[str, Table](), known_shapes(pipeline)
    if other:  # whoever took the topics away knows the tables better than who has run since
        now = root_tables(pipeline, source_catalogue(pipeline), sink)
        _refuse_elsewhere(pipeline, sink, folder, now.values())  # what another machine has begun anew stays where it is
        anew = {pipeline.topic(name): table for name, table in now.items() if pipeline.topic(name) in other}
        shapes = known_shapes(pipeline)
        another = {topic for topic, table in anew.items() if not _same_key(known, topic, table, shapes)}
        aside = _put_aside(pipeline, sink, anew, another, elsewhere)
        _forget(folder / STREAM, other)
        said += [
            f"history of sink {sink}: {table.qualified} has another key, so its history begins anew"
            + (f"; what was is in {aside[topic]}" if topic in aside else "")
            for topic, table in anew.items()
        ]
    kept = {
        "system_identifier": str(catalogue.system_identifier),
        "topic_ids": {**ids, **{topic: one for topic, one in bound.items() if topic not in other}},
        "namespace": namespace,
    }
    now = {pipeline.topic(name): table for name, table in tables.items()} | anew
    kept |= _keys(now, known, other, shapes)
    if kept != known:
        write_atomic(path, json.dumps(kept, indent=1, sort_keys=True))
    return said


def _of_namespace(folder: Path, sink: str, namespace: str) -> tuple[dict[str, Any], list[str]]:
    """What the history in a namespace is of, empty for one that begins; with what was done about it, a line each.

    Another namespace has other tables. Gone on with, they would lack all that the old ones hold, and nobody be told. So
    the place in the log is kept with the namespace that it is of, and taken back when the file names that again: of
    tables that hold history nobody else knows up to where. Done again after a kill, it comes to the same: what is known
    is replaced before its place is taken back, and a place is put aside only while its own identity is what is known.
    """
    known, said = _identity(folder), list[str]()
    back, former = folder / FORMER / namespace, known.get("namespace", namespace)
    if former != namespace:
        aside = folder / FORMER / former
        write_atomic(aside / IDENTITY, json.dumps(known, indent=1, sort_keys=True))
        if (folder / STREAM).exists():
            (folder / STREAM).rename(aside / STREAM)
        known = _identity(back)
        begins = "goes on from where it was" if known else "begins anew"
        said.append(f"history of sink {sink}: `namespace` is {namespace}, where it {begins}; {former} stays as it is")
        if known:
            write_atomic(folder / IDENTITY, json.dumps(known, indent=1, sort_keys=True))
    if known and (back / STREAM).exists() and not (folder / STREAM).exists():
        (back / STREAM).rename(folder / STREAM)
    if known:
        shutil.rmtree(back, ignore_errors=True)
    return known, said


def _identity(folder: Path) -> dict[str, Any]:
    fix = "restore it from a copy; or remove it, if neither the database, its topics nor `namespace` have changed since"
    found = read_note(
        folder / IDENTITY, lambda note: {**note, "system_identifier": str(note["system_identifier"])}, fix
    )
    return found or {}


def _keys(
    tables: Mapping[str, Table], known: Mapping[str, Any], other: Collection[str], shapes: Shapes
) -> dict[str, dict[str, Any]]:
    """The key of the records of each topic, as it was when that was made, and the oid of the table whose columns'
    numbers it names: by it is known why it is made anew. Pure."""
    keys, oids = dict(known.get("keys", {})), dict(known.get("oids", {}))
    for topic, table in tables.items():
        if topic in other or topic not in keys or _same_key(known, topic, table, shapes):
            keys[topic], oids[topic] = [part.to_dict() for part in key_parts(table)], _oid(table, shapes)
    return {"keys": keys, "oids": oids}


def _same_key(known: Mapping[str, Any], topic: str, table: Table, shapes: Shapes) -> bool:
    """Whether a table has the key that was kept of its topic, or none was. Numbers of columns tell of it unless the
    table is known to be another one; an older version has not kept which it was. Pure."""
    keys, was, now = known.get("keys", {}), known.get("oids", {}).get(topic, 0), _oid(table, shapes)
    numbered = was == now or not (was and now)
    return topic not in keys or same_key(key_from(keys[topic]), key_parts(table), numbered=numbered)


def _oid(table: Table, shapes: Shapes) -> int:
    """Of the newest table of this name and key; 0 if that is not known. Whoever runs may know of an older one. Pure."""
    known = shapes.tables.get(table.qualified, ())
    return next((one.oid for one in reversed(known) if key_parts(one.table) == key_parts(table)), 0)


def _put_aside(
    pipeline: Pipeline, sink: str, anew: Mapping[str, Table], another: Collection[str], elsewhere: str
) -> dict[str, str]:
    """Topics are made anew for rows of another key (connectors/plan.py): what such a table's history holds is of keys
    that come no more, and stays under another name. Topic -> that name.

    A key may have got another type, or be another column of its name. Then the history that is there may be of the new
    type already, which it got as long as the topic was the former one (spark/warehouse/history/history.py): it is of no
    use. ``another`` are the topics of such tables.

    Raises:
        TopicRecreated: one was made anew and the key is what it was: what the log has lost is not known (terminal).
    """
    part = pipeline.sinks[sink]
    namespace = part.namespace  # type: ignore[union-attr]
    with open_catalog(part, catalog_name(sink)) as catalog:
        for topic, table in anew.items():
            if topic in another:
                continue
            if has_key(catalog, namespace, table.name, View.identity(table, table.qualified).key):
                raise TopicRecreated(
                    f"history of sink {sink}: topic {topic} was deleted and created again",
                    means="its place in the log is of the old topic; nothing was written",
                    fix=elsewhere,
                )
        named = {topic: put_aside(catalog, namespace, table.name) for topic, table in anew.items()}
    return {topic: f"{namespace}.{name}" for topic, name in named.items() if name is not None}


def _forget(folder: Path, topics: Collection[str]) -> None:
    """Read topics from their beginning, as those of a table that was added, and all others from where they were."""
    forget_applied(folder)  # the former topics' offsets may lie far behind what there is of these
    forget_topics(folder / "checkpoint", topics)
    path = folder / BEGUN
    if path.exists():
        write_atomic(path, json.dumps({"topics": sorted(begun_topics(folder) - set(topics))}))
    (folder / FRONTIERS).unlink(missing_ok=True)  # the log's ends of then are no ends of theirs


def history_flow(opened: OpenedHistory, snapshot_lsn: Callable[[], int]) -> tuple[Flow, Start]:
    """The history's flow, and how it is started: each time with the tables as they are; nobody else tells it."""
    pipeline = opened.pipeline
    log = replace(
        reading(pipeline, pipeline.sinks[opened.sink]),
        tombstone_seconds=int(pipeline.kafka.compaction_lag_hours * 3600),
        late=LATE,
    )
    known = source_catalogue(pipeline)
    flow = Flow(FLOW, spec_of(opened, known, snapshot_lsn()), log, opened.folder / STREAM)
    return flow, partial(_start, opened, snapshot_lsn)


def _start(opened: OpenedHistory, snapshot_lsn: Callable[[], int], spark: SparkSession, flow: Flow) -> Query:
    catalogue = source_catalogue(opened.pipeline)
    flow = replace(flow, spec=spec_of(opened, catalogue, snapshot_lsn()))
    _bind_again(opened, catalogue, flow.spec.topics.keys())
    kept = root_tables(opened.pipeline, catalogue, opened.sink)
    namespace = opened.pipeline.sinks[opened.sink].namespace  # type: ignore[union-attr]
    read = [view.table for view in flow.spec.views.values()]
    _refuse_elsewhere(opened.pipeline, opened.sink, opened.folder, read, opened.token)
    refuse_unwanted()
    note_claim(flow.folder, opened.token)
    place = HistoryPlace(catalog_name(opened.sink), namespace, opened.source, opened.token)
    policy = policy_of(opened.pipeline.sinks[opened.sink])
    return start_history(spark, flow, place, opened.lease, kept, policy)


def _bind_again(opened: OpenedHistory, catalogue: Catalogue, topics: Collection[str]) -> None:
    """As a history is opened, where a topic was deleted and made again since: a broker does so by itself, and what
    stands in the new one before the place in the old one would be skipped. Of one that is not there others tell.

    Raises:
        SourceChanged, TopicRecreated, Fenced: as ``open_history`` (terminal).
        KafkaUnavailable: the brokers do not answer (transient).
    """
    bound = _identity(opened.folder).get("topic_ids", {})
    asked = {topic for topic in topics if topic in bound}
    now = topic_ids(opened.pipeline, asked, missing_ok=True) if asked else {}
    if any(bound[topic] != one for topic, one in now.items()):
        for line in _bound(opened.pipeline, catalogue, opened.sink, opened.folder):
            _log.warning("%s", line)


def _refuse_elsewhere(pipeline: Pipeline, sink: str, folder: Path, tables: Iterable[Table], token: int = 0) -> None:
    """As ``operations.generations.elsewhere.refuse_elsewhere``, of the tables of a history that is to be started.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        folder: of its history.
        tables: of the source.
        token: with which this process may have claimed them by now; 0 if it can't have.

    Raises:
        Fenced: another state folder's process has claimed one since (terminal).
        SinkUnavailable: the catalogue does not open (transient).
    """
    part, noted = pipeline.sinks[sink], noted_claim(folder / STREAM)
    with open_catalog(part, catalog_name(sink)) as catalog:
        for table in tables:
            claimed = claimed_history(catalog, part.namespace, table.name)  # type: ignore[union-attr]
            refuse_claimed(sink, f"the history of {table.qualified}", claimed, noted, token)


def tables_read(opened: OpenedHistory, catalogue: Catalogue) -> dict[str, Table]:
    """The tables whose topics a history reads: those that it keeps, and those that it has read before, which were
    dropped or taken out of the sink since. Its place in the log names their topics: Spark takes it for a loss of data
    if one of them is not read any more.

    Raises:
        ConfigError: as ``root_tables`` (terminal).
    """
    pipeline = opened.pipeline
    bound = topics_read(pipeline, opened.sink)
    known = {**catalogue.gone, **catalogue.tables}
    before = {name: table for name, table in known.items() if pipeline.topic(name) in bound}
    return {**before, **root_tables(pipeline, catalogue, opened.sink)}


def spec_of(opened: OpenedHistory, catalogue: Catalogue, snapshot_lsn: int) -> FlowSpec:
    """The history's whole work as plain data."""
    pipeline = opened.pipeline
    tables = {pipeline.topic(name): table for name, table in tables_read(opened, catalogue).items()}
    fits = {}
    for topic, table in tables.items():
        if catalogue.lsn or catalogue.unseen:
            used = frozenset(column.name for column in supported(table).columns)
            fits[topic] = Fit(catalogue.lsn, used, True, catalogue.doubts, catalogue.unseen)
    return FlowSpec(
        sink=opened.sink,
        views={table.qualified: View.identity(table, table.qualified) for table in tables.values()},
        topics={topic: (table.qualified,) for topic, table in tables.items()},
        tables=tables,
        sink_config={},
        dead_letters=letters_config(pipeline),
        registry=pipeline.source.reader(),
        snapshot_lsn=snapshot_lsn,
        fits=fits,
        compaction_lag_seconds=pipeline.kafka.compaction_lag_hours * 3600,
    )
