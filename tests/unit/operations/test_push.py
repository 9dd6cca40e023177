"""What subscribers are told, without a server: cursors, filters, the ring."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError
from operations.push import events as told
from operations.push import feed, streams
from operations.push.cursor import Cursor, parse_cursor
from operations.push.envelope import Batch, batch_of
from operations.push.events import Changes
from operations.push.feed import Ring
from operations.push.lens import Lens
from operations.push.walk import PAGE, Walk
from operations.push.writing import records
from sinks.contract import Held
from sinks.redis.stream.tail import Entry, Standing

MARK = "0123456789abcdef"
OPEN, SHUT, OTHER = b'{"s":"open","n":1}', b'{"s":"shut","n":1}', b'{"s":"open","n":2}'


@given(generation=st.integers(1, 10**6), first=st.integers(0, 2**63), second=st.integers(0, 2**32))
def test_a_cursor_survives_its_text(generation: int, first: int, second: int) -> None:
    cursor = Cursor(generation, MARK, b"%d-%d" % (first, second))
    assert parse_cursor(cursor.text()) == cursor and cursor.number == (first, second)


@given(text=st.text() | st.text("MS4xLjAxMjM0=_-", max_size=60))
def test_any_other_text_is_none(text: str) -> None:
    found = parse_cursor(text)
    assert found is None or found.text() == text.rstrip("=")


@pytest.mark.parametrize(
    ("before", "after", "plain", "filtered"),
    [
        (None, OPEN, "created", "entered"),
        (None, SHUT, "created", None),
        (OPEN, OTHER, "changed", "changed"),
        (OPEN, SHUT, "changed", "left"),
        (SHUT, OPEN, "changed", "entered"),
        (SHUT, None, "deleted", None),
        (OPEN, None, "deleted", "left"),
    ],
)
def test_what_a_change_is(before: bytes | None, after: bytes | None, plain: str, filtered: str | None) -> None:
    assert Lens.of(None).op(before, after) == plain
    assert Lens.of("s == 'open'").op(before, after) == filtered


def test_a_filter_must_be_true_and_not_only_something() -> None:
    assert not Lens.of("s").matches(OPEN)
    assert not Lens.of("length(n) > `0`").matches(OPEN), "a function that does not take what is there"
    assert not Lens.of("n == `1`").matches(b"no JSON")
    assert Lens.of("n == `1` && contains(s, 'op')").matches(OPEN)
    assert Lens.of("n == `1` && not_null(none, also, s) == 'open'").matches(OPEN), "as many as are given"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("s ==", "at character 5"),
        ("s t", "at character 3, near 't'"),
        ("s == 'x", "at character 6"),
        ("foo(s)", "Unknown function"),
        ("s == 'open' && start_with(s, 'o')", r"in a function: Unknown function: start_with\(\)"),
        ("s == 'open' || n > `1` && contain(s, 'o')", r"Unknown function: contain\(\)"),
        ("length(a[?starts_with(b)]) > `0`", r"Expected 2 arguments for function starts_with\(\), received 1"),
        ("a && max_by(b, &foo(c)).d == `1`", r"Unknown function: foo\(\)"),
        ("a[0:2] && length(b, c) == `1`", r"Expected 1 argument for function length\(\), received 2"),
        ("a && b[::0] == c", "the step of a slice is 0"),
        ("(`[1,2]`)[::0]", "the step of a slice is 0"),
        ("a && not_null()", r"Expected at least 1 argument for function not_null\(\), received 0"),
        ("(" * 900, "filter"),
        ("x" * 1_001, "1,001 characters"),
        ("|".join(["[@,@][]"] * 12), r"filter: \[…, …\] makes something new"),
        ("a[?b == `1`].{c: d} | [0].c", r"filter: \{…: …\} makes something new"),
        ("contains(a[*].not_null(to_string(@)), 'x')", r"filter: to_string\(\) makes something new"),
        ("map(&@, a) == b", r"filter: map\(\) makes something new"),
    ],
)
def test_a_wrong_filter_is_told_with_its_place(text: str, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        Lens.of(text)


@pytest.mark.parametrize(
    "text",
    [
        # A list of its own for each element, and all of them in one list: ten times as many, stage by stage.
        "length(a" + "[*].not_null(`[1,1,1,1,1,1,1,1,1,1]`)[]" * 8 + ") > `0`",
        "length(a[].not_null(`%s`)[]) > `0`" % ([1] * 300),
        "!(a" + "[]" * 80 + ")",
        "||".join(["length(a) < `0`"] * 50),
        "!a[?" + "||".join(["b"] * 300) + "]",
    ],
)
def test_a_filter_that_would_look_at_too_much_is_true_of_nothing(text: str) -> None:
    """One took all memory, and another a minute for each document; nothing else was answered meanwhile."""
    lens = Lens.of(text)
    began = time.monotonic()
    assert not lens.matches(b'{"a":[%s]}' % b",".join([b"{}"] * 5_000))
    assert time.monotonic() - began < 5


def test_a_filter_looks_into_long_lists() -> None:
    long = b'{"a":[%s{"s":"open","n":1}]}' % (b'{"s":"shut","n":0},' * 20_000)
    for text in ("length(a[?s == 'open']) == `1`", "max(a[].n) == `1`", "contains(a[*].s, 'open')"):
        assert Lens.of(text).matches(long), text
    for text in ('contains(`["open","held"]`, s)', "contains(['open', 'held'], s)", "contains(['open', `1`], s)"):
        assert Lens.of(text).matches(OPEN), "a list of what stands there takes nothing of the document"
    for text in ("contains(['open', s], s)", "contains(['open', ['held']], s)"):
        with pytest.raises(ConfigError, match="makes something new"):
            Lens.of(text)


def test_fields_narrow_what_is_seen_and_what_counts_as_a_change() -> None:
    lens = Lens.of(None, ("n", "none"))
    assert lens.seen(OPEN) == b'{"n":1}' and lens.seen(None) == b"null"
    assert lens.op(OPEN, SHUT) is None and lens.op(OPEN, OTHER) == "changed" and lens.op(None, OPEN) == "created"
    assert Lens.of(None).seen(b'{"n":1.000000000000000000001}') == b'{"n":1.000000000000000000001}'
    assert Lens.of(None).seen(b'{"n":\n1}') == b'{"n": 1}', "a line of an event ends at a break"


DEEP = b"[" * 1_100 + b"]" * 1_100
ODD = (b"1e400", b'"\\ud800"', DEEP, b"1" * 5_000, b"[" * 260 + b"]" * 260)


@pytest.mark.parametrize("odd", ODD)
def test_what_no_reader_of_json_takes_is_told_as_it_stands(odd: bytes) -> None:
    """Postgres takes it, and the sink has it: it was told as null, as if there was no document, or not at all."""
    before, after = (b'{"s":"open","n":%d,"odd":%s}' % (n, odd) for n in (1, 2))
    whole, filtered, narrow = Lens.of(None), Lens.of("s == 'open'"), Lens.of(None, ("odd", "n"))
    assert whole.seen(after) == after and narrow.seen(after) == b'{"odd":%s,"n":2}' % odd
    assert filtered.op(None, after) == "entered" and filtered.op(after, SHUT) == "left"
    assert filtered.op(before, after) == "changed" and narrow.op(before, after) == "changed"
    assert Lens.of(None, ("odd",)).op(before, after) is None and not Lens.of("s == 'shut'").matches(after)
    one = told.change(Entry(b"5-0", "k", 7, before, after), whole, 2, MARK)
    [some] = told.snapshot([Held("k", 7, after)], filtered)
    assert one is not None and after in one.data and after in some.data
    assert orjson.dumps(one.value) and one.value["after"]["n"] == some.value["documents"][0]["document"]["n"] == 2
    body = Batch([some, one], one.cursor).body
    assert batch_of(body) == Batch([some, one], one.cursor)
    assert [(kept.key, after in kept.value) for kept in records(batch_of(body), "m")] == [(b"k", True)] * 2


def test_a_filter_sees_numbers_beyond_a_double_and_what_is_there_of_the_depth() -> None:
    assert Lens.of("n > `5`").matches(b'{"n":1e400}') and Lens.of("n == `9007199254740993`").matches(
        b'{"n":9007199254740993,"m":1e400}'
    )
    assert Lens.of("n[0].a == `1`").matches(b'{"n":[{"a":1,"b":%s}]}' % DEEP)
    for wrong in (b"no JSON", b'{"n":NaN}', b'{"n":"\xff"}', b'{"n":' + b"[" * 2_000, b"[1]"):
        assert not Lens.of("n").matches(wrong) and Lens.of(None, ("n",)).seen(wrong) == b"null"


def test_with_fields_a_number_keeps_its_digits_and_its_last_ones_are_a_change() -> None:
    lens = Lens.of(None, ("n",))
    before, after = b'{"n":0.12345678901234567891,"m":1}', b'{"n":0.12345678901234567892,"m":1}'
    assert lens.seen(after) == b'{"n":0.12345678901234567892}' and lens.op(before, after) == "changed"
    [kept] = records(Batch([*told.snapshot([Held("k", 7, after)], lens)], None), "m")
    assert b'"document":{"n":0.12345678901234567892}' in kept.value, "in a topic, too"


def test_an_event_says_all_of_a_change() -> None:
    entry = Entry(b"5-0", "k|1", (3 << 52) + 0x2CA35B48, OPEN, None)
    one = told.change(entry, Lens.of(None), 2, MARK)
    assert one is not None and one.name == "change" and parse_cursor(one.cursor or "") == Cursor(2, MARK, b"5-0")
    assert orjson.loads(one.data) == {
        "key": "k|1",
        "version": str((3 << 52) + 0x2CA35B48),
        "lsn": "0/2CA35B48",
        "op": "deleted",
        "before": orjson.loads(OPEN),
        "after": None,
    }


def test_a_snapshot_is_cut_into_events_of_bounded_size() -> None:
    held = [Held(f"k{n}", n, b'{"t":"%s"}' % (b"x" * 10_000)) for n in range(100)]
    events = list(told.snapshot(held, Lens.of(None)))
    assert 3 <= len(events) <= 6 and all(len(one.data) < told.SNAPSHOT_BYTES + 20_000 for one in events)
    assert [each["key"] for one in events for each in one.value["documents"]] == [f"k{n}" for n in range(100)]
    assert list(told.snapshot(held, Lens.of("t == 'y'"))) == []


def entries(first: int, count: int, size: int = 10) -> list[Entry]:
    return [Entry(b"%d-0" % n, "k", n, None, b"x" * size) for n in range(first, first + count)]


def test_the_ring_has_what_follows_or_says_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RING_ENTRIES", 1_000)
    ring = Ring(Standing(1, MARK), b"10-0")
    assert ring.after(Cursor(1, MARK, b"10-0")) == []
    assert ring.after(Cursor(1, MARK, b"9-0")) is None, "what came between is not here"
    ring.add(entries(11, 1_500))
    assert ring.after(Cursor(1, MARK, b"510-0")) == entries(511, PAGE)
    assert ring.after(Cursor(1, MARK, b"509-0")) is None
    assert ring.after(Cursor(1, MARK, b"1510-0")) == []
    assert ring.after(Cursor(2, MARK, b"1510-0")) is None and ring.after(Cursor(1, "f" * 16, b"1510-0")) is None


def test_the_ring_is_bounded_in_bytes_too() -> None:
    ring = Ring(Standing(1, MARK), b"0-0")
    for n in range(1, 100):
        ring.add(entries(n, 1, size=1 << 20))
    assert ring.after(Cursor(1, MARK, b"60-0")) is None
    assert len(ring.after(Cursor(1, MARK, b"80-0")) or ()) == 19


def shared(found: Ring) -> streams._Shared:
    reads = SimpleNamespace(after=found.after)  # the thread that fills the ring is another test's
    return streams._Shared(reads)  # type: ignore[arg-type]


def test_all_who_stand_at_one_place_are_told_the_very_same() -> None:
    ring = Ring(Standing(1, MARK), b"1-0")
    ring.add(entries(2, 3))
    here, lens, narrow = Cursor(1, MARK, b"1-0"), told.Changes(Lens.of(None)), told.Changes(Lens.of("s == 'no'"))
    one = shared(ring)
    first, again = one.after(here, lens), one.after(Cursor(1, MARK, b"1-0"), lens)
    assert first is not None and first is again and len(first[0]) == 3 and first[1].place == b"4-0"
    assert one.after(here, narrow) == ((), first[1]), "who sees nothing of it stands there too"
    assert one.after(Cursor(1, MARK, b"0-5"), lens) is None, "he must ask Redis"
    assert one.after(first[1], lens) == ((), first[1])
    ring.add(entries(5, 1))
    one.news()
    more = one.after(first[1], lens)
    assert more is not None and len(more[0]) == 1


def test_a_crowd_is_spared_by_the_garbage_collector_until_half_has_gone() -> None:
    crowd, frozen = streams.Streams(), gc.get_freeze_count()
    try:
        for count in (1_000, 2_000):
            crowd._settle(count)
            assert gc.get_freeze_count() == frozen, "more are coming"
        crowd._settle(2_000)
        assert gc.get_freeze_count() > frozen
        crowd._settle(1_500)
        assert gc.get_freeze_count() > frozen
        crowd._settle(999)
        assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()


def test_documents_whose_reading_was_cut_are_told_from_the_beginning_and_not_called_all() -> None:
    """A generator that has raised says at the next look that it is at its end."""
    cuts = [True, False]

    def pages(_standing: Standing) -> Iterator[tuple[bytes, list[Held]]]:
        yield b"5-0", [Held("1", 1, OPEN)]
        if cuts.pop(0):
            raise redis.ConnectionError("the server was restarted")
        yield b"5-0", [Held("2", 1, OPEN)]

    tail = SimpleNamespace(standing=lambda: Standing(1, MARK), newest=lambda _: b"5-0", pages=pages)
    walk = Walk(cast(Any, tail), "v", Changes(Lens.of(None)))
    names = list[str]()
    while not walk.live:
        try:
            names += [one.name for one in walk.step()]
        except redis.ConnectionError:
            names.append("cut")
    assert names == ["reset", "snapshot", "cut", "reset", "snapshot", "snapshot", "ready"]
