"""What windows and matches keep between batches, and the versions that they give: on a real Spark, without a log."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.timed import Kind, MatchView, Measure, WindowView, micros_of
from spark.events.matches import analyse_matches, matches
from spark.events.stateful import begin_stateful
from spark.events.timed import AGAIN, AT, CLOCK, SAFE, timed_schema
from spark.events.windows import analyse_windows, windows
from spark.reading.expressions import PREFIX
from tests.support.own_session import own_session
from tests.support.timed import AVERAGES, EVENTS, MATCHES, VIEWS, averages

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.sampled(turn=0, of=2),
]
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
# Of an event's key in the state: what Happenings.java writes before the number of events.
_COUNT = slice(9, 13)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_session(tmp_path_factory.mktemp("spark")) as session:
        session.conf.set("spark.sql.shuffle.partitions", "1")
        yield session
        session.stop()


def event(
    about: str, seconds: float, version: int, what: str = "viewed", safe: float | None = None, payload: str = "{}"
) -> dict[str, Any]:
    """An event as ``event_rows`` gives it.

    Args:
        about: its aggregate.
        seconds: after BEGIN, when it happened.
        version: its position.
        what: its type.
        safe: after BEGIN, what all partitions have reached; None for nothing yet.
        payload: JSON.
    """
    at = BEGIN + timedelta(seconds=seconds)
    own = {"view": "v", "id": f"{about}/{version}", "version": version, "topic": "t", "partition": 0}
    own |= {"offset": version, "ts_ms": 1}
    reached = datetime.fromtimestamp(0, UTC) if safe is None else BEGIN + timedelta(seconds=safe)
    row = {"id": f"{about}/{version}", "aggregatetype": "account", "aggregateid": about, "type": what}
    row["payload"] = payload
    times = {AGAIN: False, AT: int(at.timestamp()) * 1_000_000, CLOCK: None, SAFE: reached.isoformat()}
    return {PREFIX + name: value for name, value in own.items()} | row | {"at": at.isoformat()} | times


@dataclass
class Kept:
    """A view's stateful step, which is fed batch by batch."""

    spark: SparkSession
    folder: Path
    query: StreamingQuery
    fed: int = field(default=0)

    def feed(self, *events: dict[str, Any]) -> None:
        """One batch, and what follows it without events."""
        self.fed += 1
        new = self.folder / f"new{self.fed}"
        new.write_text("".join(json.dumps(one) + "\n" for one in events))
        new.replace(self.folder / "in" / f"{self.fed}.json")
        self.query.processAllAvailable()

    def told(self) -> list[Any]:
        """All that has left the step."""
        return self.spark.table(str(self.query.name)).collect()

    def state(self, name: str) -> dict[str, bytes]:
        """Key -> what the state has of it."""
        reader = self.spark.read.format("statestore").option("stateVarName", name)
        rows = reader.load(str(self.folder / "checkpoint")).select("key.value", "value.value").toDF("key", "value")
        return {row.key: bytes(row.value) for row in rows.collect()}

    def timers(self) -> dict[str, list[int]]:
        """Key -> when its timers ring, in seconds after BEGIN."""
        reader = self.spark.read.format("statestore").option("readRegisteredTimers", "true")
        found: dict[str, list[int]] = {}
        for row in reader.load(str(self.folder / "checkpoint")).collect():
            rings = row.expiration_timestamp_ms / 1000 - BEGIN.timestamp()
            found.setdefault(row.key.value, []).append(round(rings))
        return {key: sorted(rings) for key, rings in found.items()}

    def complained(self) -> bool:
        """Whether a timer was registered twice: Spark's log would have the key in it.

        A virtual machine of tests before writes where it was told then.
        """
        told = Path(self.spark.sparkContext._jvm.java.lang.System.getProperty("headwater.log"))  # type: ignore[union-attr]
        log = [path.read_text() for path in told.parent.glob(f"{told.name}*")]
        assert log
        return any("Failed to register timer" in text for text in log)


