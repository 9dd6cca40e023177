"""The rules by which a promoted standby is followed, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import psycopg
import pytest

from cdc.errors import ConnectUnavailable, SourceChanged, SourceError, SourceUnavailable, StateError
from connectors.database import timeline
from connectors.database.history import Moment
from connectors.database.slot import Slot
from connectors.database.timeline import parse_history
from connectors.gaps import promotion, source_gaps
from connectors.gaps.promotion import refuse_ahead, refuse_other_history, refuse_slot
from connectors.gaps.source_gaps import Remembered, refuse_unfollowed
from connectors.names import Names
from connectors.timeline_gate import gate
from operations.run.source_watch import memory
from operations.state.folder import followed_timelines
from spark.disk.files import write_atomic
from spark.disk.state import Generation
from tests.support.connector_cases import pipeline
from tests.unit.spark.test_spark_state import IDENTITY

SWITCH = 2000
NOW = Moment("7", 2, standby=False, wal_lsn=2500)
KNOWN = Remembered("7", 1, wal_lsn=1900, confirmed_lsn=700, offset_lsn=800, runner="r", installation="i", witness=5)
COPY = Slot("pgoutput", "d", False, None, 1800, "reserved", 1000, None, failover=True, synced=True)
HISTORY = {1: SWITCH}


def test_a_history_file() -> None:
    text = "1\t0/3004BA8\tno recovery target specified\n\n# a comment\n2\t1/0\tbefore 2026\n"
    assert parse_history(text) == {1: 0x3004BA8, 2: 1 << 32}
    assert parse_history(text.encode()) == parse_history(text)
    assert parse_history("") == {}


def test_what_holds_all_that_was_seen_may_be_followed() -> None:
    refuse_other_history(KNOWN, NOW, HISTORY, ("i", 5))
    refuse_other_history(replace(KNOWN, wal_lsn=SWITCH), NOW, {1: SWITCH, 2: 9000}, ("i", 6))
    refuse_slot("s", COPY, NOW, SWITCH)
    refuse_slot("s", replace(COPY, confirmed_lsn=SWITCH), NOW, SWITCH)
    refuse_ahead({"lsn": SWITCH, "lsn_commit": 1999}, NOW, SWITCH)


@pytest.mark.parametrize(
    ("known", "history", "witness", "why"),
    [
        (KNOWN, {}, ("i", 5), "does not come from timeline 1"),
        (replace(KNOWN, timeline=3), HISTORY, ("i", 5), "does not come from timeline 3"),
        (replace(KNOWN, wal_lsn=SWITCH + 1), HISTORY, ("i", 5), "left timeline 1 at 0/7D0, and the log went to 0/7D1"),
        (KNOWN, HISTORY, ("i", 4), "does not know what this runner has written: 5 times, it says 4"),
        (KNOWN, HISTORY, ("j", 9), "does not have the table"),
        (KNOWN, HISTORY, None, "does not have the table"),
        (replace(KNOWN, installation=None), HISTORY, ("i", 9), "does not have the table"),
    ],
)  # fmt: skip
def test_another_history_can_not_be_followed(
    known: Remembered, history: dict[int, int], witness: tuple[str, int] | None, why: str
) -> None:
    with pytest.raises(SourceChanged, match=why) as found:
        refuse_other_history(known, NOW, history, witness)
    assert "headwater recapture FILE" in found.value.fix


@pytest.mark.parametrize(
    ("slot", "why"),
    [
        (None, "slot s is not there"),
        (replace(COPY, synced=False), "is no copy of the slot"),
        (replace(COPY, failover=False), "is no copy of the slot"),
        (replace(COPY, failover=None), "is no copy of the slot"),
        (replace(COPY, wal_status="lost"), "is lost"),
        (replace(COPY, confirmed_lsn=SWITCH + 1), "somebody has read from slot s here already"),
    ],
)
def test_another_slot_can_not_be_followed(slot: Slot | None, why: str) -> None:
    with pytest.raises(SourceChanged, match=why):
        refuse_slot("s", slot, NOW, SWITCH)


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        ({"lsn": SWITCH + 1}, r"has read up to 0/7D1, and this server had the log up to 0/7D0"),
        ({"lsn": 5, "lsn_commit": SWITCH + 1}, "has read up to"),
        ({"lsn": 5, "snapshot": "INITIAL"}, "initial snapshot had not come to its end"),
        (None, "initial snapshot had not come to its end"),
    ],
)
def test_a_connector_that_is_ahead_can_not_follow(offset: dict[str, Any] | None, why: str) -> None:
    with pytest.raises(SourceChanged, match=why):
        refuse_ahead(offset, NOW, SWITCH)


# -- in order, with servers of the test's own --------------------------------------------------------------------------


class Connector:
    """Kafka Connect with one connector, and what was asked of it."""

    def __init__(self, state: str = "RUNNING", offset: dict[str, Any] | None = None) -> None:
        self.asked: list[str] = []
        self.state, self.kept = state, offset or {"lsn": 1999}

    def status(self, _: str) -> Any:
        return None if self.state == "none" else SimpleNamespace(connector=self.state, failed=self.state == "FAILED")

    def offset(self, _: str) -> dict[str, Any]:
        assert self.asked[-1] == "wait_stopped", "looked at while it may move"
        return self.kept

    def stop(self, _: str) -> None:
        self.asked.append("stop")
        self.state = "STOPPED"

    def resume(self, _: str) -> None:
        self.asked.append("resume")
        self.state = "RUNNING"

    def __getattr__(self, verb: str) -> Any:
        return lambda *_: self.asked.append(verb)


class Database:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, connector: Connector) -> None:
        self.noted: int | None = 1
        self.ours = False
        self.slots: list[Slot | None] = [COPY]
        self.connector = connector

        @contextmanager
        def alone(*_: Any) -> Iterator[None]:
            yield

        def note(_: Any, __: Any, timeline: int) -> None:
            connector.asked.append(f"note {timeline}")
            self.noted = timeline

        def note_stop(_: Any, __: Any, timeline: int, *, stopped: bool) -> None:
            connector.asked.append("ours" if stopped else "free")
            self.ours = stopped

        monkeypatch.setattr(promotion, "alone", alone)
        monkeypatch.setattr(promotion, "read_history", lambda *_: HISTORY)
        monkeypatch.setattr(promotion, "noted_timeline", lambda *_: self.noted)
        monkeypatch.setattr(promotion, "note_timeline", note)
        monkeypatch.setattr(promotion, "note_stop", note_stop)
        monkeypatch.setattr(promotion, "is_our_stop", lambda *_: self.ours)
        slots = self.slots
        monkeypatch.setattr(promotion, "read_slot", lambda *_: slots.pop(0) if len(slots) > 1 else slots[0])
        monkeypatch.setattr(promotion, "ConnectClient", lambda *_, **__: connector)
        monkeypatch.setattr(promotion, "ATTACHED_SECONDS", 0.0)

    def follow(self) -> None:
        promotion.follow(cast(Any, None), pipeline(), KNOWN, NOW, ("i", 5))


READING = replace(COPY, active=True)
STOPPED = ["stop", "wait_stopped"]
LOOKED = ["ours", *STOPPED, "note 2"]


def test_the_connector_is_looked_at_while_it_stands_still_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(monkeypatch, Connector("FAILED"))
    database.slots[:] = [COPY, READING]
    database.follow()
    assert database.connector.asked == [*LOOKED, "resume", "free", "close"] and database.noted == 2


def test_a_connector_that_somebody_has_stopped_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(monkeypatch, Connector("STOPPED"))
    database.follow()
    assert database.connector.asked == [*STOPPED, "note 2", "close"]


def away(monkeypatch: pytest.MonkeyPatch, database: Database, verb: str) -> None:
    """A server does not answer once: the runner tries again, as one that was killed there does."""

    def fails(*_: Any) -> Any:
        database.connector.asked.append(f"{verb}?")
        monkeypatch.delattr(database.connector, verb)
        raise ConnectUnavailable("no answer")

    monkeypatch.setattr(database.connector, verb, fails, raising=False)


@pytest.mark.parametrize("verb", ["wait_stopped", "offset", "resume"])
def test_a_connector_that_a_runner_has_stopped_goes_on_at_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    database = Database(monkeypatch, Connector())
    database.slots[:] = [COPY, READING]
    away(monkeypatch, database, verb)
    with pytest.raises(ConnectUnavailable):
        database.follow()
    assert database.connector.state == "STOPPED"
    database.follow()
    assert database.connector.state == "RUNNING" and database.noted == 2
    assert not database.ours, "who stops it from now on wants that"


def test_what_was_looked_at_is_not_looked_at_again_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have read on by then, from here."""
    database = Database(monkeypatch, Connector("STOPPED", {"lsn": 9999}))
    database.noted, database.ours = 2, True
    database.slots[:] = [replace(READING, confirmed_lsn=9999)]
    database.follow()
    assert database.connector.asked == ["resume", "free", "close"]


