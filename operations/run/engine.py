"""Puts a pipeline's parts together: file + catalogue + generations -> flows in a Spark session."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from pyspark.sql import SparkSession

from cdc.catalogue import Catalogue
from cdc.errors import ClusterUnavailable, Fenced, HeadwaterError
from cdc.journal import Line, after
from cdc.pipeline import Pipeline
from connectors.gaps.lost_offset import check_snapshot
from connectors.marker_watch import read_snapshot_lsn
from operations.generations.outdated import gone_back_from, taken_back
from operations.opened import Opened, accept, open_generation
from operations.run.batch_spans import BatchSpans, batch_spans
from operations.run.flows import flows_of
from operations.run.histories import Histories
from operations.run.promotions import Promotions, finish_promotion
from operations.run.refusals import Refusals, opening
from operations.run.session import Sessions
from operations.state.catalogue import source_catalogue
from operations.state.folder import chosen_sinks, register_of
from operations.state.pausing import Pause, paused_sinks
from spark.disk.made_of import outdated
from spark.flow import Flow
from spark.machine.cluster import ended, is_local
from spark.runner import Runner
from spark.running import Start


@dataclass
class Engine:
    """A pipeline at work: hold it for as long as it should run, then close it.

    Attributes:
        pipeline: the loaded file.
        catalogue: the source's tables.
        spark: the session.
        runner: supervises the flows.
        builds: the generations that run here.
        only: the sinks that were asked for; none for all.
        refused: generations that can't be run, and why.
        paused: sinks that are left alone.
        spans: told each batch, when the file asks for traces.
        histories: of warehouse sinks that keep one; taken by ``follow``.
        promotions: that were cut, and are ended here.
    """

    pipeline: Pipeline
    catalogue: Catalogue
    spark: SparkSession
    runner: Runner
    builds: list[Opened]
    only: Sequence[str]
    snapshot_lsn: int
    refused: Refusals
    paused: dict[str, Pause] = field(default_factory=dict)
    spans: BatchSpans | None = None
    sessions: Sessions = field(default_factory=Sessions)
    histories: Histories = field(default_factory=Histories)
    promotions: Promotions = field(default_factory=Promotions)

    def follow(self) -> list[str]:
        """Take up generations that have become ready, let those go that are to be retired, stop those taken over.

        Returns:
            what was done, a line each.
        """
        said: list[str] = []
        self.follow_cluster()
        self.follow_lease()
        said += self.follow_pauses()
        said += self.promotions.follow(self.pipeline, self._sinks())
        for build in list(self.builds):
            title = f"{build.sink}, generation {build.generation.number}"
            if build.generation.number not in self._kept(build.sink):
                self._let_go(build)
                said.append(Line(f"{title}: let go, it is being retired", **build.about))
        for name in self._sinks():
            here = {build.generation.number for build in self.builds if build.sink == name}
            kept = self._kept(name)
            self.refused.forget(name, kept)
            for number in sorted(set(kept) - here):
                said += self._try(name, number)
        return said + self.histories.follow(self, self._sinks())

    def _try(self, sink: str, number: int, told: Catalogue | None = None) -> list[str]:
        """Take a generation up; one that can't be is tried again now and then."""
        if not self.refused.due(sink, number):
            return []
        try:
            if self.refused.stale:
                told = self.catalogue = source_catalogue(self.pipeline)
            self.builds.append(self._take_up(sink, number, told or self.catalogue))
        except HeadwaterError as error:  # its rebuild may not have let go of it yet
            return [after("warning: ", self.refused.lines[-1])] if self.refused.add(sink, number, error) else []
        self.refused.mended(sink, number)
        return [Line(f"{sink}, generation {number}: kept up to date from now on", sink=sink, generation=number)]

    def _take_up(self, sink: str, number: int, catalogue: Catalogue) -> Opened:
        with opening(f"sink {sink}, generation {number},"):
            build = open_generation(self.pipeline, catalogue, sink, number)
        try:
            self.runner.add(accepted_flows(build, catalogue, self.spark, self.snapshot_lsn))
        except BaseException:
            build.generation.unlock()  # kept, its lease would be ours and nobody's work
            raise
        return build

    def take_again(self, build: Opened, told: Catalogue | None = None) -> list[str]:
        """Open a generation that runs here anew; what was done, a line each.

        Args:
            build: the generation.
            told: the tables as this one is to take them; as they are known to all if left out.
        """
        self._let_go(build, anew=True)
        return self._try(build.sink, build.generation.number, told)

    def follow_pauses(self) -> list[str]:
        """Let go of sinks that were paused; those that are so no more are taken up as what has become ready."""
        before, self.paused = self.paused, paused_sinks(self.pipeline, self.only)
        for build in [build for build in self.builds if build.sink in self.paused]:
            self._let_go(build)
        for name in self.paused:
            self.refused.forget(name, ())
        new = {name: why for name, why in self.paused.items() if name not in before}
        said = [Line(f"sink {name}: paused {why.words}", sink=name) for name, why in new.items()]
        return [*said, *(Line(f"sink {name}: resumed", sink=name) for name in before if name not in self.paused)]

    def adopt(
        self, pipeline: Pipeline, catalogue: Catalogue, only: Sequence[str], reopened: Sequence[tuple[str, int]]
    ) -> list[str]:
        """Go by another file; flows that nothing has changed for are not touched. ``follow`` takes up what is new.

        Args:
            pipeline: the loaded file; source, log and Spark are those of before.
            catalogue: the source's tables now.
            only: the sinks that were asked for; none for all.
            reopened: generations (sink, number) to be opened anew.

        Returns:
            what was done, a line each.
        """
        gone = [build for build in self.builds if build.sink not in pipeline.sinks]
        for build in gone:
            self._let_go(build)
        for build in [build for build in self.builds if (build.sink, build.number) in reopened]:
            self._let_go(build, anew=True)
        self.histories.adopt(self, pipeline, catalogue)
        self.pipeline, self.catalogue, self.only = pipeline, catalogue, only
        self.refused.adopt(pipeline)
        why = "let go, it is not in the file any more"
        return [Line(f"{build.sink}, generation {build.number}: {why}", **build.about) for build in gone]

    def _let_go(self, build: Opened, *, anew: bool = False) -> None:
        folder = build.generation.folder
        self.runner.remove(folder, anew=anew)
        self.runner.once_over(folder, build.generation.unlock)
        self.builds.remove(build)

    def _sinks(self) -> list[str]:
        """Those that are not to be left alone."""
        return [name for name in chosen_sinks(self.pipeline, self.only) if name not in self.paused]

    def follow_cluster(self) -> None:
        """See whether Spark's cluster still runs this application.

        Raises:
            ClusterUnavailable: it does not: this process can only be started again (transient).
        """
        if not is_local(self.pipeline.engine.master) and ended(self.spark):
            error = ClusterUnavailable(
                f"Spark's cluster at {self.pipeline.engine.master} has ended this application",
                means="its executors failed again and again, or somebody killed it; offsets are where they were",
                fix="the master's page and the executors' logs say why; then start this command again",
            )
            self.runner.abandon(str(error))
            raise error

    def follow_lease(self) -> None:
        """Stop generations that another process has taken over."""
        for build in self.builds:
            try:
                build.generation.lease.check()
            except Fenced as error:
                self.runner.fail(build.generation.folder, str(error), taken=True)

    def stop(self, reason: str) -> None:
        """Stop all flows for good; `status` shows the reason."""
        for build in self.builds:
            self.runner.fail(build.generation.folder, reason)
        self.histories.fail(self, reason)
        self.runner.step()

    def _kept(self, sink: str) -> list[int]:
        return register_of(self.pipeline, sink).kept()

    def close(self) -> None:
        """Stop the queries, give the generations back, end Spark."""
        self.promotions.close()
        try:
            self.runner.stop()
        except Exception as error:  # SIGTERM to the whole group ends the JVM before us: offsets are where they were
            logging.getLogger(__name__).debug("Spark was gone before its queries were stopped: %s", error)
        for build in self.builds:
            self.runner.once_over(build.generation.folder, build.generation.unlock)
        self.histories.close(self)
        if self.spans is not None:
            self.spans.close()
        with suppress(Exception):
            self.sessions.close(self.spark)


