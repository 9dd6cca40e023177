"""Upkeep of many tables by one writer: each in its turn, and a bounded share of the time for all of them together.

Who writes to one table waits for one step, and the table rests then. A history writes to each table that has changed
within one batch: were each given its step at once, five hundred of them would hold the next batch up for minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from spark.warehouse.upkeep.plan import REST
from spark.warehouse.upkeep.upkeep import Upkeep

# In one batch no step is begun after so many seconds of them; and one that took far longer is made up for in four times
# as many, in which other tables of the history may wait for nothing.
MOST_SECONDS = 5.0


class Turns:
    """For one thread: the one that writes to the tables.

    Args:
        upkeep: of the tables.
        clock: seconds that only grow.
    """

    def __init__(self, upkeep: Upkeep, clock: Callable[[], float] = time.monotonic) -> None:
        self._upkeep, self._clock = upkeep, clock
        self._waiting: dict[str, None] = {}  # in the order in which they were written to
        self._left, self._at = MOST_SECONDS, clock()

    def wrote(self, table: str) -> None:
        """A table was committed to, and is to be looked at once more; one that waits keeps its place."""
        self._waiting.setdefault(table)

    def work(self, spark: SparkSession, *, loading: bool = False) -> None:
        """Look at tables as long as there is time for it: a quarter of what has passed between two of these calls, so
        that it is a fifth of all. Those that are left are the first of the next call.

        Args:
            spark: the session that has committed to them.
            loading: see ``spark.warehouse.upkeep.plan.due``.
        """
        self._left = min(MOST_SECONDS, self._left + (self._clock() - self._at) / REST)
        while self._waiting and self._left > 0:
            table = next(iter(self._waiting))
            del self._waiting[table]
            began = self._clock()
            self._upkeep.after(spark, table, loading=loading)
            self._left = max(self._left - (self._clock() - began), -MOST_SECONDS)
        self._at = self._clock()