def test_what_another_runner_has_followed_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(monkeypatch, Connector(offset={"lsn": 9999}))
    database.noted = 2
    database.follow()
    assert database.connector.asked == []


@pytest.mark.parametrize(
    ("connector", "slots", "asked"),
    [
        (Connector(offset={"lsn": SWITCH + 1}), [COPY], ["ours", *STOPPED, "close"]),
        (Connector("none"), [COPY], ["close"]),
        (Connector(), [None], []),
    ],
)
def test_what_can_not_be_followed_is_not_noted(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, slots: list[Slot | None], asked: list[str]
) -> None:
    database = Database(monkeypatch, connector)
    database.slots[:] = slots
    with pytest.raises(SourceChanged, match="can't be followed"):
        database.follow()
    assert connector.asked == asked and database.noted == 1


def test_a_history_that_can_not_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(monkeypatch, Connector())
    for error, raised in (
        (psycopg.errors.SyntaxError("no such command"), SourceChanged),
        (psycopg.OperationalError("gone"), SourceUnavailable),
    ):

        def fails(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(promotion, "read_history", fails)
        with pytest.raises(raised, match=str(error)):
            database.follow()
    assert database.connector.asked == []


def test_a_connector_that_reads_from_another_server_is_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(monkeypatch, Connector())
    refused = [*LOOKED, "resume", "note 1", "stop", "close"]
    for attempt in (1, 2):
        with pytest.raises(SourceChanged, match="it reaches another server"):
            database.follow()
        assert database.connector.asked == refused * attempt, "said again, and not taken for followed"
    assert (database.noted, database.connector.state) == (1, "STOPPED")
    database.slots[:] = [COPY, READING]
    database.follow()
    assert (database.noted, database.connector.state) == (2, "RUNNING")


# -- what is remembered, and what else refuses -------------------------------------------------------------------------


def test_only_a_promotion_is_asked_about() -> None:
    assert source_gaps._promoted(NOW, KNOWN)
    for other in (
        replace(NOW, system_identifier="8"),
        replace(NOW, standby=True),
        replace(NOW, timeline=1),
        replace(NOW, timeline=0),
    ):
        assert not source_gaps._promoted(other, KNOWN)


def test_a_timeline_that_nobody_has_followed_is_refused_by_every_verb() -> None:
    for noted in (None, 2):
        refuse_unfollowed(noted, NOW)
    refuse_unfollowed(1, replace(NOW, standby=True))
    with pytest.raises(SourceChanged, match="is on timeline 2, and timeline 1 is what was followed") as found:
        refuse_unfollowed(1, NOW)
    assert found.value.fix.startswith("`headwater run FILE`")


def test_what_was_followed_is_remembered_and_an_older_version_can_read_the_rest() -> None:
    assert "followed" not in KNOWN.to_dict()
    assert Remembered(**orjson.loads(orjson.dumps(asdict(KNOWN)))) == KNOWN
    after = replace(KNOWN, timeline=3, followed=(1, 2))
    assert Remembered(**orjson.loads(orjson.dumps(after.to_dict()))) == after


def test_a_generation_goes_on_across_timelines_that_were_followed(tmp_path: Path) -> None:
    made = pipeline()
    made = made.model_copy(update={"engine": made.engine.model_copy(update={"state_dir": str(tmp_path)})})
    generation = Generation(tmp_path, "shop", "search")
    generation.bind(IDENTITY)
    after = replace(IDENTITY, timeline=IDENTITY.timeline + 1)
    assert followed_timelines(made) == frozenset()
    with pytest.raises(StateError, match="failed over"):
        generation.bind(after, followed_timelines(made))
    seen = replace(KNOWN, timeline=after.timeline, followed=(IDENTITY.timeline,))
    write_atomic(memory(made), orjson.dumps(seen.to_dict()).decode())
    for identity in (after, IDENTITY, after):  # whoever starts with what it knew before the failover, too
        generation.bind(identity, followed_timelines(made))
    with pytest.raises(StateError, match="failed over"):
        generation.bind(replace(after, timeline=after.timeline + 1), followed_timelines(made))


def test_a_generation_that_was_opened_since_needs_no_memory_of_the_failover(tmp_path: Path) -> None:
    """`source.json` was lost: every sink was refused for good, and the advice was to capture everything anew."""
    generation, after = Generation(tmp_path, "shop", "search"), replace(IDENTITY, timeline=IDENTITY.timeline + 1)
    generation.bind(IDENTITY)
    generation.bind(after, (IDENTITY.timeline, after.timeline))
    generation.bind(IDENTITY, (IDENTITY.timeline, after.timeline))  # who knows the former one does not lead back
    generation.bind(after)
    with pytest.raises(StateError, match="failed over"):
        generation.bind(IDENTITY)


class Looks:
    """A database on timeline 3, looked at by a runner; what it asks for is the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, noted: int | None = 3) -> None:
        self.history: dict[int, int] | Exception = {1: 500, 2: SWITCH}
        self.asked = 0
        now = replace(NOW, timeline=3)
        for name, answer in {
            "within": lambda *_: nullcontext(),
            "read_slot": lambda *_: COPY,
            "_stored_offset": lambda *_, **__: (True, {"lsn": 1999}),
            "read_moment": lambda *_: now,
            "read_witness": lambda *_: ("i", 5),
            "raise_witness": lambda *_: 6,
            "noted_timeline": lambda *_: noted,
        }.items():
            monkeypatch.setattr(source_gaps, name, answer)
        monkeypatch.setattr(timeline, "read_history", self._read)

    def _read(self, _: Any, number: int) -> dict[int, int]:
        assert number == 3
        self.asked += 1
        if isinstance(self.history, Exception):
            raise self.history
        return self.history

    def look(self, known: Remembered | None = None, *, follows: bool = True) -> tuple[int, ...]:
        """The timelines that are followed from now on."""
        follow = (lambda *_: None) if follows else None
        return source_gaps._check(cast(Any, None), pipeline(), known, follow).followed


def test_what_was_followed_is_known_from_the_database_where_it_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that was paused through the failover is bound to the timeline before it."""
    looks = Looks(monkeypatch)
    assert looks.look() == (1, 2)
    assert looks.look(replace(KNOWN, timeline=3)) == () and looks.look(follows=False) == () and looks.asked == 1
    looks.history = SourceError("could not open file")
    assert looks.look() == ()
    looks.history = SourceUnavailable("gone")
    with pytest.raises(SourceUnavailable):  # and nothing is remembered: it is asked again
        looks.look()


def test_a_timeline_that_nobody_noted_is_not_followed_by_who_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Looks(monkeypatch, None).look() == ()
    with pytest.raises(SourceChanged, match="timeline 2 is what was followed"):
        Looks(monkeypatch, 2).look()


def test_the_gate_is_one_statement() -> None:
    text = gate(Names('od"d', "shop"))
    assert '"od""d"."witness_shop"' in text
    assert ";" not in text, "Debezium would take it for two"
