"""Views held against the tables before anything is captured or written: what `run` would refuse, all of it at once.

Names, keys, joins and types need the catalogue alone. Spark SQL needs Spark's analyser, in a session of ten seconds: it
is started only for expressions that it has not accepted before (``<state_dir>/<pipeline>/expressions.json``, with the
fields of each fold's state, which `mapping:` of a search sink may name).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, HeadwaterError, StateError, TableChanged
from cdc.fold import FoldView
from cdc.gather import Gathering, all_of, parts_of
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline, SearchSink
from cdc.resolve.names import error
from cdc.resolve.views import in_tables, refuse_unlike_tables, resolve_view, resolve_views, unlike_tables
from cdc.saying import Say
from cdc.stateful import StatefulView
from cdc.view import View
from cdc.waits import waiting_for
from connectors.postgres import connect
from connectors.tables.shapes import read_shapes
from operations.opened import going_on, kept_tables
from operations.rowstore import refuse_no_store
from operations.state.folder import register_of, state_dir
from operations.state.frozen import read_by, with_gone
from operations.state.history import keeps_history, root_tables, topics_here
from operations.state.shapes import known_shapes
from sinks.configure import check_mapping
from spark.disk.files import write_atomic
from spark.disk.made_of import as_defined, moved, outdated
from spark.disk.notes import glance
from spark.disk.state import Generation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Placed = tuple[Pipeline, View]


def tables_of(pipeline: Pipeline, *, all_of_them: bool) -> Catalogue:
    """The tables that views are held against, with the names that their columns have had: `run` goes by these too.

    Args:
        pipeline: the loaded file.
        all_of_them: refuse when one is not there; else it is left out, and for others to name.

    Raises:
        SourceError: Postgres does not answer, or refuses, or a table is not there.
    """
    places = {table: str(pipeline.locate(("source", "tables", n))) for n, table in enumerate(pipeline.source.tables)}
    with connect(pipeline.source, setup=bool(pipeline.source.setup_user)) as connection:
        found, shapes = read_shapes(connection, pipeline.source.tables, places, None if all_of_them else [])
    # Without a position: nothing that is held against these tables may be newer than they are.
    return known_shapes(pipeline).with_newer(shapes)[0].told_to(replace(found, lsn=0))


def refuse_wrong_views(pipeline: Pipeline, say: Say) -> None:
    """Refuse a file whose sinks `run` would refuse.

    Args:
        pipeline: the loaded file.
        say: told a line when it takes seconds.

    Raises:
        ConfigError: everything that is wrong with the file's views and sinks (terminal; nothing was changed).
        SourceError: Postgres does not answer, or refuses, or a table is not there.
    """
    wrong = wrong_in_file(pipeline, tables_of(pipeline, all_of_them=True), say, kept_too=False)
    if wrong:
        raise all_of(wrong)


def wrong_in_file(pipeline: Pipeline, catalogue: Catalogue, say: Say, *, kept_too: bool = True) -> list[ConfigError]:
    """What is wrong with the views and sinks as the file has them; single problems, in the file's order.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        say: told a line when it takes seconds.
        kept_too: also tables that a sink can't name, and goes on without: a warehouse that was begun with one (its flow
            fails), and a sink of all tables that was begun before the table came.
    """
    found = Gathering()
    placed: list[Placed] = []
    folding: list[tuple[str, SearchSink, Sequence[View]]] = []
    for name, sink in pipeline.sinks.items():
        with found.step():
            views = resolve_views(
                pipeline, catalogue, name, () if kept_too else _passed_over(pipeline, name, catalogue)
            )
            placed += [(pipeline, view) for view in views]
            if isinstance(sink, SearchSink):
                check_mapping(name, sink, views)
                if any(isinstance(view, FoldView) for view in views):
                    folding.append((name, sink, views))  # what one shows Spark tells
            odd = [view for view in views if not sink.can_name(view.name)]
            refuse_unlike_tables(pipeline, name, odd if kept_too or not odd else _not_kept(pipeline, name, odd))
            # `run` would go on without a history, and the log forgets.
            past = root_tables(pipeline, catalogue, name) if keeps_history(pipeline, name) else None
            # What comes by a pattern is passed over, for nobody's `apply` is to wait for whoever moved it.
            _refuse_moved(pipeline, name, catalogue, catalogue.tables if kept_too else pipeline.source.tables, past)
    resolved = {view.name for _, view in placed}
    for name in pipeline.views:
        if name not in resolved:
            with found.step():  # one that no sink keeps, or whose sink has other troubles
                placed.append((pipeline, _as_far_as_it_goes(pipeline, catalogue, name, found)))
    found.wrong += wrong_expressions(pipeline, placed, say, steady=True)
    for name, search, kept in folding:
        with found.step():
            check_mapping(name, search, _as_spark_found(pipeline, kept))
    for one in _generations(pipeline) if pipeline.row_store is None else ():
        with found.step(), suppress(StateError):  # a definition that can't be read is for others to name
            refuse_no_store(as_defined(pipeline, one), one)
    once = {str(part): part for part in found.wrong}
    return list(once.values())


def _refuse_moved(
    pipeline: Pipeline, sink: str, catalogue: Catalogue, tables: Collection[str], past: Collection[str] | None
) -> None:
    """Refuse a table that has come to another schema, where a warehouse would write it to the table, or its history to
    the history, of what it was: their places in the log are in another topic, and all of a history stops by one.
    ``past``: the tables whose history it keeps; None if it keeps none."""
    register, part = register_of(pipeline, sink), pipeline.sinks[sink]
    read = frozenset() if past is None else topics_here(pipeline, sink)
    with suppress(StateError):  # told by who opens it
        living = register.generation(register.living())
        # Else another one is to be built, under the names that the file gives it.
        if part.tables == "all" and part.form == "columns" and living.started and not outdated(pipeline, living):
            read |= {*read_by(living)}
    kept = catalogue.tables if past is None else past
    for former, table in moved(pipeline, read, [one for one in tables if one in kept], catalogue.tables.__contains__):
        raise error(
            pipeline,
            ("sinks", sink, "namespace"),
            f"{table} would be called in sink {sink} what {former} is: that one's table, or history, has the name",
            f"give sink {sink} another `namespace`: its tables are made anew there beside the living ones, which go on"
            f" without {table}; a history begins anew there, and the old one stays readable",
        )


def _generations(pipeline: Pipeline) -> Iterator[Generation]:
    """All that there are, also of those that nobody runs: what they have written has to be removed one day."""
    for sink in pipeline.sinks:
        register = register_of(pipeline, sink)
        yield from (register.generation(entry.number) for entry in register.entries())


def _not_kept(pipeline: Pipeline, sink: str, views: Sequence[View]) -> list[View]:
    """The views of tables that no generation has come to keep."""
    kept = _kept(pipeline, sink) or set()
    return [view for view in views if not kept & {view.table.qualified, view.table.name}]


def _kept(pipeline: Pipeline, sink: str) -> set[str] | None:
    """The tables that generations of a sink have come to keep; None if none has begun."""
    begun = register_of(pipeline, sink).begun()
    return {table for one in begun for table in kept_tables(pipeline, one)} if begun else None


def _passed_over(pipeline: Pipeline, sink: str, catalogue: Catalogue) -> set[str]:
    """Tables that a sink of all tables can't name, or not beside those that it keeps, and so did not take up when they
    came (``operations.schema.joining``). Nobody's ``apply`` is to wait for whoever made them."""
    spec = pipeline.sinks[sink]
    if spec.tables != "all" or (kept := _kept(pipeline, sink)) is None:
        return set()
    held = {name: table for name, table in catalogue.tables.items() if kept & {name, table.name}}
    unlike = unlike_tables(spec, {**held, **catalogue.tables}.values())  # what is held comes first
    return {
        table.qualified
        for table, other in unlike
        if table.qualified not in held and (other is None or other.qualified in held)
    }


