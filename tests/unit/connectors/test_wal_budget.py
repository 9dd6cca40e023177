"""The judgement of the WAL that a slot keeps: levels, forecast, what holds it, and what is told and done about it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import DiskFull, SlotLost, SourceError, SourceUnavailable
from cdc.pipeline import Pipeline
from connectors.database.slot import Slot
from connectors.preflight import transactions
from connectors.wal.budget import Budget, Sample, growth, judge
from connectors.wal.look import Look
from connectors.wal.pins import Pin, better_seen, long_ones, shortened
from operations.run import wal_watch
from operations.run.wal_watch import LOOKS_BEFORE_RELEASE, WalWatch
from operations.state import wal
from operations.state.wal import Window, judged, read_release, read_weighed, read_window, write_window
from operations.status.judgement import Judgement
from operations.status.wal import judge_wal
from tests.support.connector_cases import pipeline as config_pipeline

MIB, GIB = 1 << 20, 1 << 30
OPEN = Pin("transaction", 4711, "", "shop", "psql", "shop", "idle in transaction", 90.0, "UPDATE t", "77")


def ramp(seconds: float, per_second: float, start: float = 0, step: float = 5) -> list[Sample]:
    return [Sample(at * step, int(start + at * step * per_second)) for at in range(int(seconds / step) + 1)]


# -- growth ------------------------------------------------------------------------------------------------------------


def test_steady_growth_is_found_through_noise_and_bursts() -> None:
    dice = random.Random(1)
    noisy = [Sample(s.at, s.retained + dice.randrange(-8 * MIB, 8 * MIB)) for s in ramp(600, MIB, start=100 * MIB)]
    assert growth(noisy) == pytest.approx(MIB, rel=0.1)
    noisy[60] = Sample(noisy[60].at, noisy[60].retained + GIB)  # one wild value
    noisy.pop(61)
    assert growth(noisy) == pytest.approx(MIB, rel=0.1)


def test_a_slot_that_is_well_has_no_growth() -> None:
    saw = [Sample(at * 5.0, (at % 3) * 20 * MIB + 100) for at in range(180)]
    assert growth(saw) == 0.0, "it has moved a moment ago"
    assert growth(ramp(600, 0, start=MIB)) == 0.0
    assert growth(ramp(600, -MIB, start=700 * MIB)) == 0.0


def test_growth_that_cannot_be_told_is_not_none_at_all() -> None:
    assert growth([]) is None
    assert growth(ramp(30, MIB)) is None, "half a minute says nothing"
    assert growth([Sample(0, 0), Sample(100, MIB)]) is None, "nor do two samples"
    assert growth([Sample(5, 0)] * 5 + [Sample(5, GIB)] * 20) is None, "a clock that stands"
    moved = [Sample(0, GIB), Sample(70, MIB), Sample(80, 2 * GIB)]
    assert growth(moved) is None, "it keeps more than before it moved"
    assert growth(moved[:2]) == 0.0


def test_a_slot_that_moves_too_slowly_grows() -> None:
    slow = [Sample(at * 5.0, 50 * MIB + at * 5 * MIB - (at % 3) * 5 * MIB) for at in range(120)]
    assert growth(slow) == pytest.approx(MIB, rel=0.2)


def test_what_was_before_the_slot_moved_does_not_count() -> None:
    stuck = ramp(300, 10 * MIB)
    freed = [Sample(300 + s.at, s.retained) for s in ramp(300, MIB, step=5)][1:]
    assert growth([*stuck, *freed]) == pytest.approx(MIB, rel=0.01)


# -- levels and forecast -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retained", "level"),
    [(0, "none"), (499, "none"), (500, "warn"), (799, "warn"), (800, "alarm"), (999, "alarm"), (1000, "over")],
)
def test_levels(retained: int, level: str) -> None:
    assert judge(retained=retained, budget=1000, limit=None).level == level
    assert judge(retained=retained, budget=10**6, limit=1000).level == level, "the lesser of the two counts"
    assert judge(retained=retained, budget=1000, limit=10**6).level == level


def test_a_level_is_left_a_little_later_than_it_was_reached() -> None:
    said = [judge(retained=kept, budget=1000, limit=None, before="warn").level for kept in (499, 451, 449)]
    assert said == ["warn", "warn", "none"]
    assert judge(retained=950, budget=1000, limit=None, before="over").level == "over"
    assert judge(retained=899, budget=1000, limit=None, before="over").level == "alarm"
    assert judge(retained=799, budget=1000, limit=None, before="warn").level == "warn"


def test_what_postgres_says_of_the_slot_counts_more() -> None:
    for status in ("unreserved", "lost"):
        found = judge(retained=None if status == "lost" else 1, budget=GIB, limit=None, wal_status=status)
        assert (found.level, found.seconds_to_full) == ("over", 0.0)
    assert judge(retained=None, budget=GIB, limit=None).level is None


def test_the_time_that_is_left() -> None:
    samples = ramp(600, MIB)
    found = judge(retained=600 * MIB, budget=10 * GIB, limit=2 * GIB, samples=samples)
    assert found.growth_bytes_per_second == pytest.approx(MIB)
    assert found.seconds_to_full == pytest.approx(2048 - 600)
    assert "600 MiB of WAL, 29 % of max_slot_wal_keep_size (2 GiB); full in about 24 min, at 60 MiB a minute" in (
        found.words("s")
    )
    assert judge(retained=600 * MIB, budget=GIB, limit=2 * GIB, samples=samples).seconds_to_full == pytest.approx(424)
    assert judge(retained=5, budget=10 * GIB, limit=None, samples=ramp(600, 10)).seconds_to_full is None, "34 years"
    shrinking = judge(retained=1, budget=GIB, limit=None, samples=ramp(600, -MIB, start=700 * MIB))
    assert (shrinking.growth_bytes_per_second, shrinking.seconds_to_full) == (0.0, None)


def test_plain_data() -> None:
    found = judge(retained=1, budget=GIB, limit=None, pins=[OPEN]).to_dict()
    assert json.loads(json.dumps(found))["pinned_by"][0]["pid"] == 4711
    assert found.keys() >= {"retained_bytes", "limit_bytes", "growth_bytes_per_second", "seconds_to_full", "level"}


# -- what holds the slot -----------------------------------------------------------------------------------------------


def test_long_transactions_are_named_the_oldest_first() -> None:
    young = Pin("transaction", 1, "", "a", "", "d", "active", 59.0, "x", "78")
    blind = Pin("transaction", 2, "", "b", "", "d", "", None, None, "79")
    assert long_ones([OPEN, young, blind], tight=False) == (OPEN,)
    assert long_ones([OPEN, young, blind], tight=True) == (OPEN, blind)
    seen = {"79": 100.0, "78": 100.0}
    assert long_ones([blind], tight=False, first_seen=seen, now=159.0) == ()
    assert long_ones([blind], tight=True, first_seen=seen, now=110.0) == (blind,), "it may have been open before"
    [aged] = long_ones([blind], tight=False, first_seen=seen, now=165.0)
    assert aged.seconds == 65.0 and "open for 65 s" in aged.words


def test_of_many_the_first_are_told_and_how_many_more_there_are() -> None:
    """Five of three hundred were named, as if ending them would free the slot."""
    five, nine = (judge(retained=1, budget=GIB, limit=None, pins=long_ones([OPEN] * n, tight=False)) for n in (5, 9))
    assert len(five.held) == 5 and "more" not in five.held[-1]
    assert [line.startswith("transaction of shop") for line in nine.held] == [*[True] * 5, False]
    assert nine.held[-1].startswith("4 more") and len(nine.to_dict()["pinned_by"]) == 9


@pytest.mark.parametrize(("count", "named", "more"), [(5, 5, []), (9, 5, ["4 more"])])
def test_check_says_how_many_more_there_are(
    monkeypatch: pytest.MonkeyPatch, count: int, named: int, more: list[str]
) -> None:
    site: Any = SimpleNamespace(pipeline=config_pipeline(), db=None, setup=SourceError("no owner"))
    monkeypatch.setattr(transactions, "look", lambda *_: Look(None, None, (OPEN,) * count))
    found = list(transactions.run(site))
    assert len([one for one in found if one.about == "pid 4711"]) == named
    assert [one.message.partition("past ")[2].partition(",")[0][:6] for one in found[named:]] == more


def test_what_another_role_sees_completes_it() -> None:
    blind = Pin("transaction", 4711, "", "shop", "psql", "shop", "", None, None, "77")
    other = Pin("transaction", 4711, "", "shop", "psql", "shop", "active", 9.0, "x", "70")
    assert better_seen([blind], [OPEN]) == [OPEN]
    assert better_seen([blind], [other]) == [blind], "another transaction of the same session"


def test_pins_in_words() -> None:
    assert OPEN.words == ("transaction of shop in shop (psql, pid 4711, idle in transaction), open for 90 s: UPDATE t")
    assert "pg_terminate_backend(4711)" in OPEN.fix and "GRANT" not in OPEN.fix
    prepared = Pin("prepared", None, "it's", "shop", "", "shop", "", 7200.0, None)
    assert "open for 2 h" in prepared.words and "ROLLBACK PREPARED 'it''s'" in prepared.fix
    blind = Pin("transaction", 5, "", "shop", "", "shop", "", None, None)
    assert "may not see" in blind.words and "GRANT pg_monitor" in blind.fix
    standby = Pin("standby", None, "one", "", "", "", "", None, None)
    assert "standby of slot one" in standby.words and "synchronized_standby_slots" in standby.fix


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("UPDATE t\n   SET a = b", "UPDATE t SET a = b"),
        ("ALTER ROLE x PASSWORD 'hunter2'", "ALTER ROLE x PASSWORD …"),
        ("SELECT 1 -- don't\n, 'hunter2'", "SELECT ? -- don …"),
        ("SELECT E'it\\'s hunter2', 'hunter2'", "SELECT E …"),
        ("DO $x$ hunter2 $x$", "DO …"),
        ("DO $$ hunter2 $$", "DO …"),
        ("SELECT $1, t1.c2, 4711, 3.5e7 FROM t2", "SELECT $1, t1.c2, ?, ? FROM t2"),
        ("x" * 200, "x" * 120 + " …"),
    ],
)
def test_of_a_query_only_what_holds_no_values_is_shown(query: str, shown: str) -> None:
    assert shortened(query) == shown


# -- what is remembered, told and done ---------------------------------------------------------------------------------


def slot(kept: int | None, status: str = "reserved") -> Slot:
    return Slot("pgoutput", "d", True, 1, 6, status, kept, None)


def seen(kept: int | None, *pins: Pin, there: bool = True) -> Look:
    return Look(slot(kept) if there else None, None, pins)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = config_pipeline()
    policy = made.policy.model_copy(update={"wal_budget": 1000, "wal_at_limit": "release"})
    engine = made.engine.model_copy(update={"state_dir": str(tmp_path)})
    return made.model_copy(update={"policy": policy, "engine": engine})


def test_the_window_is_remembered(pipeline: Pipeline) -> None:
    assert read_window(pipeline) == Window()
    window = Window()
    for at in range(0, 2000, 5):
        window = window.with_look(seen(at, OPEN), float(at))
    assert (window.samples[0].at, window.samples[-1].at, window.first_seen) == (1095.0, 1995.0, {"77": 0.0})
    assert window.with_look(seen(0), 1996.0).samples[-1].at == 1995.0, "another run has just looked"
    assert window.with_look(seen(0), 2000.0).first_seen == {}
    assert window.with_look(seen(None, there=False), 2000.0).samples == ()
    write_window(pipeline, window)
    assert read_window(pipeline) == window
    other = pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"slot": "other"})})
    assert read_window(other) == Window()
    (Path(pipeline.engine.state_dir) / pipeline.name / "wal.json").write_text("{")
    assert read_window(pipeline) == Window()


def test_nothing_is_known_when_postgres_is_away(pipeline: Pipeline) -> None:
    assert judged(pipeline, None) == Budget(None, 1000)


class World:
    """A watch with looks of the test's own."""

    def __init__(self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: list[Look | None] = []
        self.releases: list[int] = []
        self.outcome: bool | Exception = True
        self.way_out: Exception | None = None
        self.watch = WalWatch(pipeline, self._check)
        monkeypatch.setattr(self.watch, "_look", lambda: self.looks.pop(0))
        monkeypatch.setattr(wal_watch, "release", self._release)

    def _check(self) -> None:
        if self.way_out is not None:
            raise self.way_out

    def _release(self, _: Pipeline, full: int) -> bool:
        self.releases.append(full)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def after(self, *kept: int) -> list[str]:
        """What is said while the slot keeps these, one after the other."""
        said = []
        for one in kept:
            self.looks.append(seen(one, OPEN))
            said += self.watch.look()
        return said


@pytest.fixture
def world(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(wal, "LEAST_PAUSE_SECONDS", 0.0)
    return World(pipeline, monkeypatch)


def test_each_change_of_level_is_told_once(world: World) -> None:
    said = world.after(10, 510, 520, 490, 810, 820, 510, 510, 100, 90)
    assert [line.partition(":")[0] for line in said[:2]] == ["warning", "alarm"]
    assert "pg_terminate_backend(4711)" in said[0]
    assert said[2].endswith("less than before") and said[3].endswith("well again")
    assert len(said) == 4
    world.looks.append(None)
    assert world.watch.look() == [], "Postgres is away"


def test_what_was_judged_is_left_for_who_asks_nobody(world: World, pipeline: Pipeline) -> None:
    world.after(810)
    found = read_weighed(pipeline)
    assert found is not None and (found.level, found.full_bytes) == ("alarm", 1000)
    assert "81 % of policy.wal_budget" in found.words and "pg_terminate_backend(4711)" in found.held[0]
    assert judge_wal(found) == Judgement("behind", found.words, found.held[0])
    world.after(100)
    assert judge_wal(read_weighed(pipeline)).judgement == "well"
    world.looks.append(seen(None, there=False))
    world.watch.look()
    assert read_weighed(pipeline) is None and not judge_wal(None).bad


def test_the_slot_is_given_up_when_it_stays_over_the_limit(world: World, pipeline: Pipeline) -> None:
    over = [1200] * LOOKS_BEFORE_RELEASE
    world.after(*over[1:], 300, *over[1:])
    assert world.releases == [], "a peak that passes is none"
    world.way_out = SlotLost("slot is gone", fix="the way out")
    with pytest.raises(SlotLost, match=r"was given up at .*policy.wal_at_limit: release") as found:
        world.after(1300)
    assert world.releases == [1000] and found.value.fix == "the way out"
    note = read_release(pipeline)
    assert note is not None and (note.retained_bytes, note.confirmed_lsn) == (1300, 6)
    other = pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"slot": "other"})})
    assert read_release(other) is None
    again = wal_watch.with_reason(pipeline, SlotLost("slot is gone", fix="the way out"))
    assert "was given up at" in again.what and again.fix == "the way out"
    world.after(5)  # there is a slot again
    assert read_release(pipeline) is None
    assert wal_watch.with_reason(pipeline, found.value) is found.value


