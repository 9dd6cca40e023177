"""How many dead letters stand, of which generation, where there are more than are remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cdc.letters.book import Book
from operations.letters.watch import LetterWatch
from operations.state.folder import register_of
from operations.state.letters import letter_counts, refuse_more_letters
from tests.unit.operations.test_letters import letter, pipeline


def of(generation: int | None, number: int, sink: str = "cache") -> Any:
    return letter(str(number), sink=sink, generation=generation)


def book(most: int, generations: dict[int | None, int]) -> Book:
    """Each generation's letters, one generation after the other, as those who fill them write them."""
    made, at = Book(most), 0
    for generation, letters in generations.items():
        for number in range(letters):
            one = of(generation, number)
            made.take(one.record_key(), one.to_json(), at)
            at += 1
    return made


def test_letters_of_each_generation_are_counted_whosever_came_first(tmp_path: Path) -> None:
    """Those of the first generation took up all of the room: after a promotion `status` knew of none, and a rollback
    was refused, as if the generation that readers see lacked nothing."""
    made, watch = pipeline(tmp_path), LetterWatch(cast(Any, None))
    (tmp_path / "p" / "cache").mkdir(parents=True)
    register = register_of(made, "cache")
    new = register.create("asked for").number
    register.generation(new).folder.mkdir(parents=True)
    found = book(4, {1: 4, new: 4})
    watch._note(made, found, {"cache": 1})
    register.move(new, "ready")
    register.begin_promotion(new, 1)
    register.move_readers(new)
    register.promote(new)
    count = letter_counts(made)["cache"]
    assert count is not None and (count.standing, count.more) == (4, False)
    refuse_more_letters(made, "cache", 1)


def test_a_letter_that_is_only_counted_is_counted_once_and_goes_when_it_is_cleared() -> None:
    found = book(2, {1: 2, 3: 2})
    again, key = of(3, 0), of(3, 0).record_key()
    found.take(key, again.to_json(), 9)
    assert found.counted() == {("cache", 1): 2, ("cache", 3): 2}
    found.take(key, None, 10, 8)  # the tombstone means the one of before
    assert found.counted()["cache", 3] == 2
    found.take(key, None, 11, 9)
    assert found.counted()["cache", 3] == 1 and found.beyond_from == 2


def test_one_that_finds_room_is_not_counted_twice() -> None:
    found = book(1, {1: 1, 3: 1})
    found.take(of(1, 0).record_key(), None, 2)
    found.take(of(3, 0).record_key(), of(3, 0).to_json(), 3)
    assert found.counted() == {("cache", 3): 1}


def test_what_is_not_even_counted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.letters.book.COUNTED", 2)
    made, found = pipeline(tmp_path), book(1, {1: 2, 2: 2})
    (tmp_path / "p" / "cache").mkdir(parents=True)
    LetterWatch(cast(Any, None))._note(made, found, {"cache": 1})
    count = letter_counts(made)["cache"]
    assert count is not None and (count.standing, count.more) == (2, False), "this one's are all counted"
    found.take(of(None, 7).record_key(), of(None, 7).to_json(), 9)
    LetterWatch(cast(Any, None))._note(made, found, {"cache": 1})
    count = letter_counts(made)["cache"]
    assert count is not None and count.more
    found.back()
    assert not found.uncounted and found.beyond == 0
