"""The one judgement: a table of what is told of what, and what may never be told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.freshness.note import SourceNote
from operations.status.facts import source_facts
from operations.status.judgement import (
    BAD,
    FILL_WATCHDOG_SECONDS,
    JUDGEMENTS,
    WATCHDOG_SECONDS,
    FlowFacts,
    Judgement,
    SinkFacts,
    judge_flow,
    judge_sink,
    limit_of,
)
from operations.status.source_judgement import LARGE_SECONDS, SourceFacts, judge_source

WELL = Judgement("well")
DEAD = Judgement("stalled", "Kafka Connect does not answer", "start Kafka Connect's worker")
RUNNING = FlowFacts("main", "running", age=1.0, limit=30.0, behind=0, still=0.0, watched=100.0)
HIDDEN = replace(RUNNING, age=200.0, behind=5, uncommitted="p.t, partition 1")
LOG = SourceFacts(
    watched=True, age=1.0, connector="RUNNING", tasks=("RUNNING",), slot_there=True, slot_active=True, limit=30.0
)
READING = replace(LOG, age=None, slot_active=False, still=7_200.0, reading=("public.t",))
SILENT = {"connector": "unknown", "tasks": (), "connector_error": "no answer"}
ERROR = "sink 'search' does not answer\n  what it means: offsets stay\n  what to do: start the server"


@pytest.mark.parametrize(
    ("facts", "source", "judgement", "word"),
    [
        (RUNNING, WELL, "well", None),
        (replace(RUNNING, behind=10_000), WELL, "well", None),  # much to do, and quick
        (replace(RUNNING, age=31.0, behind=7), WELL, "behind", "7 records wait"),
        (replace(RUNNING, flow="visit", age=31.0, behind=7), WELL, "behind", "7 records wait for visit"),
        (replace(RUNNING, age=31.0), DEAD, "behind", "Kafka Connect does not answer"),
        (replace(RUNNING, age=31.0), Judgement("paused", "the connector was paused"), "behind", "was paused"),
        (replace(RUNNING, age=31.0, hold="table t is still being read"), WELL, "behind", "still being read"),
        (replace(RUNNING, age=31.0), Judgement("filling", "rows are being read: public.t"), "filling", "public.t"),
        (replace(RUNNING, age=1.0), DEAD, "well", None),  # it has all that was committed a second ago
        (replace(RUNNING, age=None), WELL, "behind", "nobody knows"),
        (replace(RUNNING, age=None, watched=5.0), WELL, "starting", "nobody knows yet"),
        (replace(RUNNING, age=None, watched=5.0), DEAD, "behind", "Kafka Connect"),
        (replace(RUNNING, age=None, watched=None), WELL, "behind", "does not tell"),
        # A first load takes minutes, and is no alarm; it was one after half a minute.
        (replace(RUNNING, age=None, behind=7), WELL, "filling", "not complete yet: 7 records wait"),
        (replace(RUNNING, age=None, behind=7), DEAD, "behind", "Kafka Connect"),
        (replace(RUNNING, age=None, behind=7), Judgement("paused", "it is paused"), "behind", "it is paused"),
        (replace(RUNNING, age=None, behind=7, still=WATCHDOG_SECONDS + 1), WELL, "stalled", "7 records wait"),
        (replace(RUNNING, still=WATCHDOG_SECONDS + 1, behind=5), WELL, "stalled", "5 records wait"),
        (replace(HIDDEN, still=WATCHDOG_SECONDS + 1), WELL, "stalled", "written after it: topic p.t, partition 1"),
        (HIDDEN, WELL, "stalled", "does not end"),  # other partitions get on
        (replace(HIDDEN, age=None), WELL, "stalled", "does not end"),
        (replace(HIDDEN, behind=0), WELL, "behind", "no newer commit"),  # it has ended
        (replace(HIDDEN, age=1.0), WELL, "well", None),
        (replace(RUNNING, still=WATCHDOG_SECONDS + 1, behind=0), WELL, "well", None),  # nothing to do
        (replace(RUNNING, still=WATCHDOG_SECONDS + 1, deferred=3), WELL, "stalled", "something to do"),
        (replace(RUNNING, still=WATCHDOG_SECONDS + 1, behind=5, batch_seconds=60), WELL, "well", None),
        (replace(RUNNING, still=None, behind=5, age=31.0), WELL, "behind", "5 records"),  # nobody looks
        (replace(RUNNING, state="starting", age=None), WELL, "starting", "not begun"),
        (replace(RUNNING, state="starting", still=WATCHDOG_SECONDS + 1), WELL, "stalled", "it is starting"),
        (replace(RUNNING, state="filling", age=None), WELL, "filling", "not complete"),
        (replace(RUNNING, state="filling", still=WATCHDOG_SECONDS + 1), WELL, "filling", None),
        (replace(RUNNING, state="filling", still=FILL_WATCHDOG_SECONDS + 1), WELL, "stalled", "it is filling"),
        (replace(RUNNING, state="retrying", error=ERROR), WELL, "retrying", "does not answer"),
        (replace(RUNNING, state="failed", error=ERROR), DEAD, "failed", "does not answer"),
        (replace(RUNNING, state="dead"), WELL, "stopped", "gone"),
        (replace(RUNNING, state="stopped", error=ERROR), WELL, "stopped", "its last error: sink"),
        (replace(RUNNING, state="never run"), WELL, "stopped", "ever run"),
    ],
)
def test_a_flow(facts: FlowFacts, source: Judgement, judgement: str, word: str | None) -> None:
    told = judge_flow(facts, source)
    assert told.judgement == judgement, told
    assert word is None or word in (told.cause or ""), told


@pytest.mark.parametrize("source", [WELL, DEAD])
def test_what_is_behind_has_one_age(source: Judgement) -> None:
    """`status` showed the sink's, and beside it that of the flow of which most records wait, in the same words."""
    told = [judge_flow(replace(RUNNING, age=age, behind=7), source) for age in (186.0, 265.7)]
    assert told[0] == told[1] and told[0].judgement == "behind"


