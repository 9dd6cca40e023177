"""What somebody has changed behind `apply`'s back, in Connect, Kafka or Postgres: told by what it is, and mended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Table
from cdc.errors import KafkaError, KafkaRefused, LogGap, SlotLost
from cdc.log.client import Topic
from cdc.waits import Wait, waited_for
from connectors import connector, drop, marker_watch, resnapshot
from connectors.captured.captured import Captured, Gap
from connectors.captured.changed import LEFT_OUT, NARROWING, SKIPPED, Change, left_out, merged
from connectors.connector import RunningConnector, plan_connector
from connectors.database.history import Moment
from connectors.database.slot import Slot
from connectors.debezium import marker_topic, pattern
from connectors.marker_watch import refuse_lost_marker
from connectors.rest import Status, first_line
from tests.support.connector_cases import pipeline

RUNNING = Status("RUNNING", ("RUNNING",), "")
STREAMING = {"lsn": 1000, "lsn_commit": 1000}
SLOT = Slot("pgoutput", "flights", False, None, 900, "reserved", 0, None)


def entries(state: str = "done", *tables: str, gap: Gap | None = None) -> dict[str, Captured]:
    now = datetime.now(UTC)
    return {table: Captured(table, state, None, now, gap=gap) for table in tables or ("public.flights",)}


# --- the connector's list of tables


@pytest.mark.parametrize(
    ("listed", "left"),
    [
        (pattern(["public.a", "public.b,c"]), set()),
        (pattern(["public.a"]), {"public.b,c"}),
        (pattern(["public.b,c"]), {"public.a"}),
        ("public.a , " + pattern(["public.b,c"]), set()),  # as somebody writes it who does not escape
        ("PUBLIC.A," + pattern(["public.b,c"]), set()),  # Debezium does not mind
        (r"public\..*", set()),
        (r"public\.a.+", {"public.a", "public.b,c"}),
        ("[", {"public.a", "public.b,c"}),
        ("", set()),  # every table
        (None, set()),
    ],
)
def test_a_table_that_the_connector_does_not_list_has_a_gap(listed: str | None, left: set[str]) -> None:
    config = {} if listed is None else {"table.include.list": listed}
    found = left_out(entries("done", "public.a", "public.b,c"), config)
    assert found.keys() == left and {change.what for change in found.values()} <= {LEFT_OUT}


@pytest.mark.parametrize("state", ["initial", "wanted", "requested"])
def test_a_table_that_is_still_to_be_read_may_not_be_listed_yet(state: str) -> None:
    """An `apply` that was cut after it had noted a table, and before the connector was told of it."""
    assert left_out(entries(state, "public.a"), {"table.include.list": "other"}) == {}


def test_a_table_that_is_read_again_anyhow_needs_no_second_reason() -> None:
    config = {"table.include.list": "other"}
    assert left_out(entries("done", "public.a", gap=Gap(("was dropped",))), config) == {}
    assert left_out(entries("done", "public.a", gap=Gap(("was dropped",), mending=True)), config)


@pytest.mark.parametrize("name", NARROWING)
def test_a_list_that_we_never_make_has_dropped_changes_of_any_table(name: str) -> None:
    captured = entries("done", "public.a")
    assert left_out(captured, {name: "x"})["public.a"].what.endswith(name)
    assert left_out(captured, {name: "x"}, {name: "x"}) == {}  # the file says so


@pytest.mark.parametrize(
    ("skipped", "options", "gap"),
    [
        ("t", {}, False),
        ("none", {}, False),
        ("d", {}, True),
        ("t, U", {}, True),
        ("t,d", {"skipped.operations": "t,d"}, False),  # the file says so
        ("t,d,u", {"skipped.operations": "t,d"}, True),
    ],
)
def test_operations_that_the_connector_skips_leave_a_gap_in_every_table(
    skipped: str, options: dict[str, object], gap: bool
) -> None:
    """`apply` set them right again, said `ready`, and what was deleted meanwhile stayed in every sink."""
    config = {"table.include.list": pattern(["public.a", "public.b"]), "skipped.operations": skipped}
    found = left_out(entries("done", "public.a", "public.b"), config, options)
    assert found.keys() == ({"public.a", "public.b"} if gap else set())
    assert {change.what for change in found.values()} <= {SKIPPED}


# --- a connector that was deleted, and its offset that Connect has kept


class Connect:
    """Kafka Connect with an offset of a connector that somebody has deleted."""

    def __init__(self, offset: Mapping[str, Any] | None = None) -> None:
        self.kept = offset
        self.done: list[str] = []

    def offset(self, name: str) -> Mapping[str, Any] | None:
        return self.kept

    def delete_offsets(self, name: str) -> None:
        assert "wait_stopped" in self.done, "Connect refuses it while the connector may run"
        self.kept, self.done = None, [*self.done, "delete_offsets"]

    def status(self, name: str) -> Status:
        return Status("STOPPED", (), "")

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.done.append(name)


def create(monkeypatch: pytest.MonkeyPatch, connect: Connect, state: str, slot: Slot | None) -> None:
    monkeypatch.setattr(connector, "read_slot", lambda *given: slot)
    monkeypatch.setattr(connector, "read_captured", lambda *given: entries(state))
    [action] = plan_connector("c", {}, None, slot=slot is not None, skipped=False)
    servers = SimpleNamespace(connect=connect, pipeline=pipeline(), source=None, setup=None, names=None)
    action.run(servers)  # type: ignore[arg-type]


def test_a_first_snapshot_forgets_what_a_deleted_namesake_had_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`drop` can't make Connect forget it where there is no connector: the name could never be applied again."""
    connect = Connect(STREAMING)
    create(monkeypatch, connect, "initial", None)
    assert connect.kept is None and connect.done[-1] == "resume" and "delete" not in connect.done