def test_the_way_out_is_known_when_nobody_answers(world: World) -> None:
    world.way_out = SourceUnavailable("away")
    with pytest.raises(SlotLost) as found:
        world.after(*[1200] * LOOKS_BEFORE_RELEASE)
    assert "headwater resnapshot FILE --all" in found.value.fix


@pytest.mark.parametrize(
    ("first", "command"), [(True, "headwater drop FILE --topics"), (False, "resnapshot FILE --all")]
)
def test_a_first_snapshot_that_is_cut_begins_again(
    world: World, monkeypatch: pytest.MonkeyPatch, first: bool, command: str
) -> None:
    monkeypatch.setattr(wal_watch, "in_first_snapshot", lambda _: first)
    with pytest.raises(SlotLost) as found:
        world.after(*[1200] * LOOKS_BEFORE_RELEASE)
    assert command in found.value.fix


def test_a_full_disk_of_ours_does_not_keep_the_database_s_from_filling(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise DiskFull("no room")

    for name in ("write_window", "note_release"):
        monkeypatch.setattr(wal_watch, name, lambda *args: full() if args[-1] is not None else None)
    world.way_out = SourceUnavailable("away")
    assert len(world.after(1200)) == 1, "what there is to say is said"
    with pytest.raises(SlotLost):
        world.after(*[1200] * LOOKS_BEFORE_RELEASE)
    assert world.releases == [1000]


def test_alert_gives_nothing_up(world: World, pipeline: Pipeline) -> None:
    alert = pipeline.policy.model_copy(update={"wal_at_limit": "alert"})
    world.watch.pipeline = pipeline.model_copy(update={"policy": alert})
    assert len(world.after(*[1200] * 10)) == 1
    assert world.releases == [] and read_release(pipeline) is None


def test_a_slot_that_can_not_be_given_up_is_tried_again_and_told_once(world: World, pipeline: Pipeline) -> None:
    world.outcome = SourceError("somebody else reads from it")
    said = world.after(*[1200] * (LOOKS_BEFORE_RELEASE + 3))
    assert len(world.releases) == 4
    assert [line for line in said if "somebody else" in line] == said[1:] and len(said) == 2
    assert read_release(pipeline) is None
    world.outcome = False  # it has moved at that moment
    assert world.after(1200) == [] and read_release(pipeline) is None


def test_a_report_survives_json(pipeline: Pipeline) -> None:
    from operations.status.source import budget

    found: Any = judged(pipeline, seen(600, OPEN)).to_dict()
    assert budget({"wal": json.loads(json.dumps(found))}).to_dict() == found