@pytest.fixture
def keep(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """Begins a view's stateful step."""
    begun: list[Kept] = []

    def begin(view: WindowView | MatchView) -> Kept:
        (tmp_path / "in").mkdir()
        given = spark.readStream.schema(timed_schema(view)).json(str(tmp_path / "in"))
        if isinstance(view, MatchView):
            made = matches(spark, given, analyse_matches(spark, view))
        else:
            made = windows(spark, given, analyse_windows(spark, view))
        writer = made.writeStream.format("memory").queryName("told").outputMode("update")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        begun.append(Kept(spark, tmp_path, begin_stateful(spark, writer.start)))
        return begun[-1]

    yield begin
    for one in begun:
        one.query.stop()


def counts(kept: Kept) -> dict[str, int]:
    """Events that are kept of each key of matches."""
    return {key: int.from_bytes(value[_COUNT], "big") for key, value in kept.state("events").items()}


def test_an_event_that_is_dated_far_ahead_does_not_keep_the_others_of_its_key(keep: Any) -> None:
    kept = keep(MATCHES["all"])
    year = 86_400 * 365
    kept.feed(event("a", year, 1), event("a", 60, 2), event("a", year, 3))
    kept.feed(event("a", 60, 4, "größer"))
    assert counts(kept) == {"ka": 4}
    kept.feed(event("b", 2 * 3600, 5, safe=2 * 3600))
    assert counts(kept) == {"ka": 2, "kb": 1}
    kept.feed(event("b", 2 * year, 6, safe=2 * year))
    assert counts(kept) == {"kb": 1}  # those that were dated ahead have their time, too
    assert not kept.complained()


def test_an_event_that_was_given_up_leaves_no_state(keep: Any) -> None:
    kept = keep(MATCHES["alone"])
    kept.feed(event("a", 5 * 3600, 1, safe=5 * 3600))
    kept.feed(event("unknown", 0, 2))
    (letter,) = [row for row in kept.told() if row.failed]
    assert letter.failed.startswith("late: its time is over, and was given up")
    assert counts(kept) == {"ka": 1}


def test_two_firsts_of_one_moment_have_one_timer_by_which_they_are_told(keep: Any) -> None:
    kept = keep(MATCHES["alone"])
    kept.feed(event("a", 60, 1), event("a", 60, 2))
    kept.feed(event("a", 60, 3))
    kept.feed(event("b", 2 * 3600, 4, safe=2 * 3600))
    assert sorted(row.id for row in kept.told() if row.view) == ["a/1", "a/2", "a/3"]
    assert not kept.complained()


def test_a_session_that_goes_on_sets_one_timer_for_some_time(keep: Any) -> None:
    """Each event had one; each of them read and wrote the group when it rang."""
    kept = keep(VIEWS["session"])
    kept.feed(event("a", 0, 1), event("a", 400, 2), event("a", 1990, 3))
    kept.feed(event("a", 2000, 4))
    kept.feed(event("a", 2005, 5))
    # Kept for a quarter of an hour after their ends: 300, 700 and 2,305 s; by sixteenths of that quarter.
    grain = 900 / 16
    assert kept.timers() == {"0 1:a": [round(-(-at // grain) * grain) for at in (1200, 1600, 3205)]}
    kept.feed(event("a", 200, 6))  # two become one, which ends with the later of them
    assert len(kept.timers()["0 1:a"]) == 3
    assert not kept.complained()
    kept.feed(event("b", 3000, 7, safe=3000))
    assert panes(kept, "0 1:a") == [(1990, 2305)]
    kept.feed(event("b", 9000, 8, safe=9000))
    assert list(kept.state("panes")) == list(kept.timers()) == ["0 1:b"]


def panes(kept: Kept, key: str) -> list[tuple[int, int]]:
    """Of a session's key: when those begin and end that are kept, if it is one."""
    state = kept.state("panes")[key]
    (count,) = struct.unpack_from(">i", state, 9)
    assert count == 1
    return [tuple(at // 1_000_000 - int(BEGIN.timestamp()) for at in struct.unpack_from(">qq", state, 13))]


NUMBER = "cast(get_json_object(payload, '$.n') as bigint)"
DAY = micros_of("1 day")
NUMBERS = WindowView(
    "v", EVENTS, ("id",), (), time="at", delay=DAY, size=DAY, slide=DAY, by={"about": "aggregateid"},
    groupings=(("about",),), measures={
        "total": Measure("sum", NUMBER),
        "texts": Measure("approx_count_distinct", "get_json_object(payload, '$.t')"),
    },
)  # fmt: skip


def number(about: str, version: int, n: int, text: str | None = None) -> dict[str, Any]:
    """An event of NUMBERS."""
    return event(about, 60, version, payload=json.dumps({"n": n, "t": text}))


def test_of_a_sum_only_the_sum_of_all_must_fit(keep: Any) -> None:
    """One that did not fit on the way was null for ever, though ``verify`` says what the sum is."""
    kept, far = keep(NUMBERS), 9 * 10**18
    least = [-(2**63), 2**63 - 1, 2**63 - 1, -(2**63), 1]
    at_once = [number("b", 10 + at, n) for at, n in enumerate(least)]
    kept.feed(number("a", 1, far), number("a", 2, far), *at_once, *(number("c", 20 + at, far) for at in range(5)))
    kept.feed(number("a", 3, -far))
    kept.feed(*(number("c", 30 + at, -far) for at in range(6)))
    told: dict[str, list[int | None]] = {}
    for row in kept.told():
        if row.view:
            told.setdefault(row.state.about, []).append(row.state.total)
    assert told == {"a": [None, far], "b": [sum(least)], "c": [None, -far]}


def called(spark: SparkSession, on: str, name: str, this: Any, *given: Any) -> Any:
    """A method that only its package sees; a list is an array of texts."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    owner = jvm.java.lang.Class.forName(f"headwater.spark.{on}", True, loader)
    (method,) = [one for one in owner.getDeclaredMethods() if one.getName() == name]
    method.setAccessible(True)
    values = gateway.new_array(jvm.java.lang.Object, len(given))
    for at, one in enumerate(given):
        values[at] = texts(gateway, one) if isinstance(one, list) else one
    return method.invoke(this, values)


def texts(gateway: Any, given: list[str]) -> Any:
    """As Java's array."""
    found = gateway.new_array(gateway.jvm.java.lang.String, len(given))
    for at, one in enumerate(given):
        found[at] = one
    return found


def test_an_average_of_decimals_is_divided_and_rounded_once(keep: Any) -> None:
    """``verify``, which divides exactly, called others different for ever; one without room failed each task."""
    measures, rows = averages()
    kept = keep(replace(NUMBERS, measures=measures))
    events = [event("a", 60, at, payload=json.dumps(row)) for at, row in enumerate(rows, 1)]
    kept.feed(*events[:2])
    kept.feed(*events[2:])
    *_, state = [row.state for row in kept.told() if row.view]
    for name, (_, wanted) in AVERAGES.items():
        assert state[name] == (None if wanted is None else Decimal(wanted)), name


def test_the_state_of_an_average_is_that_of_a_sum_and_a_count(spark: SparkSession) -> None:
    """What they were before: a flow goes on with the windows that it has."""
    two, one = (["sum:decimal", "count"], ["avg:decimal:38:38:22"])
    digits = (5 * 10**18).to_bytes(8, "big")
    measured = struct.pack(">?ii", True, 18, len(digits)) + digits + struct.pack(">q", 3)
    body = struct.pack(">iqqqq", 1, 100, 110, 3, 0) + measured
    state = b"\x02" + struct.pack(">q", -(2**63)) + body
    for kinds in (two, one):
        assert bytes(called(spark, "Panes", "write", called(spark, "Panes", "read", None, state, kinds))) == state


def test_the_empty_text_is_one_of_the_distinct(keep: Any) -> None:
    kept = keep(NUMBERS)
    kept.feed(number("a", 1, 0, ""), number("a", 2, 0, ""), number("b", 3, 0, "x"), number("b", 4, 0))
    kept.feed(number("b", 5, 0, ""), number("b", 6, 0, "x"))
    assert [(row.state.about, row.state.texts) for row in kept.told() if row.view] == [("a", 1), ("b", 1), ("b", 2)]


def test_a_state_of_before_is_read_and_what_it_has_lost_stays_null(spark: SparkSession) -> None:
    kinds = ["sum:long"]
    measured = [struct.pack(">q??", 5, True, False), struct.pack(">q??", 7, True, True)]
    times = [struct.pack(">qqqq", at, at + 10, 3, 0) for at in (100, 200)]
    body = struct.pack(">i", 2) + times[0] + measured[0] + times[1] + measured[1]
    read = called(spark, "Panes", "read", None, b"\x01" + body, kinds)
    never = struct.pack(">q", -(2**63))  # each end had a timer of its own: the next one that moves sets one
    written = bytes(called(spark, "Panes", "write", read))
    assert written == b"\x02" + never + body
    again = called(spark, "Panes", "read", None, written, kinds)
    assert bytes(called(spark, "Panes", "write", again)) == written


def versions(kept: Kept) -> dict[tuple[int, bool], list[int]]:
    """(seconds after BEGIN at which a window begins, whether it is gone) -> versions that were told of it."""
    found: dict[tuple[int, bool], list[int]] = {}
    for row in kept.told():
        start = row.state.window_start.astimezone(UTC) - BEGIN
        found.setdefault((int(start.total_seconds()), row.gone), []).append(row.version)
    return found


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_windows_version_is_that_of_a_batch_in_whatever_order_its_rows_come(keep: Any, order: Any) -> None:
    kept = keep(VIEWS["session"])
    first = [event("a", 600, 3), event("a", 610, 9), event("a", 620, 1)]
    kept.feed(*(first[at] for at in order))
    assert versions(kept) == {(600, False): [9]}
    older = [event("a", 630, 5), event("a", 640, 6), event("a", 650, 7)]  # of a partition that is read more slowly
    kept.feed(*(older[at] for at in order))
    assert versions(kept) == {(600, False): [9, 10]}
    # Nobody has seen a session that began at 400: there is none to be taken away.
    earlier = [event("a", 400, 21), event("a", 200, 22), event("a", 210, 20)]
    kept.feed(*(earlier[at] for at in order))
    assert versions(kept) == {(600, False): [9, 10], (600, True): [11], (200, False): [22]}


def test_moments_that_a_zone_calls_alike_are_two_groups(spark: SparkSession, keep: Any) -> None:
    day = micros_of("1 day")
    view = WindowView(
        "v", EVENTS, ("id",), (), time="at", delay=day, size=day, slide=day, by={"moment": "at"},
        groupings=(("moment",),), measures={"n": Measure("count", "*")},
    )  # fmt: skip
    zone: Any = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zone.getDefault()
    zone.setDefault(zone.getTimeZone("Europe/Berlin"))
    try:
        kept = keep(view)
        # Clocks are set back between them: half past two, and half past two.
        night = (datetime(2026, 10, 25, 0, 30, tzinfo=UTC) - BEGIN).total_seconds()
        kept.feed(event("a", night, 1), event("a", night + 3600, 2))
        assert sorted(row.state.n for row in kept.told()) == [1, 1]
        keys = sorted(key.partition(":")[2] for key in kept.state("panes"))
        assert keys == ["2026-10-25 00:30:00.0", "2026-10-25 01:30:00.0"]
    finally:
        zone.setDefault(before)


@pytest.mark.parametrize("made", ["window", "match"])
def test_an_event_of_which_a_text_is_none_is_a_letter_and_no_part_of_anothers_group(keep: Any, made: str) -> None:
    """Java would say U+FFFD of all of them, and take different ones for one."""
    text = "cast(unhex(aggregateid) as string)"
    grouped = replace(VIEWS["session"], by={"about": text}, measures={"n": Measure("count", "*")})
    kept = keep(grouped if made == "window" else replace(MATCHES["all"], first=Kind("true", text), then=None, count=1))
    kept.feed(event("C0A80105", 1, 1), event("C1A90105", 2, 2), event("41", 3, 3))
    letters = [row for row in kept.told() if row.failed]
    assert sorted(row.id for row in letters) == ["C0A80105/1", "C1A90105/2"]
    assert all(row.failed.startswith("Spark could not compute") for row in letters)
    (shown,) = [row.state for row in kept.told() if not row.failed]
    assert (shown.about if made == "window" else shown.key) == "A"
