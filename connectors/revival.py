"""Starts a connector again whose task has failed: Kafka Connect leaves a failed task where it is, for ever.

A worker's hiccup, a deadlock in Postgres, a stumble of Debezium over a table that was altered: what the same task gets
over at its next start should not wait for somebody to get up at night. What it does not get over fails again, and is
tried more and more seldom; `status` tells the reason all the time. Strimzi does the same for its connectors.

Not for Avro: what fails then fails for want of the schema registry, as a rule, and a restart without it only repeats
that; `headwater apply` starts it once the registry is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from cdc.errors import ConnectError, LogGap, SlotLost, SourceError
from cdc.pipeline import Pipeline
from connectors.captured.captured import read_captured
from connectors.connector import start_again
from connectors.debezium import connector_name
from connectors.gaps.lost_offset import refuse_lost_offset
from connectors.names import Names
from connectors.postgres import ANSWER_SECONDS, connect, within
from connectors.rest import ConnectClient

# Between two attempts: a restart costs Postgres a few queries, and a cause that stays is there in ten minutes too.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
# One that meets its cause again runs for a while first: Debezium reads the log up to it. Not well until then.
WELL_SECONDS = 180.0


class Revival:
    """Looks now and then, and starts again what has failed.

    Args:
        pipeline: the loaded file.
        check: raises when the log can't be continued from where the connector stands: then it is left alone.
    """

    def __init__(self, pipeline: Pipeline, check: Callable[[], None]) -> None:
        self.pipeline, self.check = pipeline, check
        self._pause, self._due = FIRST_PAUSE, 0.0

    def look(self, now: float | None = None) -> str | None:
        """Look once; what was done, in words.

        Args:
            now: seconds on the monotonic clock.

        Raises:
            SlotLost, LogGap, SourceChanged: of ``check``, or Connect has lost the connector's offset (terminal).
        """
        if self.pipeline.source.format == "avro":
            return None
        now = time.monotonic() if now is None else now
        name = connector_name(self.pipeline)
        try:
            with ConnectClient.impatient(self.pipeline.connect) as client:
                status = client.status(name)
                if status is None or not status.failed:
                    if now > self._due + max(self._pause, WELL_SECONDS):
                        self._pause = FIRST_PAUSE
                    return None
                if now < self._due:
                    return None
                self.check()
                if client.offset(name) is None:  # it would begin with a first snapshot
                    self._refuse_lost_offset()
                self._due, self._pause = now + self._pause, min(self._pause * 2, LONGEST_PAUSE)
                start_again(client, name)
        except (SlotLost, LogGap):  # which are SourceErrors too
            raise
        except (ConnectError, SourceError, psycopg.Error):  # down, in a rebalance, or no login: looked at again
            return None
        why = (status.trace.splitlines() or ["it does not tell why"])[0]
        return f"warning: connector {name} had failed, and was started again: {why[:300]}"

    def _refuse_lost_offset(self) -> None:
        """Asked of the database itself: ``check`` says nothing while that does not answer."""
        with connect(self.pipeline.source) as connection, within(connection, ANSWER_SECONDS):
            refuse_lost_offset(None, read_captured(connection, Names.of(self.pipeline)))
