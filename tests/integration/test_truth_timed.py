"""The second opinion of windows and matches: small histories with documents written by hand, and random ones."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from cdc.timed import Kind, Measure, TimedView, WindowView
from tests.support.happened import CLOSED, history
from tests.support.plain_spark import session_of
from tests.support.timed import AVERAGES, EVENTS, MATCHES, VIEWS, averages
from tests.support.windowed import Happened, matched, plainly
from truth.bounds import WITHIN, bounds_of, settled
from truth.digest import digest
from truth.events.logged import Event
from truth.events.matched import CROWD
from truth.expected import Expected, expected, form_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = 60_000_000
HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    with session_of(builder.config("spark.sql.session.timeZone", "UTC")) as session:
        yield session


def event(
    number: int,
    minutes: float | None,
    about: str = "a",
    what: str = "viewed",
    *,
    partition: int = 0,
    committed: float | None = None,
    again: bool = False,
    **payload: Any,
) -> Event:
    """An event that happened so many minutes after noon, and was committed then, or later."""
    at = None if minutes is None else (NOON + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    row = {"id": str(uuid.UUID(int=number)), "aggregatetype": "account", "aggregateid": about, "type": what}
    when = NOON + timedelta(minutes=(minutes or 0) if committed is None else committed)
    row |= {"payload": json.dumps(payload), "at": at}
    return Event(partition, number, row, again, "events", int(when.timestamp() * 1000))


def told(spark: SparkSession, view: TimedView, events: Sequence[Event]) -> dict[str, Expected]:
    return {one.key: one for one in expected(view, None, spark, events=lambda: events)}  # type: ignore[arg-type]


def fields(spark: SparkSession, view: TimedView, events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    return {key: dict(one.fields) for key, one in told(spark, view, events).items() if one.fields is not None}


def windows(**more: Any) -> WindowView:
    base = {"time": "at", "delay": 10 * MINUTE, "size": HOUR, "slide": HOUR, "by": {"about": "aggregateid"}}
    base |= {"groupings": (("about",),), "measures": {"n": Measure("count", "*")}}
    return WindowView("views", EVENTS, ("id",), (), **(base | more))


def at(text: str) -> str:
    return f"2026-03-01T{text}:00Z"


# -- windows -----------------------------------------------------------------------------------------------------------


def test_an_hour_of_a_group_is_one_document(spark: SparkSession) -> None:
    view = windows(measures={"n": Measure("count", "*"), "least": Measure("min", "at"), "word": Measure("max", "type")})
    found = fields(spark, view, [event(1, 1), event(2, 59, what="z"), event(3, 60), event(4, 2, about="ä|b")])
    twelve = {"window_start": at("12:00"), "window_end": at("13:00"), "late": 0}
    assert found == {
        f"a|{at('12:00')}": {"about": "a", **twelve, "n": 2, "least": "2026-03-01T12:01:00Z", "word": "z"},
        f"a|{at('13:00')}": {
            **{"about": "a", "window_start": at("13:00"), "window_end": at("14:00"), "n": 1, "late": 0},
            **{"least": "2026-03-01T13:00:00Z", "word": "viewed"},
        },
        f"ä\\|b|{at('12:00')}": {"about": "ä|b", **twelve, "n": 1, "least": "2026-03-01T12:02:00Z", "word": "viewed"},
    }


def test_late_is_what_its_own_partitions_clock_says(spark: SparkSession) -> None:
    events = [event(1, 5), event(2, 75), event(3, 10, committed=75), event(4, 11, partition=1, committed=75)]
    assert fields(spark, windows(), events)[f"a|{at('12:00')}"]["n"] == 2, "1 and 4; 3 is late by 75 - 10 minutes"
    corrected = fields(spark, windows(correct=HOUR), events)[f"a|{at('12:00')}"]
    assert (corrected["n"], corrected["late"]) == (3, 1)
    # An hour that ended just ``delay`` before the clock is over; a second before that it is not.
    assert fields(spark, windows(), [event(1, 70), event(2, 1)]).keys() == {f"a|{at('13:00')}"}
    assert len(fields(spark, windows(), [event(1, 69.99), event(2, 1)])) == 2


def test_a_clock_ahead_of_its_commit_makes_nobody_late_and_some_events_count_nowhere(spark: SparkSession) -> None:
    ahead = event(1, 900, committed=5)
    nowhere = [event(2, None), event(3, 6, again=True), event(4, 7, what="bad", amount="much"), event(5, 8)]
    total = {"total": Measure("sum", "cast(get_json_object(payload, '$.amount') as decimal(5,2))")}
    found = fields(spark, windows(measures={"n": Measure("count", "*"), **total}), [ahead, *nowhere])
    assert found[f"a|{at('12:00')}"] == {
        **{"about": "a", "window_start": at("12:00"), "window_end": at("13:00"), "n": 1, "total": None, "late": 0}
    }


def test_a_devices_clock_is_put_right(spark: SparkSession) -> None:
    table = replace(
        EVENTS, columns=(*EVENTS.columns, *(replace(EVENTS.by_name["at"], name=name) for name in ("sent", "received")))
    )
    view = replace(windows(sent="sent", received="received"), table=table)
    slow = event(1, 50)  # its clock is an hour slow: it was ten to two
    slow.row.update(sent=at("12:55"), received=at("13:55"))  # type: ignore[attr-defined]
    lost = event(2, 50)
    lost.row.update(sent=None, received=at("13:55"))  # type: ignore[attr-defined]
    assert fields(spark, view, [slow, lost]).keys() == {f"a|{at('13:00')}"}


def test_hopping_windows_and_groupings(spark: SparkSession) -> None:
    view = windows(slide=30 * MINUTE, by={"about": "aggregateid", "kind": "type"}, groupings=(("about",), ()))
    found = fields(spark, view, [event(1, 10), event(2, 40, about="b")])
    assert {key: one["n"] for key, one in found.items()} == {
        **{f"about|a|null|{at('11:30')}": 1, f"about|a|null|{at('12:00')}": 1},
        **{f"about|b|null|{at('12:00')}": 1, f"about|b|null|{at('12:30')}": 1},
        **{f"|null|null|{at('11:30')}": 1, f"|null|null|{at('12:00')}": 2, f"|null|null|{at('12:30')}": 1},
    }


def test_sessions_that_an_event_joins_are_one(spark: SparkSession) -> None:
    view = windows(size=0, slide=0, gap=10 * MINUTE)
    apart = [event(1, 0), event(2, 10), event(3, 30)]  # just a gap later is a session of its own
    assert [(one["window_start"], one["window_end"], one["n"]) for one in fields(spark, view, apart).values()] == [
        *[(at("12:00"), at("12:10"), 1), (at("12:10"), at("12:20"), 1), (at("12:30"), at("12:40"), 1)]
    ]
    joined = fields(spark, view, [*apart[:2], event(4, 5), apart[2], event(5, 23)])  # 23 is apart from 10, joins 30
    assert [(one["window_start"], one["window_end"], one["n"]) for one in joined.values()] == [
        *[(at("12:00"), at("12:20"), 3), (at("12:23"), at("12:40"), 2)]
    ]


def test_sums_are_of_the_type_of_sparks_own_and_null_where_they_do_not_fit(spark: SparkSession) -> None:
    number = "get_json_object(payload, '$.x')"
    view = windows(
        measures={
            "whole": Measure("sum", f"cast({number} as bigint)"),
            "mean": Measure("avg", f"cast({number} as decimal(5,1))"),
            "sum": Measure("sum", f"cast({number} as decimal(5,1))"),
            "rounded": Measure("avg", f"cast({number} as double)"),
            "known": Measure("count", number),
        }
    )
    (found,) = fields(spark, view, [event(1, 1, x=1), event(2, 2, x=2), event(3, 3, x=2), event(4, 4)]).values()
    assert [found[name] for name in ("whole", "mean", "sum", "known")] == [5, "1.66667", "5.0", 3]
    low, high = found["rounded"][WITHIN]
    assert low < 5 / 3 < high and high - low < 1e-14
    view = windows(measures={"whole": Measure("sum", f"cast({number} as bigint)")})
    (found,) = fields(spark, view, [event(1, 1, x=1 << 62), event(2, 2, x=1 << 62)]).values()
    assert found["whole"] is None


def test_averages_of_wide_decimals_are_exact(spark: SparkSession) -> None:
    measures, rows = averages()
    (found,) = fields(spark, windows(measures=measures), [event(n, 1, **row) for n, row in enumerate(rows, 1)]).values()
    for name, (_, wanted) in AVERAGES.items():
        assert found[name] == wanted or (wanted and Decimal(found[name]) == Decimal(wanted)), name


def test_reals_are_added_as_the_doubles_that_they_are(spark: SparkSession) -> None:
    """Their shortest digits were: ten of 1.1 were eleven, and all that the engine said of reals was different."""
    number = "cast(get_json_object(payload, '$.x') as float)"
    names = ("sum", "avg", "min", "max")
    view = windows(measures={name: Measure(name, number) for name in names})
    (found,) = fields(spark, view, [event(n, 1, x=1.1) for n in range(1, 11)]).values()
    one = struct.unpack("f", struct.pack("f", 1.1))[0]
    for name, wanted in (("sum", 10 * one), ("avg", one)):
        low, high = found[name][WITHIN]
        assert low < wanted < high and high - low < 1e-12, name
    assert (found["min"], found["max"]) == (1.1, 1.1)


def test_sketches_are_stated_as_bounds(spark: SparkSession) -> None:
    number = "cast(get_json_object(payload, '$.x') as int)"
    view = windows(measures={"p": Measure("percentile", number, 0.9), "d": Measure("approx_count_distinct", number)})
    (few,) = fields(spark, view, [event(n, 1, x=n) for n in range(1, 11)]).values()
    # A rank just between two values may be either.
    assert (few["p"], few["d"]) == ({WITHIN: [9.0, 10.0]}, {WITHIN: [9, 11]})
    (many,) = fields(spark, view, [event(n, 1, x=n) for n in range(1, 1001)]).values()
    assert (many["p"], many["d"]) == ({WITHIN: [866.0, 934.0]}, {WITHIN: [918, 1082]})
    with pytest.MonkeyPatch.context() as patch:  # so many that they are kept in another way
        patch.setattr("truth.events.measured._PENDING", 100)
        assert fields(spark, view, [event(n, 1, x=n) for n in range(1, 1001)]).popitem()[1] == many


def test_a_value_within_its_bound_makes_the_same_digest(spark: SparkSession) -> None:
    view = windows(measures={"d": Measure("approx_count_distinct", "type")})
    (one,) = told(spark, view, [event(1, 1)]).values()
    assert one.fields is not None
    held = {name: value for name, value in one.fields.items() if name != "d"}
    wanted = digest(form_of(view, one.document, one.fields, "document"))
    for value, right in ((1, True), (0, True), (2, True), (3, False), ("1", False), (None, False), (True, False)):
        document, within = settled(orjson.dumps(held | {"d": value}), bounds_of(one.fields))
        assert (digest(document) == wanted, within) == (right, int(right)), value


def test_what_may_have_been_given_up_is_told_to_be_unsure(spark: SparkSession) -> None:
    busy = [event(n, n * 2, about="b") for n in range(80)]
    silent = event(100, 0, partition=1)
    back = event(101, 30, partition=1, committed=159)  # an hour that others have closed
    found = told(spark, windows(), [*busy, silent, back])
    assert found[f"a|{at('12:00')}"].unsure and found[f"a|{at('12:00')}"].fields["n"] == 2  # type: ignore[index]
    assert not found[f"b|{at('12:00')}"].unsure
    soon = [*busy, silent, *(event(200 + n, 0, about="c", partition=1, committed=n * 2) for n in range(79)), back]
    assert not told(spark, windows(), soon)[f"a|{at('12:00')}"].unsure, "its partition was never silent"
    sessions = windows(size=0, slide=0, gap=10 * MINUTE)
    two = [event(1, 0, partition=1), event(2, 12, partition=1, committed=1)]
    cut = told(spark, sessions, [*busy, *two, event(3, 6, partition=1, committed=159)])
    assert cut[f"a|{at('12:00')}"].unsure and cut[f"a|{at('12:12')}"].fields is None, "two, if 3 was given up"


def test_what_began_before_the_oldest_event_that_is_left_is_unsure(spark: SparkSession) -> None:
    since = int((NOON + timedelta(minutes=30)).timestamp() * 1000)
    lost = Event(0, -1, {}, again=False, topic="events", committed=since, lost=True)
    found = told(spark, windows(), [lost, event(1, 35), event(2, 61)])
    assert {key: one.unsure for key, one in found.items()} == {f"a|{at('12:00')}": True, f"a|{at('13:00')}": False}
    pairs = told(spark, PAIRS, [lost, event(1, 29, "s", "searched"), event(2, 31, "s", "searched")])
    assert (pairs[key(1)].unsure, pairs[key(2)].unsure) == (True, False)


# -- matches -----------------------------------------------------------------------------------------------------------

FIRST = Kind("type = 'searched'", "aggregateid", {"words": "get_json_object(payload, '$.words')"})
THEN = Kind("type = 'clicked'", "aggregateid", {"page": "get_json_object(payload, '$.page')"})
PAIRS = replace(MATCHES["all"], first=FIRST, then=THEN, within=15 * MINUTE, delay=MINUTE)


def key(number: int) -> str:
    return str(uuid.UUID(int=number))


def test_what_followed_within_the_time_is_listed(spark: SparkSession) -> None:
    events = [
        *[event(1, 0, "s", "searched", words="x"), event(3, 15, "s", "clicked", page="/2")],
        *[event(2, 14.5, "s", "clicked", page="/1"), event(4, 15.1, "s", "clicked", page="/3")],
        *[event(5, 15, "t", "searched"), event(6, 2, "s", "clicked", page="/late")],
    ]
    found = fields(spark, PAIRS, events)
    then = [{"at": "2026-03-01T12:14:30Z", "page": "/1"}, {"at": at("12:15"), "page": "/2"}]
    alone = {"key": "t", "at": at("12:15"), "words": None, "followed": False, "count": 0, "then": [], "late": 0}
    first = {"key": "s", "at": at("12:00"), "words": "x", "followed": True, "count": 2, "then": then, "late": 0}
    assert found == {key(1): first, key(5): alone}
    assert fields(spark, replace(PAIRS, keep="followed"), events) == {key(1): first}
    corrected = fields(spark, replace(PAIRS, correct=HOUR), events)[key(1)]
    assert (corrected["count"], corrected["late"], corrected["then"][0]["page"]) == (3, 1, "/late")


def test_an_event_that_is_just_not_late_counts_and_none_follows_itself(spark: SparkSession) -> None:
    events = [event(1, 0, "s", "searched"), event(2, 5), event(3, 4, "s", "clicked"), event(4, 3.99, "s", "clicked")]
    assert [one["count"] for one in fields(spark, PAIRS, events).values()] == [1]
    both = replace(PAIRS, then=replace(FIRST, fields={}))
    found = fields(spark, both, [event(1, 0, "s", "searched"), event(2, 1, "s", "searched")])
    assert {name: one["count"] for name, one in found.items()} == {key(1): 1, key(2): 0}


def test_absence_is_known_once_all_clocks_have_passed_the_time(spark: SparkSession) -> None:
    view = replace(PAIRS, keep="alone")
    events = [event(1, 0, "s", "searched"), event(2, 1, "t", "searched"), event(3, 9, "t", "clicked")]
    early = told(spark, view, [*events, event(9, 15.9)])
    assert [one.unsure for one in early.values()] == [True], "not before 0 + 15 + 1, but for heartbeats"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("truth.events.matched.now", (NOON + timedelta(minutes=14)).timestamp)
        assert told(spark, view, [*events, event(9, 15.9)]) == {}, "no heartbeat can have told so"
    found = told(spark, view, [*events, event(9, 16)])
    assert {one.key: dict(one.fields or {}) for one in found.values()} == {
        key(1): {"key": "s", "at": at("12:00"), "words": None, "late": 0}
    }
    assert not found[key(1)].unsure
    assert told(spark, view, [*events, event(9, 16), event(8, 1, partition=1)])[key(1)].unsure, "one lags behind"


def test_what_comes_into_a_stream_that_stood_still_is_unsure(spark: SparkSession) -> None:
    events = [event(1, 0, "s", "searched"), event(2, 1)]
    for committed, unsure in ((11, False), (40, True)):
        late = event(3, 0.5, "s", "clicked", committed=committed)
        found = told(spark, replace(PAIRS, keep="alone"), [*events, late, event(4, 90)])
        assert [one.fields for one in found.values()] == ([None] if unsure else [])


def test_a_threshold_counts_its_own_kind_up_to_itself(spark: SparkSession) -> None:
    view = replace(PAIRS, then=None, count=3, within=5 * MINUTE)
    events = [event(n, minutes, "s", "searched") for n, minutes in enumerate((0, 3, 5, 5.5, 11), 1)]
    found = fields(spark, view, events)
    assert {name: (one["since"], one["count"]) for name, one in found.items()} == {key(4): (at("12:03"), 3)}


def test_a_crowd_of_one_key_is_unsure(spark: SparkSession) -> None:
    view = replace(PAIRS, first=replace(FIRST, fields={}))
    many = [event(n, 0, "s", "clicked") for n in range(2, CROWD + 2)]
    found = told(spark, view, [event(1, 0, "s", "searched"), *many, event(1 << 40, 1, "t", "searched")])
    assert found[key(1)].unsure and found[key(1)].fields["count"] == CROWD  # type: ignore[index]
    assert len(found[key(1)].fields["then"]) == 100  # type: ignore[index]
    assert not found[key(1 << 40)].unsure


# -- random histories, against plain Python ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> list[Happened]:
    return history(7)


def logged(made: Sequence[Happened]) -> list[Event]:
    offsets: dict[int, int] = {}
    found = []
    for part, row, again, committed in made:
        offsets[part] = offsets.get(part, -1) + 1
        when = row["at"] and row["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        found.append(Event(part, offsets[part], row | {"at": when}, again, "t", int(committed.timestamp() * 1000)))
    return found


@pytest.mark.parametrize("kind", VIEWS)
def test_windows_of_a_random_history(spark: SparkSession, made: list[Happened], kind: str) -> None:
    view = VIEWS[kind]
    found = fields(spark, view, logged(made))
    wanted = plainly(view, made)
    assert len(found) == len(wanted) > 100
    for one in found.values():
        group = (one.get("grouping", ",".join(view.groupings[0])), tuple(one[name] for name in view.by))
        plain = wanted[*group, datetime.fromisoformat(one["window_start"])]
        assert [one[name] for name in ("n", "amounts", "word", "sign", "late")] == [
            plain[name] for name in ("n", "amounts", "word", "sign", "late")
        ]
        for name, digits in (("total", 2), ("least", 2), ("mean", 6)):
            assert one[name] == (None if plain[name] is None else f"{plain[name]:.{digits}f}"), (name, plain)
        assert datetime.fromisoformat(one["latest"]) == plain["latest"]
        assert one["users"][WITHIN][0] <= plain["users"] <= one["users"][WITHIN][1]


@pytest.mark.parametrize("kind", MATCHES)
def test_matches_of_a_random_history(spark: SparkSession, made: list[Happened], kind: str) -> None:
    view = MATCHES[kind]
    found, wanted = fields(spark, view, logged(made)), matched(view, made, CLOSED)
    assert found.keys() == wanted.keys() and len(wanted) > 10
    for name, one in found.items():
        assert one["late"] == wanted[name]["late"]
        if view.keep != "alone":
            assert one["count"] == wanted[name]["n"]