@pytest.mark.parametrize(
    ("facts", "judgement", "word"),
    [
        (LOG, "well", ""),
        (replace(LOG, connector="unknown", tasks=(), connector_error="no answer"), "well", ""),  # the slot moves
        (replace(LOG, connector="unknown", tasks=(), connector_error="no answer", age=31.0), "stalled", "no answer"),
        (replace(LOG, tasks=("FAILED",), connector_error="a deadlock"), "failed", "a deadlock"),
        (replace(LOG, connector="PAUSED"), "paused", "paused in Kafka Connect"),
        (replace(LOG, connector="STOPPED", tasks=()), "stopped", "stopped in Kafka Connect"),
        (replace(LOG, connector="absent", tasks=(), connector_error="there is no connector"), "stopped", "no conn"),
        (replace(LOG, slot_lost=True), "failed", "lost"),
        (replace(LOG, slot_there=False), "failed", "no slot"),
        (replace(LOG, age=31.0, slot_active=False), "stalled", "nobody reads"),
        (replace(LOG, age=31.0, still=40.0), "stalled", "has not moved"),  # a WAL sender that hangs
        # Its records come into the log, and to be sent to a restart would have it read from its beginning.
        (replace(LOG, age=200.0, still=195.0, written=3.0), "behind", "a large transaction"),
        (replace(LOG, age=200.0, still=195.0, written=31.0), "stalled", "has not moved"),
        (replace(LOG, age=None, still=195.0, written=3.0), "behind", "a large transaction"),
        (replace(LOG, age=200.0, still=195.0, written=3.0, failed_ago=20.0, failed_why="over"), "retrying", "over"),
        (replace(LOG, age=200.0, still=195.0, written=3.0, slot_active=False), "stalled", "nobody reads"),
        # Brokers that are silent hold up the connector, and Kafka Connect: to restart these helps nobody.
        (replace(LOG, age=200.0, still=195.0, kafka_error="no brokers"), "retrying", "no brokers"),
        (replace(LOG, age=200.0, still=195.0, kafka_error="no brokers", slot_active=False), "retrying", "no brokers"),
        (replace(LOG, age=200.0, still=195.0, kafka_error="no brokers", **SILENT), "retrying", "no brokers"),
        (replace(LOG, age=200.0, still=195.0, kafka_error="once", written=3.0), "behind", "a large transaction"),
        (replace(LOG, age=1.0, kafka_error="once"), "well", ""),
        # The connector gets on; `run` alone can't know how far the log is.
        (replace(LOG, age=200.0, still=1.0, kafka_error="not authorized"), "retrying", "not authorized"),
        (replace(LOG, age=None, still=1.0, kafka_error="not authorized"), "retrying", "not authorized"),
        # It says RUNNING while it reads up to what it fails at again.
        (
            replace(LOG, age=31.0, slot_active=False, failed_ago=20.0, failed_why="a row is larger"),
            "retrying",
            "larger",
        ),
        (replace(LOG, age=31.0, still=40.0, failed_ago=20.0, failed_why="a row is larger"), "retrying", "larger"),
        (replace(LOG, age=31.0, slot_active=False, failed_ago=9e3, failed_why="long ago"), "stalled", "nobody reads"),
        (replace(LOG, age=31.0, still=1.0, failed_ago=20.0, failed_why="over"), "behind", "older commits"),
        (replace(LOG, age=1.0, failed_ago=20.0, failed_why="over"), "well", ""),
        (replace(LOG, age=31.0, still=1.0), "behind", "older commits"),  # it reads, and has much to read
        (replace(LOG, age=None, still=5.0), "starting", ""),
        (replace(LOG, age=None, still=40.0), "stalled", "has not moved"),
        (replace(LOG, age=31.0, reading=("public.t",)), "filling", "public.t"),
        # A table that is not read yet is read by somebody: dead, it was `filling` for good.
        (READING, "filling", "public.t"),
        (replace(READING, connect_silent=7_200.0, **SILENT), "stalled", "no answer"),
        (replace(READING, age=7_200.0, connect_silent=7_200.0, **SILENT), "stalled", "no answer"),
        (replace(READING, still=5.0, connect_silent=31.0, **SILENT), "stalled", "no answer"),
        (replace(READING, connect_silent=8.0, **SILENT), "filling", "public.t"),  # its worker's restart
        (replace(READING, age=7_200.0, connect_silent=8.0, **SILENT), "filling", "public.t"),
        (replace(READING, age=20.0, connect_silent=40.0, **SILENT), "filling", "public.t"),
        (replace(READING, failed_ago=20.0, failed_why="a row is larger"), "retrying", "larger"),
        (replace(READING, age=31.0, failed_ago=20.0, failed_why="a row is larger"), "retrying", "larger"),
        (replace(READING, failed_ago=9e3, failed_why="long ago"), "filling", "public.t"),
        (replace(READING, failed_ago=20.0, connect_silent=8.0, **SILENT), "filling", "public.t"),
        (replace(LOG, age=31.0, reading=("public.t",), failed_ago=20.0, failed_why="over"), "filling", "public.t"),
        (replace(LOG, error="Postgres does not answer", silent=3.0), "well", ""),  # a restart
        (replace(LOG, error="Postgres does not answer", silent=11.0), "retrying", "Postgres"),
        (replace(LOG, silent=11.0), "retrying", "has not answered for 11 s"),  # it hangs, with the question
        (SourceFacts(watched=False), "stopped", "no `headwater run`"),
        (SourceFacts(watched=False, connector="FAILED", connector_error="why"), "failed", "why"),
    ],
)
def test_the_source(facts: SourceFacts, judgement: str, word: str) -> None:
    """`apply` does nothing of a connector that says RUNNING: nobody is sent there."""
    told = judge_source(facts)
    assert (told.judgement, word in (told.cause or "")) == (judgement, True), told
    assert not ("RUNNING" in (told.cause or "") and "apply" in (told.remedy or "")), told