@pytest.mark.parametrize(("state", "slot"), [("done", None), ("wanted", None), ("initial", SLOT), ("done", SLOT)])
def test_what_goes_on_keeps_its_offset(monkeypatch: pytest.MonkeyPatch, state: str, slot: Slot | None) -> None:
    connect = Connect(STREAMING)
    if slot is None:
        with pytest.raises(SlotLost):
            create(monkeypatch, connect, state, slot)
    else:
        create(monkeypatch, connect, state, slot)
        assert connect.done[-1] == "resume"
    assert connect.kept == STREAMING


# --- topics of a schema, once the list of its tables is gone


def test_topics_of_a_whole_schema_are_found_without_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    file = pipeline(source={"tables": ["shop.*", "public.flights"]})
    there = Catalogue(
        {table.qualified: table for table in (Table("shop", "a.b", (), ()), Table("shop", "new", (), ()))}
    )
    asked: list[list[str]] = []
    listed: dict[str, Captured] = {}
    monkeypatch.setattr(drop, "read_captured", lambda *given: listed)
    monkeypatch.setattr(drop, "read_left", lambda *given: {})
    monkeypatch.setattr(drop, "read_catalogue", lambda setup, tables, absent: asked.append(tables) or there)
    topics = ["flights.shop.gone", "flights.shop.a.b"]
    # Another pipeline's, whose prefix is `flights.shop`; and other schemas.
    others = ["flights.shop.public.orders", "flights.shop.dead-letters", "flights.shopping.gone", "flights.public.gone"]
    # The same, of a pipeline whose prefix is `flights.shop.eu`; and what an application makes of a topic's name.
    loose = ["flights.shop.eu-events", "flights.shop.eu-signal", "flights.shop.new-retry-0"]
    policies = {**dict.fromkeys(topics + others, "compact"), **dict.fromkeys(loose, "delete")}
    policies["flights.shop.new-dlt"] = ""  # the brokers' own
    policies |= {"flights.shop.old-one": "compact,delete", "flights.shop.old-two": "delete, compact"}  # set by somebody
    kafka = SimpleNamespace(
        beginning=lambda begins: [name for name in policies if name.startswith(tuple(begins))],
        describe=lambda names: {
            name: Topic(name, 2, 1, {"cleanup.policy": policies[name]} if policies[name] else {}) for name in names
        },
    )
    servers = SimpleNamespace(pipeline=file, kafka=kafka, setup=None, names=None)
    found = drop._topics(servers, topics=True)  # type: ignore[arg-type]
    assert {"flights.public.flights", "flights.shop.gone", "flights.shop.a.b", "flights.shop.new"} <= {*found}
    assert {"flights.shop.old-one", "flights.shop.old-two"} <= {*found}
    assert not {*others, *loose, "flights.shop.new-dlt"} & {*found} and asked == [["shop.*"]]
    assert len(found) == len({*found}), "a broker's answer on a topic that is asked for twice can't be read"
    assert not {*topics} & {*drop._topics(servers, topics=False)}  # type: ignore[arg-type]
    listed |= entries("done", "shop.old")  # what is not in the list was never ours
    found = drop._topics(servers, topics=True)  # type: ignore[arg-type]
    assert {"flights.shop.old", "flights.shop.new"} <= {*found} and "flights.shop.gone" not in found


# --- the marker's topic, made again and empty


