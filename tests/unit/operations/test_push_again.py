"""A batch that comes again is the same batch, and one that is put aside has its events: without a server."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest

from operations.push import walk
from operations.push.cursor import Cursor
from operations.push.verdict import Verdict
from tests.support.pushed import folded
from tests.unit.operations.test_push_place import EVEN, Killed, World, seen, world


def test_a_batch_that_was_begun_is_the_same_when_less_is_sent_at_once_by_then() -> None:
    """It came in parts, with ids that the receiver had not seen: each of its events came twice."""
    one = world(0)
    one.run(batch=4)
    for number in range(6):
        one.write(f"k{number}", {"n": number})
    one.lives = 2  # the receiver has it, and his answer is lost
    with suppress(Killed):
        one.run(batch=4)
    one.lives, known = 10**6, one.ids[:]
    one.run(batch=1)
    assert one.ids[len(known)] == known[-1] and folded(one.came) == one.documents[1]
    assert [each.data["key"] for each in one.came if each.name == "change"] == list(one.documents[1])


def test_a_refused_batch_of_many_events_is_a_letter_with_its_events() -> None:
    """500 of 2 KiB are 40 KiB more than their data: they were not kept, and could not be sent again."""
    one = world(0)
    one.run()
    for number in range(500):
        one.write(f"k{number}", {"text": "x" * 1_950})
    one.answer = lambda _: Verdict("refused", "it answers 413")
    one.run(batch=500)
    assert all(each["body"] for each in one.letters) and sum(each["events"] for each in one.letters) == 500


@pytest.mark.parametrize("before", range(4))
def test_a_batch_that_was_begun_is_the_same_where_a_filter_has_parted_it_by_pages(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Behind a crash pages begin at what was taken last, and its second half lay in the next: both halves came, with
    ids of their own, though the receiver had all of it."""
    monkeypatch.setattr(walk, "PAGE", 4)
    for lives in count(1):
        one = World({})
        one.run(filter=EVEN)
        for number, even in enumerate([True, *[False] * before, True, False, True, True, False, False]):
            one.write(f"k{number}", {"n": number, "even": even})
        one.lives = lives
        try:
            one.run(filter=EVEN, batch=4)
            break
        except Killed:
            one.lives = 10**6
        one.run(filter=EVEN, batch=4)
        told = [each.data["key"] for each in one.came if each.name == "change"]
        assert len(told) == len(set(told)) == 4 and folded(one.came) == seen(one, EVEN), lives
    assert lives > 4, "none was killed"


def test_a_batch_that_was_begun_is_the_same_however_few_changes_pages_begin_with() -> None:
    """A walk begins with one change, then two: the end of a batch of more than three lay behind both, and what had come
    came once more in batches with other ids."""
    for lives in count(1):
        one = world(0)
        one.run(batch=100)
        for number in range(60):
            one.write(f"k{number}", {"n": number})
        one.lives = lives
        try:
            one.run(batch=100)
            break
        except Killed:
            one.lives = 10**6
        one.run(batch=100)
        told = [each.data["key"] for each in one.came if each.name == "change"]
        assert told == list(one.documents[1]), lives
    assert lives > 8, "none was killed"


def test_who_looks_for_the_end_of_a_batch_in_a_stream_that_ends_before_sends_what_there_is() -> None:
    """A server that came back with an older file: nothing more comes, and it must not be asked for ever."""
    one = world(0)
    one.run(batch=100)
    for number in range(10):
        one.write(f"k{number}", {"n": number})
    one.lives = 2
    with suppress(Killed):
        one.run(batch=4)
    one.lives = 10**6
    del one.streams[1][3:]
    one.noted["sending"] = Cursor(1, "1" * 16, b"99-0").text()
    one.run(batch=4)
    assert [each.data["key"] for each in one.came if each.name == "change"][-2:] == ["k0", "k1"]