@pytest.mark.parametrize(
    ("facts", "flows", "judgement"),
    [
        (SinkFacts(), [WELL, WELL], "well"),
        (SinkFacts(), [WELL, Judgement("behind", "x")], "behind"),
        (SinkFacts(), [Judgement("behind", "x"), Judgement("filling", "y")], "filling"),  # that has the machine
        (SinkFacts(), [Judgement("behind", "x", "start it"), Judgement("filling", "y")], "behind"),
        (SinkFacts(), [Judgement("stalled", "x"), Judgement("filling", "y")], "stalled"),
        (SinkFacts(), [Judgement("failed", "x"), Judgement("stalled", "y")], "failed"),
        (SinkFacts(state="never run"), [], "stopped"),
        (SinkFacts(state="starting"), [], "starting"),
        (SinkFacts(paused="since noon"), [Judgement("stopped", "x")], "paused"),
        (SinkFacts(lost="12,000 of 90,000"), [Judgement("stopped", "x")], "filling"),
        (SinkFacts(lost="12,000 of 90,000", unmade=ERROR), [Judgement("stopped", "x")], "retrying"),
        (SinkFacts(refused=ERROR), [WELL], "failed"),
        (SinkFacts(away=ERROR), [WELL], "retrying"),
        (SinkFacts(away=ERROR), [Judgement("behind", "x"), WELL], "retrying"),
        (SinkFacts(away=ERROR), [Judgement("stalled", "x")], "retrying"),
        (SinkFacts(away=ERROR), [Judgement("failed", "x")], "failed"),
        (SinkFacts(away=ERROR), [Judgement("stopped", "x")], "stopped"),
        (SinkFacts(away=ERROR, evolving="table t: x"), [WELL], "retrying"),
        (SinkFacts(away=ERROR, paused="since noon"), [WELL], "paused"),
        (SinkFacts(evolving="table t: x"), [Judgement("behind", "x")], "evolving"),
        (SinkFacts(evolving="table t: x"), [WELL], "evolving"),
        (SinkFacts(evolving="table t: x"), [Judgement("failed", "x")], "failed"),
        (SinkFacts(evolving="table t: x"), [Judgement("retrying", "x")], "retrying"),
        (SinkFacts(cut="from 1 to 2"), [WELL], "evolving"),
        (SinkFacts(cut="from 1 to 2", away=ERROR), [Judgement("retrying", "x")], "retrying"),
        (SinkFacts(cut="from 1 to 2"), [Judgement("failed", "x")], "failed"),
        (SinkFacts(astray="readers of view v see generation 2"), [WELL], "failed"),
        (SinkFacts(letters=3), [WELL], "incomplete"),
        (SinkFacts(letters=3), [Judgement("behind", "x")], "behind"),
        (SinkFacts(evolving="table t: x", letters=3), [WELL], "evolving"),
    ],
)
def test_a_sink(facts: SinkFacts, flows: list[Judgement], judgement: str) -> None:
    assert judge_sink(facts, flows).judgement == judgement


