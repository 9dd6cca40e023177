"""How far flows are on their way to the end that the log had when they were first seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cdc.errors import KafkaError
from cdc.log.ends import LogEnds, lacking, reached
from cdc.pipeline import Pipeline
from spark.disk.checkpoint import committed_offsets
from spark.running import Running
from spark.shorter import furthest


class Goal:
    """Each flow's way to the end that the log had when it was first seen: at the start, or when it was taken up later.

    Args:
        pipeline: for Kafka's address.
        running: the flows; the runner's own list, which changes as generations come and go.
    """

    def __init__(self, pipeline: Pipeline, running: Sequence[Running]) -> None:
        self.running = running
        self._log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
        self._ends: dict[Path, dict[str, dict[int, int]]] = {}
        self._places: list[Mapping[str, Mapping[int, int]]] | None = None
        self.look()

    def __enter__(self) -> Goal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def look(self) -> None:
        """Notice flows that have come, for whom the log ends where it does now, and forget those that have gone: one
        that comes back, as from a pause, has come then."""
        before, now, self._places = self._ends, [*self.running], None
        self._ends = {run.flow.checkpoint: before.get(run.flow.checkpoint, {}) for run in now}
        self._ask([run for run in now if run.flow.checkpoint not in before])

    def _ask(self, runs: Sequence[Running]) -> None:
        """Ask, in one go, for the ends of the topics of flows that are not known of them yet; what is stays so."""
        ends_of = [(run.flow.spec.topics, self._ends.setdefault(run.flow.checkpoint, {})) for run in runs]
        unknown = {topic for topics, known in ends_of for topic in topics if topic not in known}
        if unknown:
            places = self._furthest()
            with suppress(KafkaError):  # Kafka is away: the flows say so themselves
                for topic, ends in self._log.ends(sorted(unknown)).items():
                    # An end before what a flow has read is none to reach: such a flow is refused at its start, unless
                    # the log is whole again by then.
                    if any(lacking({topic: ends}, place) for place in places):
                        continue
                    for topics, known in ends_of:
                        if topic in topics:
                            known.setdefault(topic, ends)

    def _furthest(self) -> list[Mapping[str, Mapping[int, int]]]:
        """How far each flow has read, read once a look: while Kafka is away each flow asks for its ends anew."""
        if self._places is None:
            read = [run.flow for run in self.running if not run.failed]
            self._places = [furthest(flow, *committed_offsets(flow.checkpoint)) for flow in read]
        return self._places

    def _of(self, run: Running) -> dict[str, dict[int, int]]:
        """The log's ends of a flow's topics, as far as they are known; asked for again while they are not."""
        self._ask([run])
        known = self._ends[run.flow.checkpoint]
        return {topic: known[topic] for topic in run.flow.spec.topics if topic in known}

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
        """Whether every flow that is not failed has committed what the log held when it was first seen."""
        self.look()
        return all(run.failed or self._there(run) for run in self.running)

    def _there(self, run: Running) -> bool:
        if run.filling or run.deferred != 0:
            return False
        goal = self._of(run)
        # Of a topic whose end nobody knows there would be nothing to reach.
        known = goal.keys() == set(run.flow.spec.topics)
        return known and reached(committed_offsets(run.flow.checkpoint)[1], goal)