def open_engine(
    pipeline: Pipeline, catalogue: Catalogue, only: Sequence[str] = (), sessions: Sessions | None = None
) -> Engine:
    """Bind and take the sinks' generations, and plan their flows. One that can't be run does not keep the others.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        only: sink names; none for all.
        sessions: where Spark's comes from; a virtual machine of its own if left out.

    Raises:
        HeadwaterError: no generation is left that could be run, or what they share is not there; nothing was started.
    """
    refused = Refusals(pipeline)
    builds: list[Opened] = []
    paused = paused_sinks(pipeline, only)
    try:
        for name in [name for name in chosen_sinks(pipeline, only) if name not in paused]:
            finish_promotion(pipeline, name, 0.0, logging.getLogger(__name__).info)
            for number in register_of(pipeline, name).kept():
                try:
                    register_of(pipeline, name).generation(number).lease.wait_out()
                    with opening(f"sink {name}, generation {number},"):
                        builds.append(open_generation(pipeline, catalogue, name, number))
                except HeadwaterError as error:
                    if error.transient:
                        raise
                    refused.add(name, number, error)
        if not builds and not paused:
            raise refused.failure()
        return _opened(pipeline, catalogue, builds, only, refused, paused, sessions)
    except BaseException:
        for build in builds:
            build.generation.unlock()
        raise