def test_what_a_dead_erasure_has_left_paused_goes_on_with_a_command() -> None:
    """It sent to the same erasure, whose key nobody else knows."""
    told = judge_sink(SinkFacts(paused="since noon", erasing=True, left=True), [WELL]).remedy
    assert told is not None and "resume FILE SINK`, or any next `headwater erase --yes`" in told


def test_a_promotion_that_was_cut_is_the_cause_whatever_its_flows_say() -> None:
    """A cache takes no writes meanwhile: its flows blame a server that is well, and its remedy was to start that."""
    told = judge_sink(SinkFacts(cut="from 1 to 2"), [Judgement("retrying", "x", "bring the server back")])
    assert told.cause == "from 1 to 2" and "headwater promote FILE SINK" in (told.remedy or "")


def test_what_a_lost_cache_could_not_be_made_again_for_is_its_cause() -> None:
    told = judge_sink(SinkFacts(lost="12,000 of 90,000", unmade=ERROR), [])
    assert (told.cause or "").endswith("could not be made again: sink 'search' does not answer")
    assert told.remedy == "start the server"
    assert judge_sink(SinkFacts(lost="it begins", unmade="no reason"), []).remedy  # what alarms says what to do


SOME_AWAY = replace(LOG, age=2_000.0, still=195.0, kafka_error="no leader", kafka_fix="start the brokers")


