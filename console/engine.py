"""Puts a pipeline's parts together: file + catalogue + generations -> flows in a Spark session."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.catalogue import Catalogue
from cdc.errors import ClusterUnavailable, Fenced, HeadwaterError
from cdc.pipeline import IcebergSink, Pipeline
from cdc.resolve import resolve_views
from console.catalogue import source_catalogue
from console.flows import Build, catalog_name, flows_of
from console.machines import check_machines
from console.marker import read_snapshot_lsn
from console.places import chosen_sinks, registry, state_dir
from console.promotion import Say, promote
from console.refusals import Refusals
from console.topicids import topic_ids
from sinks import iceberg
from spark.cluster import ended, is_local
from spark.flow import Flow
from spark.generations import as_defined, define, keep_definition, outdated, proposed
from spark.runner import Runner, Start
from spark.session import build_session
from spark.state import Generation, Identity
from spark.warehouse import catalog_settings


def open_spark(pipeline: Pipeline, sinks: Sequence[str], log: str = "verify") -> SparkSession:
    """Start Spark with the catalogues of the warehouse sinks known to it; ``log`` names its log file."""
    conf = dict(pipeline.engine.spark_conf)
    for name in sinks:
        sink = pipeline.sinks[name]
        if isinstance(sink, IcebergSink):
            conf = {**catalog_settings(catalog_name(name), iceberg.spark_properties(sink)), **conf}
    engine = pipeline.engine
    spark = build_session(
        f"headwater {pipeline.name}",
        master=engine.master,
        jars=Path(engine.jars or os.environ.get("HEADWATER_SPARK_JARS", "")),
        log=state_dir(pipeline).absolute() / pipeline.name / f"spark-{log}.log",
        driver_memory=engine.driver_memory,
        conf=conf,
        python_archive=engine.python_archive,
    )
    try:
        check_machines(pipeline, sinks, spark)
    except BaseException:
        spark.stop()
        raise
    return spark


# A promotion takes some twenty seconds for a million keys; one that takes longer than this was killed.
PROMOTION_SECONDS = 120.0


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
    """

    pipeline: Pipeline
    catalogue: Catalogue
    spark: SparkSession
    runner: Runner
    builds: list[Build]
    only: Sequence[str]
    snapshot_lsn: int
    refused: Refusals

    def follow(self) -> list[str]:
        """Take up generations that have become ready, let those go that are to be retired, stop those taken over.

        Returns:
            what was done, a line each.
        """
        said: list[str] = []
        self.follow_cluster()
        self.follow_lease()
        for name in chosen_sinks(self.pipeline, self.only):
            finish_promotion(self.pipeline, name, PROMOTION_SECONDS, said.append)
        for build in list(self.builds):
            title = f"{build.sink}, generation {build.generation.number}"
            if build.generation.number not in self._kept(build.sink):
                self.runner.remove(build.generation.folder)
                build.generation.unlock()
                self.builds.remove(build)
                said.append(f"{title}: let go, it is being retired")
        for name in chosen_sinks(self.pipeline, self.only):
            here = {build.generation.number for build in self.builds if build.sink == name}
            kept = self._kept(name)
            self.refused.forget(name, kept)
            for number in sorted(set(kept) - here):
                said += self._try(name, number)
        return said

    def _try(self, sink: str, number: int) -> list[str]:
        """Take a generation up; one that can't be is tried again now and then."""
        if not self.refused.due(sink, number):
            return []
        try:
            if self.refused.stale:
                self.catalogue = source_catalogue(self.pipeline)
            self.builds.append(self._take_up(sink, number))
        except HeadwaterError as error:  # its rebuild may not have let go of it yet
            return [f"warning: {self.refused.lines[-1]}"] if self.refused.add(sink, number, error) else []
        self.refused.mended(sink, number)
        return [f"{sink}, generation {number}: kept up to date from now on"]

    def _take_up(self, sink: str, number: int) -> Build:
        build = open_build(self.pipeline, self.catalogue, sink, number)
        try:
            self.runner.add(accepted_flows(build, self.catalogue, self.spark, self.snapshot_lsn))
        except BaseException:
            build.generation.unlock()  # kept, its lease would be ours and nobody's work
            raise
        return build

    def take_again(self, build: Build) -> list[str]:
        """Open a generation that runs here anew, with what is known of the source now; what was done, a line each."""
        self.runner.remove(build.generation.folder)
        build.generation.unlock()
        self.builds.remove(build)
        return self._try(build.sink, build.generation.number)

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
        self.runner.step()

    def _kept(self, sink: str) -> list[int]:
        return registry(self.pipeline, sink).kept()

    def close(self) -> None:
        """Stop the queries, give the generations back, end Spark."""
        try:
            self.runner.stop()
        except Exception as error:  # SIGTERM to the whole group ends the JVM before us: offsets are where they were
            logging.getLogger(__name__).debug("Spark was gone before its queries were stopped: %s", error)
        for build in self.builds:
            build.generation.unlock()
        with suppress(Exception):
            self.spark.stop()


