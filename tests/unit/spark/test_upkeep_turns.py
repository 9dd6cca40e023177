"""Upkeep of the many tables that one batch of history writes to: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark.warehouse.upkeep.plan import REST
from spark.warehouse.upkeep.turns import MOST_SECONDS, Turns

TABLES = [f"`c`.`n`.`t{number}_history`" for number in range(500)]


class Clock:
    """A clock, and upkeep that takes a second for each table."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.now, self.seconds, self.kept = 0.0, seconds, list[str]()

    def after(self, _spark: Any, table: str, *, loading: bool) -> None:
        """A step."""
        assert not loading
        self.kept.append(table)
        self.now += self.seconds


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield Clock()


def turns_of(clock: Clock) -> Turns:
    upkeep: Any = clock
    return Turns(upkeep, lambda: clock.now)


def test_five_hundred_tables_hold_a_batch_up_for_no_longer_than_a_few_do(clock: Clock) -> None:
    turns = turns_of(clock)
    for table in TABLES:
        turns.wrote(table)
    turns.work(MagicMock())
    assert clock.now <= MOST_SECONDS + 1 and clock.kept == TABLES[: len(clock.kept)]


def test_it_takes_a_fifth_of_the_time_and_leaves_no_table_out(clock: Clock) -> None:
    """Each batch writes to all of them: were they looked at in their order, the last ones never were."""
    turns, others = turns_of(clock), 0.0
    for _ in range(600):
        for table in TABLES:
            turns.wrote(table)
        clock.now += 5.0
        others += 5.0
        turns.work(MagicMock())
    assert set(clock.kept) == set(TABLES) and len(clock.kept) >= 600
    assert clock.now - others <= others / REST + MOST_SECONDS + 1


def test_one_that_takes_very_long_is_made_up_for_and_not_for_an_hour(clock: Clock) -> None:
    turns = turns_of(clock)
    clock.seconds = 1000.0
    turns.wrote(TABLES[0])
    turns.work(MagicMock())
    clock.seconds = 1.0
    for passed, kept in ((MOST_SECONDS * REST - 1, 1), (2.0, 2)):
        turns.wrote(TABLES[1])
        clock.now += passed
        turns.work(MagicMock())
        assert len(clock.kept) == kept


def test_a_table_that_nothing_was_written_to_is_not_looked_at(clock: Clock) -> None:
    turns = turns_of(clock)
    turns.wrote(TABLES[0])
    turns.work(MagicMock())
    turns.work(MagicMock())
    assert clock.kept == [TABLES[0]]
