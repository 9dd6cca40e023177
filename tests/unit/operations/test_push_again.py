"""A batch that comes again is the same batch, and one that is put aside has its events: without a server."""

from __future__ import annotations

from contextlib import suppress

from operations.push.verdict import Verdict
from tests.support.pushed import folded
from tests.unit.operations.test_push_place import Killed, world


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