def _as_far_as_it_goes(pipeline: Pipeline, catalogue: Catalogue, name: str, found: Gathering) -> View:
    """A view whose expressions can still be looked at when its list of columns is wrong."""
    try:
        return resolve_view(pipeline, catalogue, name)
    except ConfigError as error:
        model = pipeline.views[name]
        if model.joins:
            raise
        found.wrong += parts_of(error)
        bare = model.model_copy(update={"columns": (), "key": None})
        return resolve_view(pipeline.model_copy(update={"views": {name: bare}}), catalogue, name)


def wrong_in_generations(pipeline: Pipeline, catalogue: Catalogue, say: Say) -> list[tuple[str, int, HeadwaterError]]:
    """Generations that go on as they were defined, and do not fit the tables any more: sink, number, what is wrong."""
    wrong: list[tuple[str, int, HeadwaterError]] = []
    for sink in pipeline.sinks:
        for number in register_of(pipeline, sink).kept():
            generation = register_of(pipeline, sink).generation(number)
            if not generation.started:
                continue
            try:
                whole = with_gone(pipeline, sink, catalogue, read_by(generation))
                defined = going_on(pipeline, generation, whole)
                views = resolve_views(defined, whole, sink)
            except HeadwaterError as error:
                wrong.append((sink, number, error))
                continue
            errors = wrong_expressions(pipeline, [(defined, view) for view in views], say)
            if errors:
                wrong.append((sink, number, all_of(errors)))
            wrong += [(sink, number, error) for error in _displaced(pipeline, generation, catalogue, whole)]
    return wrong