def open_engine(pipeline: Pipeline, catalogue: Catalogue, only: Sequence[str] = ()) -> Engine:
    """Bind and take the sinks' generations, and plan their flows. One that can't be run does not keep the others.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        only: sink names; none for all.

    Raises:
        HeadwaterError: no generation is left that could be run, or what they share is not there; nothing was started.
    """
    refused = Refusals(pipeline)
    builds: list[Build] = []
    try:
        for name in chosen_sinks(pipeline, only):
            finish_promotion(pipeline, name, 0.0, logging.getLogger(__name__).info)
            for number in registry(pipeline, name).kept():
                try:
                    builds.append(open_build(pipeline, catalogue, name, number))
                except HeadwaterError as error:
                    if error.transient:
                        raise
                    refused.add(name, number, error)
        if not builds:
            raise refused.failure()
        return _opened(pipeline, catalogue, builds, only, refused)
    except BaseException:
        for build in builds:
            build.generation.unlock()
        raise


def open_rebuild(pipeline: Pipeline, catalogue: Catalogue, sink: str, number: int, throttle: float) -> Engine:
    """As ``open_engine``, for one generation that is being filled."""
    build = open_build(pipeline, catalogue, sink, number, rebuilding=True, throttle=throttle)
    try:
        return _opened(pipeline, catalogue, [build], [sink], Refusals(pipeline))
    except BaseException:
        build.generation.unlock()
        raise


def _opened(
    pipeline: Pipeline, catalogue: Catalogue, builds: list[Build], only: Sequence[str], refused: Refusals
) -> Engine:
    snapshot_lsn = read_snapshot_lsn(pipeline)
    names = sorted({build.sink for build in builds})
    rebuild = "-rebuild" if any(build.rebuilding for build in builds) else ""
    # Also the catalogues of sinks whose generations are taken up later: a session can't learn one.
    spark = open_spark(pipeline, chosen_sinks(pipeline, only), "-".join(names) + rebuild)
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
        if not builds:
            raise refused.failure()
    except BaseException:
        with suppress(Exception):
            spark.stop()
        raise
    return Engine(pipeline, catalogue, spark, Runner(spark, flows), builds, only, snapshot_lsn, refused)


def accepted_flows(
    build: Build, catalogue: Catalogue, spark: SparkSession, snapshot_lsn: int
) -> list[tuple[Flow, Start]]:
    """As ``flows_of``; what the generation is made of is written down only then, as nothing is wrong with it."""
    flows = flows_of(build, catalogue, spark, snapshot_lsn)
    accept(build)
    return flows