@pytest.mark.parametrize(
    ("state", "offset", "first", "lost"),
    [
        ("done", STREAMING, 0, "begins at 0, and does not hold it"),
        ("requested", STREAMING, 0, "begins at 0, and does not hold it"),
        ("done", STREAMING, 7, "what was before offset 7 is deleted"),
        ("initial", STREAMING, 0, None),  # a snapshot that Debezium has skipped: begun anew by `apply`
        ("done", {"lsn": 5, "snapshot": "INITIAL"}, 0, None),
        ("done", None, 0, None),
        ("done", STREAMING, None, None),  # there is none: told in other words
    ],
)
def test_an_empty_marker_of_a_snapshot_that_has_ended_is_a_lost_one(
    monkeypatch: pytest.MonkeyPatch, state: str, offset: dict[str, Any] | None, first: int | None, lost: str | None
) -> None:
    monkeypatch.setattr(marker_watch, "read_position", lambda *given: None)
    file, running = pipeline(), RunningConnector({}, RUNNING, offset)
    ends = {} if first is None else {marker_topic(file): {0: first}}
    if lost is None:
        refuse_lost_marker(None, file, ends, running, entries(state))  # type: ignore[arg-type]
        return
    with pytest.raises(KafkaError, match=f"has lost the position of the initial snapshot: .*{lost}") as error:
        refuse_lost_marker(None, file, ends, running, entries(state))  # type: ignore[arg-type]
    assert "headwater drop FILE --topics" in error.value.fix


def test_a_marker_that_tells_the_position_is_none_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_watch, "read_position", lambda *given: 7)
    file = pipeline()
    for first in (0, 1):
        ends = {marker_topic(file): {0: first}}
        refuse_lost_marker(None, file, ends, RunningConnector({}, RUNNING, STREAMING), entries())  # type: ignore[arg-type]


# --- a publication that was dropped for a while

TRACE = """\
org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event producer.
\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)
Caused by: org.postgresql.util.PSQLException: ERROR: publication "headwater_flights" does not exist
  Where: slot "headwater_flights", output plugin "pgoutput", in the change callback, associated LSN 0/1A2B3C4
\t... 5 more
"""


def gap(monkeypatch: pytest.MonkeyPatch, status: Status, offset: dict[str, Any]) -> SlotLost | LogGap | None:
    monkeypatch.setattr(resnapshot, "read_moment", lambda *given: Moment("7", 1, standby=False, wal_lsn=5000))
    monkeypatch.setattr(resnapshot, "noted_timeline", lambda *given: 1)
    servers = SimpleNamespace(pipeline=pipeline(), source=None, setup=None, kafka=None, names=None)
    return resnapshot._gap(servers, SLOT, RunningConnector({}, status, offset), entries("initial"))  # type: ignore[arg-type]


def test_changes_that_no_publication_sent_are_a_gap_that_a_new_slot_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres 13 to 17; 18 warns and goes on."""
    failed = Status("RUNNING", ("FAILED",), first_line(TRACE))
    found = gap(monkeypatch, failed, STREAMING)
    assert isinstance(found, LogGap) and "resnapshot FILE --all" in found.fix
    assert gap(monkeypatch, Status("RUNNING", ("FAILED",), "something else"), STREAMING) is None
    assert gap(monkeypatch, RUNNING, STREAMING) is None
    assert gap(monkeypatch, failed, {"lsn": 5, "snapshot": "INITIAL"}) is None, "its first snapshot begins again"


def test_a_missing_publication_is_told_with_its_way_out() -> None:
    told = first_line(TRACE)
    assert "`headwater apply FILE`" in told and "`headwater resnapshot FILE --all`" in told
    assert 'publication "headwater_flights" does not exist' in told


def test_who_waits_for_the_snapshots_position_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` said for five minutes that it was waiting for an answer, and not whose."""
    told: list[Wait | None] = []
    monkeypatch.setattr(marker_watch, "Kafka", lambda _: None)
    monkeypatch.setattr(marker_watch, "_position", lambda *_: told.append(waited_for()) or 7)
    asked = pipeline()
    assert marker_watch.read_snapshot_lsn(asked) == 7
    assert told and marker_topic(asked) in str(told[0])


def test_a_login_that_is_refused_is_told_at_once_by_who_waits_for_the_snapshots_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def no_login(*_: object) -> int:
        asked.append(None)
        raise KafkaRefused("Kafka refuses the login")

    monkeypatch.setattr(marker_watch, "Kafka", lambda _: None)
    monkeypatch.setattr(marker_watch, "_position", no_login)
    with pytest.raises(KafkaRefused):
        marker_watch.read_snapshot_lsn(pipeline(), 3.0)
    assert len(asked) == 1


def test_a_table_that_is_in_the_publication_again_is_not_said_to_be_out_of_it() -> None:
    noted = Gap(("was dropped and made again", "is not in publication p"))
    now = Change("was out of publication p for a while")
    assert merged(noted, now).reasons == ("was dropped and made again", now.what)
    assert merged(noted, Change("has the key (a), and had (b)")).reasons[:2] == noted.reasons