def _displaced(
    pipeline: Pipeline, generation: Generation, catalogue: Catalogue, whole: Catalogue
) -> Iterator[TableChanged]:
    """Tables that a generation does not keep, for one that is gone, and that it goes on with, has the name. Where the
    file names them, it is outdated by that; of a warehouse of all tables the file is refused."""
    part, sink = pipeline.sinks[generation.sink], generation.sink
    if (part.tables == "all" and part.form == "columns") or outdated(pipeline, generation):
        return
    held = {table.name: name for name, table in whole.tables.items() if name not in catalogue.tables}
    for name, table in catalogue.tables.items():
        if table.name in held:
            yield TableChanged(
                f"sink {sink}: {held[table.name]} is {name} now, which has the same name in it",
                means="it goes on without that one's changes",
                fix=f"`headwater rebuild {pipeline.file or 'FILE'} {sink} --auto`",
            )


# -- Spark SQL --------------------------------------------------------------------------------------------------------


def wrong_expressions(
    pipeline: Pipeline, placed: Sequence[Placed], say: Say, *, steady: bool = False
) -> list[ConfigError]:
    """What Spark's analyser does not take of views that fit the tables.

    Args:
        pipeline: the loaded file.
        placed: each view with the pipeline that its errors quote.
        say: told a line when Spark has to be started.
        steady: nor what gives another value each time; what runs already goes on.
    """
    from operations.run.flows import analysed_view, refuse_moving
    from spark.join.child_expressions import needed

    asked = {}
    for defined, view in placed:
        if view.needs_spark or (isinstance(view, JoinedView) and needed(view)):
            asked[_question(pipeline, view, steady)] = (defined, view)
    accepted = _accepted(pipeline)
    found = Gathering()
    new = [q for q, (_, view) in asked.items() if q not in accepted or (isinstance(view, FoldView) and not accepted[q])]
    if new:
        say(f"starting Spark to read the expressions of {', '.join(sorted({asked[q][1].name for q in new}))}")
        right = dict[str, list[str]]()
        try:
            with waiting_for("Spark: reading the views' expressions"), analyser(pipeline) as spark:
                for question in new:
                    with found.step():
                        view = (refuse_moving if steady else analysed_view)(spark, *asked[question])[0]
                        right[question] = [*view.state] if isinstance(view, FoldView) else []
        except HeadwaterError as error:  # no Java here, say: who only applies needs none
            say(f"warning: the expressions were not read: {error.what}")
        if right:
            write_atomic(_path(pipeline), json.dumps(accepted | right, sort_keys=True))
    return found.wrong


def _path(pipeline: Pipeline) -> Path:
    return state_dir(pipeline) / pipeline.name / "expressions.json"


def _accepted(pipeline: Pipeline) -> dict[str, list[str]]:
    """What Spark has accepted: of a fold with the fields of its state, which an older Headwater did not note."""

    def of(said: Any) -> dict[str, list[str]]:
        return {str(one): [] for one in said} if isinstance(said, list) else dict(said)

    return glance(_path(pipeline), of, {})


def _as_spark_found(pipeline: Pipeline, views: Sequence[View]) -> list[View]:
    """The views, of which a fold that Spark has accepted has the fields of its state, without their types."""
    accepted = _accepted(pipeline)
    known = [accepted.get(_question(pipeline, view, True)) if isinstance(view, FoldView) else None for view in views]
    return [
        replace(view, state=dict.fromkeys(names, "")) if names and isinstance(view, FoldView) else view
        for view, names in zip(views, known, strict=True)
    ]


def _question(pipeline: Pipeline, view: View, steady: bool) -> str:
    """What is asked, as a hash: the answer depends on nothing else."""
    said = [version("pyspark"), version("headwater"), repr(view), sorted(_sql_settings(pipeline).items())]
    if isinstance(view, StatefulView) and in_tables(pipeline, view):
        said.append("in tables")
    if steady:  # what runs already may give another value each time, and was accepted so
        said.append("steady")
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]


def _sql_settings(pipeline: Pipeline) -> Mapping[str, str]:
    """The operator's settings of Spark SQL; catalogues and extensions need jars that are not loaded here."""
    settings = pipeline.engine.spark_conf
    without = ("spark.sql.extensions", "spark.sql.catalog.")
    return {n: v for n, v in settings.items() if n.startswith("spark.sql.") and not n.startswith(without)}


@contextmanager
def analyser(pipeline: Pipeline) -> Iterator[SparkSession]:
    """A session that reads Spark SQL and runs nothing; this process's own if it has one."""
    from pyspark.sql import SparkSession

    from spark.machine.session import build_session

    here = SparkSession.getActiveSession()
    if here is not None:
        yield here
        return
    spark = build_session(
        f"headwater {pipeline.name} check",
        master="local[1]",
        jars=None,
        log=state_dir(pipeline).absolute() / pipeline.name / "spark-check.log",
        conf=_sql_settings(pipeline),
    )
    try:
        yield spark
    finally:
        spark.stop()
