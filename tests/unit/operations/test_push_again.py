"""A batch that comes again is the same batch, and one that is put aside has its events: without a server."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest

from operations.push import walk
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