def open_build(
    pipeline: Pipeline,
    catalogue: Catalogue,
    sink: str,
    number: int,
    *,
    rebuilding: bool = False,
    throttle: float = 1.0,
) -> Build:
    """Take a generation's lease and check that what it was filled from is what is there; ``accept`` writes that down.

    Raises:
        StateError: another process runs it, or it is bound to something else (terminal; nothing was started).
        ConfigError: its views do not fit the source's tables (terminal).
    """
    generation = Generation(state_dir(pipeline), pipeline.name, sink, number)
    token = generation.lock()
    try:
        # One that has written nothing yet takes the file as it is now, whatever an earlier attempt was made of.
        started = generation.started
        known = generation.known() if started else None
        if known is not None and not (generation.folder / "definition.json").exists():
            # Filled by a Headwater that did not keep definitions: the file must still say what it said then.
            generation.bind(identity(pipeline, catalogue, known.topic_ids, pipeline.spec_hash(sink)))
        definition = None if started else proposed(generation, pipeline, list(catalogue.tables))
        kept = definition or define(generation, pipeline, list(catalogue.tables))
        defined = as_defined(pipeline, sink, number) if started else pipeline
        views = resolve_views(defined, catalogue, sink)
        build = Build(defined, generation, views, token, rebuilding, throttle, definition)
        ids = topic_ids(pipeline, build.topics)
        bound = identity(pipeline, catalogue, ids, known.spec_hash if known else str(kept["spec_hash"]))
        if known is not None:
            generation.bind(bound)
    except BaseException:
        generation.unlock()
        raise
    return replace(build, identity=bound)


def accept(build: Build) -> None:
    """Write down what a generation is made of and bound to: its views and expressions have been found right.

    Raises:
        StateError: it is bound to something else (terminal).
    """
    generation = build.generation
    if build.definition is not None:
        (generation.folder / "identity.json").unlink(missing_ok=True)
        keep_definition(generation, build.definition)
    if build.identity is not None:
        generation.bind(build.identity)
    generation.note_views([view.name for view in build.views])
    generation.accepted()


def peek(pipeline: Pipeline, catalogue: Catalogue, sink: str, number: int) -> Build:
    """A generation as whoever runs it has it, without taking it: writes carry the holder's token.

    Raises:
        ConfigError: its views do not fit the source's tables (terminal).
    """
    generation = Generation(state_dir(pipeline), pipeline.name, sink, number)
    holder = generation.lease.holder()
    defined = as_defined(pipeline, sink, number)
    return Build(defined, generation, resolve_views(defined, catalogue, sink), holder.token if holder else 0)


def finish_promotion(pipeline: Pipeline, sink: str, after: float, say: Say) -> None:
    """End a promotion that was begun more than ``after`` seconds ago: its process has died, and writers wait for it.

    Doing it while that process is at work after all does no harm. A target that does not answer is asked again later.
    """
    begun = registry(pipeline, sink).promotion(after)
    if begun is not None:
        try:
            promote(pipeline, sink, begun.number, say)
        except HeadwaterError as error:
            say(f"sink {sink}: the promotion of generation {begun.number} could not be finished: {error.what}")


def identity(pipeline: Pipeline, catalogue: Catalogue, ids: Mapping[str, str], spec_hash: str) -> Identity:
    """What a sink's generation is bound to."""
    return Identity(
        system_identifier=str(catalogue.system_identifier),
        timeline=catalogue.timeline,
        database=pipeline.source.database,
        slot=pipeline.source.slot,
        topic_ids=ids,
        spec_hash=spec_hash,
    )


def warn_outdated(pipeline: Pipeline, builds: Sequence[Build]) -> list[str]:
    """A line for each sink whose living generation was made of something else than the file says now."""
    said = []
    for build in builds:
        number, started = build.generation.number, build.definition is None
        living = started and number == registry(pipeline, build.sink).living()
        if living and (differs := outdated(pipeline, build.sink, number)):
            said.append(
                f"sink {build.sink} goes on as generation {number} was defined; the file differs "
                f"({', '.join(differs[:3])}): `headwater rebuild FILE {build.sink}` makes a new generation"
            )
    return said
