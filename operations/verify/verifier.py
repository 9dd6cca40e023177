"""Verification of views: the whole of one, or a sample of it, in every sink that holds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError, ShapeUnknown
from cdc.fold import FoldView
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline
from cdc.resolve.views import view_tables
from cdc.saying import Say, to_nobody
from cdc.stateful import StatefulView
from cdc.timed import TimedView
from cdc.view import View
from operations.holding import holding
from operations.logged_events import logged
from operations.opened import Opened, peek
from operations.pace import Pace
from operations.run.session import open_spark
from operations.state.folder import registers_of, state_dir
from operations.state.pausing import paused_sinks, refuse_paused
from operations.verify.beside import beside
from operations.verify.buckets import Keys, Side, bucket_count
from operations.verify.chosen import holders as holders_of
from operations.verify.chosen import holding_any, view_names
from operations.verify.columns import differing_columns, reasons, undelivered
from operations.verify.comparison import Comparison, compare
from operations.verify.expected_file import may_repeat, told_digests
from operations.verify.expired import may_have_expired
from operations.verify.frontier import Frontier, opened_servers
from operations.verify.settle import Settler
from operations.verify.tables_now import TablesNow, not_there
from operations.verify.work_folder import naming_gone, refuse_gone, work_folder
from truth.expected import expected, needs_spark
from truth.rows import rows_of, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# From so many rows on, what the sinks hold is read by a process of its own: it costs a second to start one.
BESIDE_ROWS = 20_000
# So often it is looked whether it is time to say how far it is.
TOLD_ROWS = 1_000
# Repaired documents are looked at again for so long at least: the slot moves only every few seconds.
LEAST_WAIT = 15.0
# A row that is deleted while it is repaired in a warehouse comes back with the repair; the second attempt removes it.
ATTEMPTS = 2


@dataclass(frozen=True)
class Asked:
    """What is to be done.

    Attributes:
        only: sink names; none for all.
        wait: seconds that a sink may take to catch up when something differs.
        repair: write what differs.
        sample: compare so many random rows and documents a view; None for all.
        seed: of the sample.
        generation: which one; None for the living one of each sink.
        values: tell what differs in a document, and not only where.
        views: names of views, and nothing else is compared; none for all.
        whole: what is known of some views alone is of no use: an error of one is an error of all.
    """

    only: Sequence[str] = ()
    wait: float = 0.0
    repair: bool = False
    sample: int | None = None
    seed: int = 0
    generation: int | None = None
    values: bool = False
    views: Sequence[str] = ()
    whole: bool = False


class Verifier:
    """Holds what several comparisons share: the generations, their views and, if one needs it, a Spark session.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        asked: what is to be done.
        progress: told a line for each view.
        on_pause: called while it waits for a sink; may raise to end it.

    Attributes:
        names: the sinks that were asked for; without those that are known to have none of the views asked for.
        failed: sinks that can't be verified, and why; the others are.
        paused: sinks that are paused; they are compared when they were asked for by name.
        still: sink -> view -> tables that were taken out of the file, for which that view is not compared.

    Raises:
        ConfigError: a sink that is not there, or a view that none of them has.
        HeadwaterError: no sink can be verified, for the reason of the first.
        StateError: all are paused, and none was named; or one is that was to be repaired.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        catalogue: Catalogue,
        asked: Asked,
        progress: Say = to_nobody,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.pipeline, self.tables, self.asked = pipeline, TablesNow(pipeline, catalogue), asked
        self.progress, self.on_pause = progress, on_pause
        self.source_rows: dict[str, int] = {}
        self.failed: dict[str, HeadwaterError] = {}
        self.builds: dict[str, Opened] = {}
        self.still: dict[str, dict[str, list[str]]] = {}
        registers = registers_of(pipeline, asked.only)
        self.names = list(registers)
        self.paused = paused_sinks(pipeline, self.names)
        if not asked.only and not set(self.names) - self.paused.keys():
            refuse_paused(pipeline, self.names, "nothing was compared; --sink compares it as it is")
        for name, register in registers.items():
            if name in self.paused and not asked.only:
                progress(f"{name} is paused {self.paused[name].words}: not compared")
                continue
            try:
                if asked.repair:
                    refuse_paused(pipeline, [name], "nothing was repaired")
                number = register.living() if asked.generation is None else register.get(asked.generation).number
                self.builds[name] = peek(pipeline, catalogue, register.generation(number))
            except HeadwaterError as error:
                self.failed[name] = error
        if asked.views:
            self._leave_out({name: view_names(pipeline, registers[name], asked.generation) for name in self.failed})
        for name, why in self.failed.items():
            self._fail(name, why)
        self._refuse_nothing()
        self._spark: SparkSession | None = None

    def _fail(self, sink: str, error: HeadwaterError) -> None:
        self.failed.setdefault(sink, error)
        self.progress(f"{sink} can't be verified: {error}")

    def _leave_out(self, failed: Mapping[str, Sequence[str]]) -> None:
        """Sinks that have none of the views that are asked for, with what keeps them from being compared."""
        kept, maybe = holding_any(self.builds, self.asked.views, failed)
        gone = (self.builds.keys() - kept.keys()) | (failed.keys() - maybe)
        self.names = [name for name in self.names if name not in gone]
        self.builds, self.failed = kept, {name: error for name, error in self.failed.items() if name in maybe}

    def _refuse_nothing(self) -> None:
        if self.failed and self.failed.keys() >= set(self.names):
            raise next(iter(self.failed.values()))

    def close(self) -> None:
        """End Spark if it was started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def sinks(self) -> list[dict[str, Any]]:
        """Compare, view by view, because what a view must hold is the same for all sinks that hold it."""
        results: dict[tuple[str, str], Comparison] = {}
        there = dict.fromkeys(view.name for build in self.builds.values() for view in build.views)
        for name in there:
            if not self.asked.views or name in self.asked.views:
                self._compare(name, results)
        if self.asked.whole or not results:
            self._refuse_nothing()
        return [self._told(name, results) for name in self.names]

    def _compare(self, called: str, results: dict[tuple[str, str], Comparison]) -> None:
        """Compare what bears a view's name in all sinks: one view, or several where a sink has a table as it was."""
        for view, holders in holders_of(self.builds, called):
            if absent := sorted(view_tables(view).keys() - self.tables.catalogue.tables.keys()):
                if not any(map(self.pipeline.captures, absent)):
                    names = ", ".join(absent)
                    self.progress(f"{view.name} is not compared: it stands still, for {names} is captured no more")
                    for build in holders:
                        self.still.setdefault(build.sink, {})[view.name] = absent
                    continue
                for build in holders:
                    self._fail(build.sink, not_there(view, absent))
                continue
            self.progress(f"comparing {view.name} · {', '.join(build.sink for build in holders)}")
            for name, result in self._each(view, holders).items():
                results[name, view.name] = result

    def _told(self, name: str, results: Mapping[tuple[str, str], Comparison]) -> dict[str, Any]:
        build, error = self.builds.get(name), self.failed.get(name)
        views = [result for (sink, _), result in results.items() if sink == name]
        return {
            "sink": name,
            "type": (build.pipeline if build else self.pipeline).sinks[name].type,
            "generation": build.generation.number if build else None,
            "error": None if error is None else str(error),
            "paused": asdict(self.paused[name]) if name in self.paused else None,
            "views": [{**asdict(view), "equal": view.equal} for view in views],
            "still": [{"view": view, "tables": tables} for view, tables in self.still.get(name, {}).items()],
        }

    def _each(self, view: View, holders: Sequence[Opened]) -> dict[str, Comparison]:
        """Compare a view in all sinks that hold it; when it is not known which of them fails, in each of them alone."""
        try:
            self.tables.refuse_altered(view)
            with self._folder() as folder:
                return self._view(view, holders, folder)
        except HeadwaterError as error:
            if len(holders) == 1:
                self._fail(holders[0].sink, error)
                return {}
        return {name: result for build in holders for name, result in self._each(view, [build]).items()}

    def _view(self, view: View, holders: Sequence[Opened], folder: Path) -> dict[str, Comparison]:
        started = time.monotonic()
        view = self._typed(view, holders)
        results = {build.sink: Comparison(view.name, sampled=self.asked.sample is not None) for build in holders}
        differing: dict[str, Keys] = {}
        if self.asked.sample is None:
            differing = self._whole(view, holders, folder, results)
            refuse_gone(folder)  # later it would be compared again, and what was repaired meanwhile not told
        seconds = time.monotonic() - started
        for build in holders:
            started = time.monotonic() - seconds
            result = results[build.sink]
            try:
                with naming_gone(folder):
                    self._looked_again(view, build, folder, result, differing.get(build.sink))
            except HeadwaterError as error:
                # From here on it is this sink's: the others' results stay. Compared once more, one that was repaired
                # would be equal, and said to have been so all along.
                self._fail(build.sink, error)
                if result.repaired is None:  # what a repair has done is told, whatever came then
                    del results[build.sink]
            result.seconds = round(time.monotonic() - started, 3)
            result.rows_s = round(result.expected / max(seconds or result.seconds, 1e-9), 1)
        return results

    def _looked_again(
        self, view: View, build: Opened, folder: Path, result: Comparison, differing: Keys | None
    ) -> None:
        """One sink's part: what differs is settled, repaired, and told by its columns."""
        with self._settler(view, build, folder / f"{build.sink}-keys") as settler:
            try:
                self._settled(settler, build, result, differing)
                result.columns = differing_columns(settler, result.changed, values=self.asked.values)
                result.lossy = undelivered(view, result.columns)
            finally:  # the reasons of a repair are told also if it fails then, and quote no rows
                result.not_repaired = reasons(result.not_repaired, result.columns, values=self.asked.values)

    def _typed(self, view: View, holders: Sequence[Opened]) -> View:
        """A view of which a table's column, or the state, has a type that only Spark knows, with that type."""
        if isinstance(view, FoldView):
            from spark.events.fold import analyse_fold

            return analyse_fold(self.session(), view)
        if not isinstance(view, JoinedView) or not any(build.warehouse for build in holders):
            return view
        from spark.join.child_expressions import analysed, needed

        return analysed(self.session(), view) if needed(view) else view

    # -- whole views --------------------------------------------------------------------------------------------------

    def _whole(
        self, view: View, holders: Sequence[Opened], folder: Path, results: Mapping[str, Comparison]
    ) -> dict[str, Keys]:
        """Compare everything; returns the keys that differ in each sink."""
        spark = self.session() if needs_spark(view) else None
        with snapshot(self.pipeline.source) as connection:
            rows = rows_of(connection, view.table)
            buckets = bucket_count(rows)
            held = {build.sink: Side(folder / f"{build.sink}-held", buckets) for build in holders}
            # What is compared within bounds can't be read before these are known.
            bounds = folder / "told" if isinstance(view, TimedView) else None
            jobs = [(build, view, held[build.sink].folder, buckets, bounds) for build in holders]
            with beside(jobs, apart=bounds is None and rows >= BESIDE_ROWS) as finish:
                wanted = {form: Side(folder / form, buckets) for form in {build.form(view) for build in holders}}
                count, told = 0, Pace(self.progress, "rows compared")
                events = logged(self.pipeline, view)
                found = expected(view, connection, spark, events=events, folder=folder)
                for key, of in told_digests(view, found, list(wanted), bounds):
                    count += 1
                    if count % TOLD_ROWS == 0:
                        told.at(count, rows)
                    for form, value in of.items():
                        wanted[form].add(key, value)
                within = finish()
        for build, number in zip(holders, within, strict=True):
            results[build.sink].within = number
        for side in wanted.values():
            side.flush()
        if not view.where and not view.event_types and not isinstance(view, StatefulView):
            self.source_rows[view.table.qualified] = count
        differing = {}
        for build in holders:
            name = build.sink
            keys = differing[name] = Keys(folder / f"{name}-differing")
            compare(
                results[name],
                wanted[build.form(view)],
                held[name],
                keys.add,
                unique=build.warehouse,
                stays=view.outlives_rows,
                repeats=may_repeat(view),
            )
            keys.flush()
        return differing

    # -- what differs -------------------------------------------------------------------------------------------------

    def _settled(self, settler: Settler, build: Opened, result: Comparison, keys: Keys | None) -> None:
        """Look again at what differs, and repair it if that was asked for."""
        if keys is None:
            keys = settler.look(result, self.asked.sample or 0, self.asked.seed)
        if not keys.count:
            result.repaired = 0 if self.asked.repair else None
            return
        self.tables.refuse_altered(settler.view)
        self.progress(f"  {build.sink}: looking again at {keys.count:,} keys that differ")
        # A paused sink comes no nearer, however long it is waited for.
        wait = 0.0 if build.sink in self.paused else self.asked.wait
        certain = settler.settle(result, keys, wait)
        if certain.count:  # of tables that are what they were, or nothing is told, or written, of it
            self.tables.refuse_altered(settler.view)
        if self.asked.repair:
            self._repair(settler, build, result, certain)

    def _repair(self, settler: Settler, build: Opened, result: Comparison, certain: Keys) -> None:
        """Write what certainly differs, and look whether it is right now."""
        from operations.verify.repair.cleared import clear_letters
        from operations.verify.repair.repair import repair
        from operations.verify.repair.work import Refused

        left, tables = certain, self.tables.catalogue
        result.repaired = None if certain.count else 0
        if isinstance(settler.view, StatefulView):  # nothing is written, so there is nothing to look at again
            refused = repair(build, tables, settler, left, self.session(), caught_up=bool(result.caught_up))
            result.repaired, result.not_repaired = 0, refused.explained(left)
            return
        # Rows that moved after an attempt: the next one leaves them alone, and nobody knows whether they are right.
        unclear = Keys(settler.folder / "unclear")
        for _ in range(ATTEMPTS):
            if not left.count:
                break
            self.progress(f"  {build.sink}: repairing {left.count:,} documents")
            refused = repair(build, tables, settler, left, self.session(), caught_up=bool(result.caught_up))
            wait = max(self.asked.wait, LEAST_WAIT) if result.caught_up else 0.0
            left = settler.settle(result, left, wait, unclear)
            result.repaired, result.not_repaired = certain.count - left.count - unclear.count, refused.explained(left)
            if left.count and (altered := self._altered(settler.view)):
                # What is written is told all the same; what else was found goes by the table that was.
                result.not_repaired = Refused(altered).explained(left)
                result.undecide()
                break
        if result.repaired:
            clear_letters(self.pipeline, build, settler.view, certain, (left, unclear), self.progress)

    def _altered(self, view: View) -> str | None:
        """Why nobody knows whether a view's documents differ, if a table was altered; None if it was not."""
        try:
            self.tables.refuse_altered(view)
        except ShapeUnknown as error:
            return f"nobody knows whether it differs: {error.what}"
        return None

    # -- what is shared -----------------------------------------------------------------------------------------------

    @contextmanager
    def _settler(self, view: View, build: Opened, folder: Path) -> Iterator[Settler]:
        spark = self.session() if needs_spark(view) else None
        with holding(build, view) as held, opened_servers(build) as servers:
            frontier = Frontier(build, view, servers, self.progress)
            stays, expires = view.outlives_rows, may_have_expired(build)
            yield Settler(view, held, frontier, spark, folder, self.on_pause, stays=stays, expires=expires)

    def _folder(self) -> AbstractContextManager[Path]:
        """A folder for files that memory would be too small for."""
        return work_folder(state_dir(self.pipeline) / self.pipeline.name)

    def session(self) -> SparkSession:
        """Spark, started when it is first needed; it knows the warehouses if it is to repair them."""
        if self._spark is None:
            tables = [name for name, build in self.builds.items() if build.warehouse]
            self._spark = open_spark(self.pipeline, tables if self.asked.repair else [])
        return self._spark