def test_brokers_have_their_own_way_out() -> None:
    told = judge_source(SOME_AWAY)
    assert (told.cause, told.remedy) == ("no leader", "start the brokers; the rest comes by itself")


@pytest.mark.parametrize(
    ("facts", "and_this", "do"),
    [
        (replace(SOME_AWAY, slot_active=False), "nobody reads from the slot", "restart the connector"),
        (replace(SOME_AWAY, still=901.0), "its WAL sender hangs", "restart the connector"),
        (replace(SOME_AWAY, still=901.0, **SILENT), "no answer", "start Kafka Connect's worker"),
        (replace(SOME_AWAY, slot_active=False, failed_ago=9.0, failed_why="a row"), "a row; ", "remove the cause"),
    ],
)
def test_one_broker_that_is_away_does_not_hide_that_nobody_reads(facts: SourceFacts, and_this: str, do: str) -> None:
    told = judge_source(facts)
    assert told.judgement == "retrying" and (told.cause or "").startswith("Kafka: no leader; and "), told
    assert and_this in (told.cause or ""), told
    assert (told.remedy or "").startswith("start the brokers; ") and do in (told.remedy or ""), told


def test_who_was_killed_is_silent_and_not_postgres() -> None:
    note = SourceNote(at=100.0, since=10.0, as_of=99.0, moved_at=99.0, answered_at=98.0, connector="RUNNING")
    assert source_facts(note, 114.0, 30.0).silent == 2.0
    assert source_facts(replace(note, answered_at=70.0), 101.0, 30.0).silent == 30.0  # it asks, and hears nothing
    assert source_facts(replace(note, connect_answered_at=97.0), 114.0, 30.0).connect_silent == 3.0
    assert source_facts(note, 114.0, 30.0).connect_silent == 90.0  # it has never answered this process


def test_records_that_come_while_the_slot_stands_still_are_known_by_their_moment() -> None:
    note = SourceNote(at=100.0, since=10.0, as_of=9.0, moved_at=9.0, answered_at=98.0, connector="RUNNING")
    assert source_facts(note, 101.0, 30.0).written > 30.0, "never"
    streams = source_facts(replace(note, written_at=97.0), 101.0, 30.0)
    assert streams.written == 4.0 and judge_source(streams).remedy is None
    assert source_facts(replace(note, written_at=900.0), 101.0, 30.0).written > 30.0, "the clock was put back"


def test_who_reads_a_transaction_again_and_again_is_told_how_that_is_known() -> None:
    """As one does whose WAL sender is cut off before its end: it was `behind`, and nothing to be done, for good."""
    reads = replace(LOG, age=5_000.0, still=LARGE_SECONDS, written=3.0)
    assert judge_source(reads).remedy is None
    told = judge_source(replace(reads, still=LARGE_SECONDS + 1))
    assert told.judgement == "behind" and "Kafka Connect's worker" in (told.remedy or "")
    late = replace(reads, still=1.0, written=float("inf"))
    assert judge_source(late).remedy is None, "older commits are read"
    rare = replace(late, limit=3 * LARGE_SECONDS, age=4 * LARGE_SECONDS, still=2 * LARGE_SECONDS)
    told = judge_source(rare)
    assert (told.judgement, told.remedy) == ("behind", None), "heartbeats are an hour apart: older commits are read"


def test_a_sink_that_was_only_saved_wants_an_apply() -> None:
    assert judge_sink(SinkFacts(unapplied=True), []).remedy == "`headwater apply FILE`"
    assert judge_sink(SinkFacts(), []).remedy == "`headwater run FILE`"


