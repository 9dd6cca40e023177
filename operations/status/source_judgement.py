"""The one judgement of how the way into the log is: the database's slot, the connector. Pure.

Docs: docs/operations.md, "How a sink is".
"""

from __future__ import annotations

from dataclasses import dataclass

from connectors.rest import STANDS_STILL
from operations.freshness.source_words import SourceWords
from operations.status.judgement import APPLY, RUN, WELL, Judgement

# Postgres or Kafka may be away for a restart before that is news.
SILENT_SECONDS = 10.0
# `run` leaves a connector that fails again and again alone for ten minutes at most; then it reads up to its cause.
AGAIN_SECONDS = 900.0
# Of a transaction that takes longer than this, nobody can tell from here one that is read from its beginning again and
# again, which takes for ever.
LARGE_SECONDS = 1_800.0
_AGAIN = (
    "wait for its end; if the log of Kafka Connect's worker says that it is begun again and again, remove what ends it"
    " there (a worker that is started again, wal_sender_timeout)"
)


@dataclass(frozen=True)
class SourceFacts(SourceWords):
    """What is known of the way into the log.

    Attributes:
        watched: a process looks at it; else nothing of it is news.
        age: of the log, in seconds, measured from the commits; None when not known.
        limit: above which age something is wrong.
        still: seconds since the slot was last seen to get on.
        silent: seconds since Postgres, and Kafka of tables that are being read, last answered.
        connect_silent: seconds since Kafka Connect last answered.
        failed_ago, failed_why: seconds since the connector was last seen to have failed, None for never; and why.
        written: seconds since records were last seen to come into the log while the slot stood still.
    """

    watched: bool
    age: float | None = None
    limit: float = 30.0
    still: float = 0.0
    silent: float = 0.0
    connect_silent: float = 0.0
    failed_ago: float | None = None
    failed_why: str | None = None
    written: float = float("inf")


def judge_source(facts: SourceFacts) -> Judgement:  # noqa: PLR0911 - one line a case, the worst first
    """How the way into the log is."""
    if (told := _connector(facts) or _slot(facts)) is not None:
        return told
    if not facts.watched:
        return Judgement("stopped", "no `headwater run` is at work that would look at the source", RUN)
    if facts.silent > SILENT_SECONDS:  # without an error: whoever was asked hangs
        cause = facts.error or f"Postgres (or Kafka) has not answered for {facts.silent:,.0f} s"
        return Judgement("retrying", cause, "start what does not answer; the rest comes by itself")
    if facts.reading and not _unread(facts):
        return Judgement("filling", f"rows are being read: {', '.join(facts.reading)}")
    if facts.age is not None and facts.age <= facts.limit:
        return WELL
    young = facts.age is None and facts.still <= facts.limit
    if young and facts.error is None and facts.kafka_error is None and not facts.reading:
        return Judgement("starting", "nothing was confirmed by the slot yet")
    return _late(facts)


def _connector(facts: SourceFacts) -> Judgement | None:
    states = (facts.connector, *facts.tasks)
    if "FAILED" in states:
        return Judgement("failed", facts.connector_error or "the connector has failed", f"{APPLY} starts it again")
    if facts.connector == "absent":
        return Judgement("stopped", facts.connector_error or "there is no connector", APPLY)
    for state, name in (("STOPPED", "stopped"), ("PAUSED", "paused")):
        if state in states:
            said = f"the connector was {name} in Kafka Connect: no change comes into the log"
            return Judgement("stopped" if name == "stopped" else "paused", said, "resume it in Kafka Connect")
    return None


def _slot(facts: SourceFacts) -> Judgement | None:
    if facts.slot_lost:
        return Judgement("failed", "the slot is lost", "`headwater resnapshot FILE --all`")
    if facts.slot_there is False:
        return Judgement("failed", "there is no slot", APPLY)
    return None


def _unread(facts: SourceFacts) -> bool:
    """Whether whoever should read the rows is away, or fails: a list of tables says only that they are not read yet.

    A first reading takes hours, of which the slot, that nobody reads from meanwhile, says nothing: so a worker that
    does not answer is measured by its own silence, and its restart is no news.
    """
    if facts.age is not None and facts.age <= facts.limit:
        return False
    return facts.connect_silent > facts.limit if facts.connector == "unknown" else _fails_again(facts)


def _fails_again(facts: SourceFacts) -> bool:
    """Between two failures it says RUNNING, and reads the log up to what it fails at."""
    stuck = facts.slot_active is False or facts.still > facts.limit
    return stuck and facts.failed_ago is not None and facts.failed_ago <= AGAIN_SECONDS


def _late(facts: SourceFacts) -> Judgement:
    of_connector = _of_connector(facts)
    # Brokers that are silent, or refuse, keep `run` from knowing how far the log is, whether the slot moves or not. Of
    # records that were seen to come they have told.
    if facts.kafka_error is None or facts.written <= facts.limit:
        return of_connector
    fix = facts.kafka_fix or "see to it that Kafka's brokers answer"
    # The connector waits for them, too, and so does its worker; but not for one partition of many.
    if facts.slot_active is False or facts.still > max(AGAIN_SECONDS, facts.limit):
        cause = f"Kafka: {facts.kafka_error}; and {of_connector.cause}"
        return Judgement("retrying", cause, f"{fix}; if that was not all: {of_connector.remedy}")
    return Judgement("retrying", facts.kafka_error, f"{fix}; the rest comes by itself")


def _of_connector(facts: SourceFacts) -> Judgement:
    if facts.connector == "unknown":
        cause = facts.connector_error or "Kafka Connect does not answer"
        return Judgement("stalled", cause, "start Kafka Connect's worker")
    if _fails_again(facts):
        cause = f"{facts.failed_why or 'the connector fails'}; `run` has started it again"
        return Judgement("retrying", cause, "remove the cause; `run` starts the connector again and again")
    if facts.slot_active is False:
        return Judgement("stalled", "nobody reads from the slot, though the connector says RUNNING", STANDS_STILL)
    if min(facts.still, facts.written) <= facts.limit:
        large = facts.still > facts.limit
        what = "a large transaction, and the slot moves at its end" if large else "older commits"
        again = _AGAIN if large and facts.still > LARGE_SECONDS else None
        return Judgement("behind", f"the connector is behind the database: it reads {what}", again)
    cause = f"the slot has not moved for {facts.still:,.0f} s: the connector or its WAL sender hangs"
    return Judgement("stalled", cause, STANDS_STILL)