def open_rebuild(pipeline: Pipeline, catalogue: Catalogue, sink: str, number: int, throttle: float) -> Engine:
    """As ``open_engine``, for one generation that is being filled.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        sink: whose generation.
        number: which.
        throttle: see ``spark.flow.Flow``.

    Raises:
        HeadwaterError: it can't be run; its lease was given back.
    """
    build = open_generation(pipeline, catalogue, sink, number, rebuilding=True, throttle=throttle)
    try:
        return _opened(pipeline, catalogue, [build], [sink], Refusals(pipeline))
    except BaseException:
        build.generation.unlock()
        raise


def _opened(
    pipeline: Pipeline,
    catalogue: Catalogue,
    builds: list[Opened],
    only: Sequence[str],
    refused: Refusals,
    paused: Mapping[str, Pause] = MappingProxyType({}),
    sessions: Sessions | None = None,
) -> Engine:
    snapshot_lsn, spans = read_snapshot_lsn(pipeline), batch_spans(pipeline)
    check_snapshot(pipeline, snapshot_lsn)
    names = sorted({build.sink for build in builds}) or chosen_sinks(pipeline, only)
    rebuild = "-rebuild" if any(build.rebuilding for build in builds) else ""
    # Also the catalogues of sinks whose generations are taken up later: a session can't learn one.
    sessions = sessions or Sessions()
    spark = sessions.open(pipeline, chosen_sinks(pipeline, only), "-".join(names) + rebuild)
    try:
        flows: list[tuple[Flow, Start]] = []
        for build in list(builds):
            try:
                flows += accepted_flows(build, catalogue, spark, snapshot_lsn)
            except HeadwaterError as error:
                if error.transient:
                    raise
                build.generation.unlock()
                builds.remove(build)
                refused.add(build.sink, build.generation.number, error)
        if not builds and not paused:
            raise refused.failure()
    except BaseException:
        with suppress(Exception):
            sessions.close(spark)
        raise
    runner = Runner(spark, flows, tell=None if spans is None else spans.tell)
    kept = dict(paused)
    return Engine(pipeline, catalogue, spark, runner, builds, only, snapshot_lsn, refused, kept, spans, sessions)


def accepted_flows(
    build: Opened, catalogue: Catalogue, spark: SparkSession, snapshot_lsn: int
) -> list[tuple[Flow, Start]]:
    """As ``flows_of``; what the generation is made of is written down only then, as nothing is wrong with it."""
    with opening(f"sink {build.sink}, generation {build.generation.number},"):
        flows = flows_of(build, catalogue, spark, snapshot_lsn)
        accept(build)
        build.generation.end_others([flow.name for flow, _ in flows])
    return flows


def warn_outdated(pipeline: Pipeline, builds: Sequence[Opened]) -> list[str]:
    """A line for each sink whose living generation was made of something else than the file says now."""
    said: list[str] = []
    for build in builds:
        number, started = build.generation.number, build.definition is None
        register = register_of(pipeline, build.sink)
        if started and number == register.living() and (differs := outdated(pipeline, build.generation)):
            left = gone_back_from(pipeline, register)
            anew = f"`headwater rebuild FILE {build.sink}` makes a new generation"
            text = (
                f"sink {build.sink} goes on as generation {number} was defined; the file differs "
                f"({', '.join(differs[:3])}): {anew if left is None else taken_back(build.sink, left, 'FILE')}"
            )
            said.append(Line(text, **build.about))
    return said
