"""Differences between what is wanted and what is there, without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import HeadwaterError, KafkaError, SlotLost, SourceChanged, SourceError
from cdc.log.client import Topic
from cdc.records.change import Op
from cdc.records.debezium_json import Decoder
from cdc.records.encoding import JSON
from connectors import ledger
from connectors.actions import Action, run_all
from connectors.captured.captured import Captured, plan_captured
from connectors.connector import RunningConnector, plan_connector
from connectors.database.replica_identity import plan_replica_identity
from connectors.database.slot import Slot
from connectors.debezium import HIDDEN, marker_topic
from connectors.gaps.source_gaps import refuse_empty, refuse_gap
from connectors.ledger import LedgerEntry
from connectors.names import Names
from connectors.rest import Status, first_line
from connectors.snapshots.cut_snapshot import delete_event, is_ghost
from connectors.snapshots.signals import Heard
from connectors.tables.catalogue import near_misses, numeric_typmod
from connectors.topics import data_topics, plan_topics, to_make, wanted_topics
from tests.support.connector_cases import catalogue, fact, pipeline

RUNNING = Status("RUNNING", ("RUNNING",), "")
STREAMING = {"lsn": 1000, "lsn_commit": 1000}
# Of a connector that was made: its slot is there, and it has made its first snapshot.
THERE = {"slot": True, "skipped": False}


def slot(**other: object) -> Slot:
    values = {"plugin": "pgoutput", "database": "d", "active": True, "pid": 1, "confirmed_lsn": 900}
    return Slot(**{**values, "wal_status": "reserved", "behind_bytes": 0, "safe_bytes": None, **other})  # type: ignore[arg-type]


def shown(actions: list[Action]) -> list[str]:
    return [f"{action.kind} {action.name}: {action.detail}" for action in actions]


# --- topics


def test_topics_that_are_right_need_nothing_and_others_only_what_differs() -> None:
    wanted = data_topics(pipeline(), catalogue())
    right = {topic.name: topic for topic in wanted}
    assert plan_topics(wanted, right) == []
    [flights, marker] = wanted
    config = {**flights.config, "delete.retention.ms": "86400000", "extra": "stays"}
    actual = {flights.name: Topic(flights.name, 2, 1, config)}
    changed, created = plan_topics(wanted, actual)
    assert (changed.before, changed.after) == (
        {"delete.retention.ms": "86400000"},
        {"delete.retention.ms": "604800000"},
    )
    assert (created.name, created.before) == (marker.name, None)


def test_records_stay_until_a_batch_that_was_cut_could_be_read_again() -> None:
    part = pipeline()
    short = part.model_copy(update={"kafka": part.kafka.model_copy(update={"compaction_lag_hours": 0.25})})
    assert [t.config["min.compaction.lag.ms"] for t in data_topics(part, catalogue())] == ["3600000"] * 2
    wanted = data_topics(short, catalogue())
    older = {t.name: Topic(t.name, t.partitions, 1, {**t.config, "min.compaction.lag.ms": "0"}) for t in wanted}
    assert [action.after for action in plan_topics(wanted, older)] == [{"min.compaction.lag.ms": "900000"}] * 2


def test_topics_that_kafka_calls_one_are_refused_before_anything_is_made() -> None:
    """Its metrics have an underscore for each dot. `apply` would stop once publication and triggers are made."""
    columns = (Column("id", "integer", "int4"),)
    orders, others = Table("app", "eu_orders", columns, ("id",)), Table("app_eu", "orders", columns, ("id",))
    wanted = data_topics(pipeline(), catalogue(orders, others))
    with pytest.raises(KafkaError, match=r"(?m)underscores only: flights.app_eu.orders beside flights.app.eu_orders$"):
        plan_topics(wanted, {})
    foreign = "flights.app_eu_orders"
    with pytest.raises(KafkaError, match=rf"(?m)only: flights.app.eu_orders beside {foreign}$"):
        plan_topics(data_topics(pipeline(), catalogue(orders)), {}, [foreign, "flights.app.eu.orders2"])
    # Servers that make both have them already, and nobody need be asked for what others have.
    there = {topic.name: topic for topic in wanted}
    assert plan_topics(wanted, there, [foreign]) == []
    assert to_make(wanted, there) == [] and to_make(wanted, {}) == list(there)


def test_partitions_are_never_changed_silently() -> None:
    wanted = data_topics(pipeline(), catalogue())
    actual = {wanted[0].name: Topic(wanted[0].name, 6, 1, wanted[0].config)}
    with pytest.raises(
        KafkaError, match=r"flights\.public\.flights has 6 partitions, the pipeline file says 2"
    ) as error:
        plan_topics(wanted, actual)
    assert "if it was the file that was changed, set kafka.partitions: 6" in error.value.fix
    assert "--topic flights.public.flights), then `headwater apply FILE --wait`" in error.value.fix


def test_a_topic_that_got_partitions_is_made_anew_and_the_file_left_as_it_is() -> None:
    """To write its number into the file left what moved keys had in their former partition for good."""
    columns = (Column("id", "integer", "int4"),)
    wanted = data_topics(pipeline(), catalogue(*(Table("public", name, columns, ("id",)) for name in ("a", "b"))))
    actual = {topic.name: topic for topic in wanted} | {"flights.public.b": replace(wanted[1], partitions=6)}
    with pytest.raises(KafkaError, match=r"flights\.public\.b has 6 partitions") as error:
        plan_topics(wanted, actual)
    assert "kafka.partitions" not in error.value.fix
    assert "--topic flights.public.b), then `headwater apply FILE --wait`" in error.value.fix
    assert "headwater rebuild FILE SINK --auto" in error.value.fix


def test_a_topic_of_one_partition_is_never_mended_by_the_files_number() -> None:
    """It was told to set kafka.partitions: 3, after which the data topics were refused."""
    wanted, fixes = wanted_topics(pipeline(), catalogue()), dict[str, str]()
    for topic in wanted[1:]:
        with pytest.raises(KafkaError, match="has 3 partitions, and must have 1") as error:
            plan_topics(wanted, {one.name: one for one in wanted} | {topic.name: replace(topic, partitions=3)})
        fixes[topic.name] = error.value.fix
        assert "kafka.partitions:" not in error.value.fix
    assert len(fixes) == 7
    assert "--topic __debezium-heartbeat.flights)" in fixes["__debezium-heartbeat.flights"]
    assert "The dead letters in it go" in fixes["flights.dead-letters"]
    assert "drop FILE --topics" in fixes[marker_topic(pipeline())]


# --- connector and slot


def test_running_connector_as_wanted_needs_nothing() -> None:
    assert plan_connector("c", {"a": "1"}, RunningConnector({"a": "1"}, RUNNING, STREAMING), **THERE) == []


def test_changed_secret_is_told_but_not_shown() -> None:
    wanted, there = {"a": "1", "database.password": "new"}, {"a": "1", "database.password": "old", "gone": "x"}
    [action] = plan_connector("c", wanted, RunningConnector(there, RUNNING, STREAMING), **THERE)
    assert action.before == {"database.password": HIDDEN, "gone": "x"}
    assert action.after == {"database.password": HIDDEN, "gone": None}


def test_a_connector_that_was_deleted_alone_goes_on() -> None:
    made = [plan_connector("c", {}, None, slot=slot, skipped=False)[0] for slot in (False, True)]
    assert [(action.detail, action.captures) for action in made] == [
        ("create; Debezium creates the slot and reads the tables", True),
        ("create; it goes on from what its slot and Connect have kept", False),
    ]


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (Status("PAUSED", (), ""), "resume"),
        (Status("STOPPED", (), ""), "resume"),
        (Status("RUNNING", ("FAILED",), "boom"), "restart; it failed: boom"),
    ],
)
def test_connector_that_does_not_run_is_started(status: Status, detail: str) -> None:
    [action] = plan_connector("c", {}, RunningConnector({}, status, STREAMING), **THERE)
    assert (action.detail, action.after) == (detail, "RUNNING")


@pytest.mark.parametrize(
    ("there", "offset"),
    [
        (None, None),  # nothing yet
        (None, {"lsn": 5, "snapshot": "INITIAL"}),  # interrupted before the slot was made: begins again
        (slot(), {"lsn": 5, "snapshot": "INITIAL"}),
        (slot(), STREAMING),
        (slot(confirmed_lsn=1000), STREAMING),
    ],
)
def test_no_gap(there: Slot | None, offset: dict[str, object] | None) -> None:
    refuse_gap("s", there, offset)


@pytest.mark.parametrize(
    ("there", "offset", "message"),
    [
        (slot(wal_status="lost", confirmed_lsn=None), STREAMING, "invalidated"),  # FAULTS 5
        (None, STREAMING, "is gone"),  # FAULTS 6
        (slot(confirmed_lsn=1001), STREAMING, "past 0/3E8"),  # FAULTS 6: created anew
        (slot(), None, "knows no connector"),
    ],
)
def test_gap_is_refused(there: Slot | None, offset: dict[str, object] | None, message: str) -> None:
    with pytest.raises(SourceError, match=message) as error:
        refuse_gap("s", there, offset)
    assert "headwater resnapshot FILE --all" in error.value.fix or "headwater drop FILE" in error.value.fix


@pytest.mark.parametrize(
    ("reason", "why", "prevents"),
    [
        (None, "the WAL it needs is gone", "raise max_slot_wal_keep_size"),
        ("wal_removed", "the WAL it needs is gone", "raise max_slot_wal_keep_size"),
        ("idle_timeout", "longer than idle_replication_slot_timeout", "raise idle_replication_slot_timeout"),
        ("wal_level_insufficient", "wal_level was not logical", "keep wal_level = logical"),
        ("something_new", "something_new", "remove what did it"),
    ],
)
def test_a_slot_that_is_lost_says_why(reason: str | None, why: str, prevents: str) -> None:
    """Of one that was idle for too long, or that wal_level ended, the WAL budget was blamed."""
    with pytest.raises(SlotLost) as error:
        refuse_gap("s", slot(wal_status="lost", invalidation=reason), STREAMING)
    assert why in error.value.what and prevents in error.value.fix


def test_a_database_that_knows_nothing_is_another_one() -> None:
    """Restored from a dump: `plan` said `resnapshot --all`, which said `apply`, which said `resnapshot --all`."""
    with pytest.raises(SourceChanged, match="our own tables are gone") as error:
        refuse_empty(None, STREAMING, {})
    assert "headwater recapture FILE" in error.value.fix
    refuse_empty(None, STREAMING, {"public.a"})  # a slot that was lost, and no more
    refuse_empty(None, {"lsn": 5, "snapshot": "INITIAL"}, {})
    refuse_empty(None, None, {})
    refuse_empty(slot(), STREAMING, {})


# --- captured tables


def entry(table: str, state: str) -> Captured:
    return Captured(table, state, None, datetime.now(UTC))


def test_first_capture_reads_all_tables_and_a_later_one_only_the_new() -> None:
    names = Names("headwater", "p")
    before, after = plan_captured(names, "p", ["s.b", "s.a"], {}, fresh=True, emptied=(), gaps={})
    assert [(a.name, a.after) for a in before] == [("s.a", "initial"), ("s.b", "initial")]
    there = {"s.a": entry("s.a", "done"), "s.z": entry("s.z", "done")}
    before, after = plan_captured(names, "p", ["s.b", "s.a"], there, fresh=False, emptied=(), gaps={})
    assert [(a.name, a.after) for a in before] == [("s.b", "wanted"), ("s.a", "identity")], "an older version's entry"
    assert [(a.name, a.after) for a in after] == [("s.z", None)]
    assert "its topic and the rows that sinks have of it stay" in after[0].detail


def test_what_a_dropped_capture_remembers_is_void() -> None:
    there = {"s.a": entry("s.a", "done"), "s.b": entry("s.b", "initial")}
    before, _ = plan_captured(Names("headwater", "p"), "p", ["s.a", "s.b"], there, fresh=True, emptied=(), gaps={})
    assert [(a.name, a.before, a.after) for a in before if a.kind == "snapshot"] == [("s.a", "done", "initial")]


def note(kind: str, of: str = "id-1", aggregate: str = "Incremental Snapshot", **data: str) -> dict[str, object]:
    return {"id": of, "aggregate_type": aggregate, "type": kind, "additional_data": data}


def test_notifications_tell_rows_and_ends() -> None:
    heard = Heard()
    heard.hear(note("IN_PROGRESS", current_collection_in_progress="s.a"))
    assert heard.current == "s.a"
    heard.hear(note("TABLE_SCAN_COMPLETED", scanned_collection="s.a", total_rows_scanned="7", status="SUCCEEDED"))
    heard.hear(note("COMPLETED"))
    heard.hear({"unknown": 1})
    assert (heard.statuses, heard.rows, heard.ended) == ({"id-1": {"s.a": "SUCCEEDED"}}, {"s.a": 7}, {"id-1"})


def test_an_initial_snapshot_that_begins_again_is_not_complete() -> None:
    heard, initial = Heard(), "Initial Snapshot"
    heard.hear(note("TABLE_SCAN_COMPLETED", aggregate=initial, scanned_collection="s.a", status="SUCCEEDED"))
    heard.hear(note("STARTED", of="id-2", aggregate=initial))
    heard.hear(note("STARTED", of="id-3", aggregate=initial))
    assert heard.statuses.get("initial") is None
    heard.hear(note("COMPLETED", of="id-3", aggregate=initial))
    heard.hear(note("STARTED", of="id-4", aggregate=initial))  # after every restart, with SKIPPED behind it
    assert (heard.attempts, heard.ended) == (2, {"initial"})


def test_only_reads_of_an_earlier_attempt_are_ghosts() -> None:
    read, streamed = {"snapshot": "true", "lsn": 5}, {"snapshot": "false", "lsn": 5}
    assert not is_ghost({"snapshot": None, "lsn": 5}, 9)  # streamed: what is the default need not be said
    assert [is_ghost(read, 9), is_ghost(read, 5)] == [True, False]
    assert [is_ghost(streamed, 9), is_ghost({"snapshot": "incremental", "lsn": None}, 9)] == [False, False]
    event = delete_event({**read, "table": "t"}, 9, 1000)
    assert (event["op"], event["after"], event["source"]["lsn"], event["source"]["table"]) == ("d", None, 9, "t")


def test_our_delete_events_are_read_as_debeziums() -> None:
    table = Table("s", "t", (Column("id", "integer", "int4"),), ("id",))
    source = {"snapshot": "last", "lsn": 5, "sequence": '[null,"5"]', "ts_ms": 1, "schema": "s", "table": "t"}
    value = JSON.dumps(delete_event(source, 9, 1000), b"")
    change = Decoder(table, snapshot_lsn=9).decode(b'{"id":1}', value, "p.s.t", 0, 7)
    assert (change.op, change.key, change.position) == (Op.DELETE, {"id": 1}, 9)


# --- the rest


def test_full_replica_identity_only_where_values_may_be_stored_out_of_line() -> None:
    assert [a.name for a in plan_replica_identity([fact(), fact(name="s.small", toasted=False)], "full")] == ["s.t"]
    assert plan_replica_identity([fact(replica_identity="f")], "full") == []
    assert plan_replica_identity([fact(virtual=True)], "full") == []
    assert plan_replica_identity([fact(has_primary_key=False, unique_keys=2)], "full") == []
    assert plan_replica_identity([fact()], "reselect") == []


def test_a_foreign_partition_is_given_no_replica_identity() -> None:
    """Postgres refuses that, each time."""
    parts = fact(partial=("s.t1", "s.t2"), foreign=("s.t2",))
    assert parts.not_full == ["s.t", "s.t1"]
    assert plan_replica_identity([replace(parts, replica_identity="f", partial=("s.t2",))], "full") == []


def test_a_failed_action_tells_how_far_it_got() -> None:
    def fails(_: object) -> None:
        raise SourceError("no", fix="say please")

    done: list[Action] = []
    actions = [
        Action("schema", "s", "create"),
        Action("topic", "t", "create", run=fails),
        Action("topic", "u", "create"),
    ]
    with pytest.raises(HeadwaterError) as error:
        run_all(None, actions, done.append)  # type: ignore[arg-type]
    assert done == actions[:1]
    assert "stopped at «topic t: create», 1 of 3 steps are done" in error.value.means
    assert error.value.fix == "say please; running the same command again continues from there"


def test_a_trace_is_told_by_its_first_line_and_its_root_cause() -> None:
    trace = "a.B: outer\n\tat x.y(Z:1)\nCaused by: c.D: middle\n\tat q\nCaused by: e.F: slot is gone\n\t... 3 more\n"
    assert first_line(trace) == "a.B: outer (cause: e.F: slot is gone)"
    assert first_line("only line") == "only line"
    lost = "java.lang.IndexOutOfBoundsException: Index 9 out of bounds for length 9"
    for trace in (f"{lost}\n\tat java.util.x", f"a.ConnectException: died\n\tat b\nCaused by: {lost}"):
        assert "stored generated column" in first_line(trace)[:150] and lost in first_line(trace)
    large = (
        "org.apache.kafka.common.errors.RecordTooLargeException: The message is 40000000 bytes when serialized which is"
    )
    assert "raise it in the file" in first_line(f"{large} larger than 10, which is the value of the max.request.size")
    told = first_line(
        f"{large} larger than the total memory buffer you have configured with the buffer.memory configur"
    )
    assert "raise it in the file" not in told and "`headwater apply FILE` sets it by `kafka.max_message_bytes`" in told
    assert "generated" not in first_line(lost.replace("Index 9", "Index 12"))
    assert first_line("") == ""


@pytest.mark.parametrize(("typmod", "expected"), [(-1, (None, None)), (655366, (10, 2)), (4 + (38 << 16), (38, 0))])
def test_numeric_typmod(typmod: int, expected: tuple[int | None, int | None]) -> None:
    assert numeric_typmod(typmod) == expected


def test_negative_scale_of_a_numeric() -> None:
    assert numeric_typmod(4 + (2 << 16 | (-3 & 0x7FF))) == (2, -3)


def test_near_misses_prefer_the_same_name_elsewhere() -> None:
    names = ["public.flights", "audit.flight", "old.Flight", "public.planes"]
    assert near_misses("public.flight", names) == ["audit.flight", "old.Flight", "public.flights"]
    assert near_misses("x.nothing_like_it", ["public.planes"]) == []


class Written:
    """A log in which a transaction's marker is missing yet: a reader of what is committed sees less of it."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def describe(self, topics: Sequence[str]) -> dict[str, Any]:
        return {topic: SimpleNamespace(name=topic, partitions=1) for topic in topics}

    def ends(self, counts: Mapping[str, int], *, written: bool = False) -> dict[str, dict[int, int]]:
        self.asked.append("the log's ends")
        return {topic: {0: 9 if written else 7} for topic in counts}


def test_a_ledger_entry_is_of_all_that_is_written_and_the_slot_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends that were read before could lack what the slot has confirmed meanwhile; so could those of a reader."""
    asked = list[str]()

    def asked_slot(*_: object) -> Any:
        asked.append("the slot")
        return SimpleNamespace(confirmed_lsn=5)

    monkeypatch.setattr(ledger, "unfinished", lambda _servers: set())
    monkeypatch.setattr(ledger, "read_slot", asked_slot)
    servers: Any = SimpleNamespace(
        pipeline=SimpleNamespace(source=SimpleNamespace(slot="s")), source=None, kafka=Written(asked)
    )
    assert ledger.read_entry(servers, ["public.t"], ["t"]) == LedgerEntry(5, {"t": {0: 9}})
    assert asked == ["the slot", "the log's ends"]


def test_ledger_entry_is_covered_when_every_partition_is() -> None:
    ledger = LedgerEntry(5, {"t": {0: 10, 1: 0}, "u": {0: 3}})
    assert ledger.behind({"t": {0: 10}, "u": {0: 4}}) == 0
    assert ledger.behind({"t": {0: 9}, "u": {0: 3}}) == 1
    assert ledger.behind({"t": {0: 10, 1: 0}}) == 3
