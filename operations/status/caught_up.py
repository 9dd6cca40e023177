"""How far flows are on their way to the end that the log had when somebody began to look."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from cdc.errors import KafkaError
from cdc.log.ends import LogEnds, reached
from cdc.pipeline import Pipeline
from spark.disk.checkpoint import committed_offsets
from spark.running import Running


class Goal:
    """The log's end at the start, and each flow's way there.

    Args:
        pipeline: for Kafka's address.
        running: the flows; the runner's own list, which changes as generations come and go.
    """

    def __init__(self, pipeline: Pipeline, running: Sequence[Running]) -> None:
        self.running = running
        self._log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
        self._ends = self._read()

    def __enter__(self) -> Goal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def _read(self) -> dict[str, dict[int, int]]:
        topics = {topic for run in self.running for topic in run.flow.spec.topics}
        try:
            return self._log.ends(sorted(topics))
        except KafkaError:
            return {}  # Kafka is away: the flows say so themselves

    def _of(self, run: Running) -> dict[str, dict[int, int]]:
        """The log's ends of a flow's topics; asked for again while they are not known."""
        if not self._ends:
            self._ends = self._read()
        return {topic: self._ends.get(topic, {}) for topic in run.flow.spec.topics}

    def way(self, run: Running) -> tuple[int, int]:
        """Offsets done and to do for a flow; of a joined view that is being filled, records of both its passes."""
        told = getattr(run.query, "progress", None) if run.filling else None
        if told is not None:
            _, done, total = told()
            return done, total
        goal, (_, committed) = self._of(run), committed_offsets(run.flow.checkpoint)
        total = sum(end for parts in goal.values() for end in parts.values())
        done = sum(min(committed.get(t, {}).get(p, 0), end) for t, parts in goal.items() for p, end in parts.items())
        return done, total

    def caught_up(self) -> bool:
        """Whether every flow that is not failed has committed what the log held at the start."""
        for run in self.running:
            goal = self._of(run)
            there = not run.filling and run.deferred == 0 and reached(committed_offsets(run.flow.checkpoint)[1], goal)
            if not self._ends or (not run.failed and not there):
                return False
        return True