def test_an_errors_way_out_is_the_remedy() -> None:
    told = judge_flow(replace(RUNNING, state="failed", error=ERROR), WELL)
    assert (told.cause, told.remedy) == ("sink 'search' does not answer", "start the server")


def test_the_limit_lets_a_database_at_rest_be_well() -> None:
    """What was committed after a heartbeat is confirmed by the next but one at the latest; then somebody looks."""
    for heartbeat in (0.5, 5.0, 60.0):
        assert limit_of(heartbeat) > 2 * heartbeat + 5
    assert limit_of(5.0, trigger_seconds=60.0) > 5.0 + 2 * 60.0


seconds = st.floats(0, 10_000)
maybe = st.none() | seconds
states = st.sampled_from(["starting", "filling", "running", "retrying", "failed", "stopped", "dead", "never run"])
flows = st.builds(
    FlowFacts,
    flow=st.just("main"),
    state=states,
    error=st.none() | st.just(ERROR),
    age=maybe,
    limit=seconds,
    behind=st.none() | st.integers(0, 10),
    still=maybe,
    watched=maybe,
    deferred=st.integers(0, 3),
    hold=st.none() | st.just("why"),
    batch_seconds=seconds,
)
sources = st.builds(
    SourceFacts,
    watched=st.booleans(),
    age=maybe,
    limit=seconds,
    still=seconds,
    silent=seconds,
    connect_silent=seconds,
    failed_ago=maybe,
    written=seconds,
    error=st.none() | st.just("no answer"),
    kafka_error=st.none() | st.just("no brokers"),
    reading=st.just(()) | st.just(("public.t",)),
    connector=st.sampled_from(["RUNNING", "FAILED", "PAUSED", "STOPPED", "UNASSIGNED", "absent", "unknown"]),
    tasks=st.just(()) | st.just(("RUNNING",)) | st.just(("FAILED",)),
    slot_there=st.none() | st.booleans(),
    slot_active=st.none() | st.booleans(),
    slot_lost=st.booleans(),
)
words = st.sampled_from(["paused", "lost", "refused", "evolving"])
sinks = st.builds(
    lambda what, letters: replace(SinkFacts(letters=letters), **({what: "why"} if what else {})),
    st.none() | words,
    st.integers(0, 2),
)


@given(sinks, st.lists(flows, max_size=3), sources)
def test_what_may_never_be_told(facts: SinkFacts, at_work: list[FlowFacts], of: SourceFacts) -> None:
    source = judge_source(of)
    told = [judge_flow(flow, source) for flow in at_work]
    whole = judge_sink(facts, told)
    assert {source.judgement, whole.judgement, *(one.judgement for one in told)} <= set(JUDGEMENTS)
    for one in (source, whole, *told):
        assert (one.cause is None) == (one.judgement == "well"), one  # what is not well says why
    if source.judgement == "filling" and of.connector == "unknown":  # not for good beside a Connect that is dead
        assert of.connect_silent <= of.limit or (of.age is not None and of.age <= of.limit)
    if source.judgement == "well":
        assert of.age is not None and of.age <= of.limit
    for flow, judgement in zip(at_work, told, strict=True):
        if judgement.judgement == "well":  # never by its own word alone
            assert flow.state == "running" and flow.age is not None and flow.age <= flow.limit
        if judgement.judgement == "stalled":  # never while it gets on, and never with nothing to do
            assert flow.to_do and flow.still is not None and flow.still > WATCHDOG_SECONDS
        if flow.state in ("failed", "dead", "stopped", "never run"):
            assert judgement.bad
    if whole.judgement == "well":
        assert not facts.letters  # what readers see lacks nothing
        assert told and all(one.judgement == "well" for one in told)
    if facts.paused is facts.lost is facts.refused is None and "failed" in [one.judgement for one in told]:
        assert whole.judgement == "failed"  # no other trouble hides it


def test_the_bad_are_told_of_first() -> None:
    assert set(JUDGEMENTS[: len(BAD)]) == BAD
