"""``headwater check``, the way out: do the sinks' servers and the row store answer, would a search server make the
indices, and has Spark what views need?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cdc.errors import ConfigError, HeadwaterError, SinkRefused
from cdc.pipeline import Pipeline, SearchSink
from cdc.resolve.views import resolve_views
from connectors.preflight import Answer, Check, Finding, Level
from operations.freshness.answering import moving, open_living, strays
from operations.gate import tables_of
from operations.rowstore import reading_settings
from operations.run.session import jars_of
from operations.state.folder import register_of
from sinks.configure import plain_config, sink_config
from sinks.elasticsearch.rehearsal import of_others, refusals
from sinks.factory import open_sink
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.machine.jars import BUILD_OWN_JAR, OWN_JAR, find_jars, of_another, told_of_another

SINKS = Check("sinks", "the sinks' servers and the row store answer", lambda site: ())
INDICES = Check("indices", "the search servers would make the indices as they are defined", lambda site: ())
CLASSES = Check("classes", "Spark has our own classes, by which folds, windows and matches keep state", lambda site: ())
# A server that is up and busy takes seconds; one that is gone refuses at once.
PATIENCE = {"request_timeout_seconds": 5.0, "give_up_seconds": 0.2}


def checked_sinks(pipeline: Pipeline) -> Iterator[Answer]:
    """One answer for all servers that `run` writes to, one for indices, one for Spark if a view keeps a state, or our
    classes there are another Headwater's. Changes nothing.

    Args:
        pipeline: the loaded file.
    """
    found = [finding for name, ask in _servers(pipeline).items() if (finding := _finding(name, ask)) is not None]
    yield Answer(SINKS, tuple(found))
    away = {finding.about for finding in found}
    search = {name: sink for name, sink in pipeline.sinks.items() if isinstance(sink, SearchSink)}
    if asked := {name: sink for name, sink in search.items() if f"sink {name}" not in away}:
        yield _indices(pipeline, asked)
    stateful = [name for name, view in pipeline.views.items() if view.stateful is not None]
    classes = tuple(_classes(pipeline, stateful))
    if stateful or classes:
        yield Answer(CLASSES, classes)


def _servers(pipeline: Pipeline) -> dict[str, Callable[[], str]]:
    """What a message names -> asks that server, and says what it does not tell."""
    documents = [name for name, sink in pipeline.sinks.items() if sink.form != "columns"]
    asked: dict[str, Callable[[], str]] = {f"sink {name}": partial(_ask_sink, pipeline, name) for name in documents}
    joined = any(view.joins for view in pipeline.views.values())
    if joined and pipeline.row_store is not None:
        asked["row_store"] = partial(_ask_store, pipeline)
    return asked


def _ask_sink(pipeline: Pipeline, name: str) -> str:
    view = next(iter(pipeline.sinks[name].view_names), name)  # any name will do: whether it is there does not matter
    sink = open_sink({**plain_config(pipeline, name, 1, [view]), **PATIENCE})
    try:
        sink.there(view)
    finally:
        sink.close()
    if isinstance(pipeline.sinks[name], SearchSink):
        _refuse_astray(pipeline, name)
    return ""


def _refuse_astray(pipeline: Pipeline, name: str) -> None:
    """Nothing fails and nothing lags where readers search by an alias that is gone, or leads elsewhere.

    Raises:
        SinkRefused: for the finding.
    """
    register = register_of(pipeline, name)
    number = register.living()
    if not register.generation(number).views() or moving(pipeline, name):
        return
    opened = open_living(pipeline, name, number, PATIENCE)
    if opened is None:
        return
    views, sink = opened
    try:
        for view, shown in strays(views, sink, number):
            raise SinkRefused(
                f"sink {name}, view {view}: the alias that readers use leads to "
                + (f"generation {shown}" if shown else "no generation of it")
                + f", and generation {number} is kept",
                fix="`headwater run` sets one that is gone again; one that leads elsewhere: lead it back",
            )
    finally:
        sink.close()


def _indices(pipeline: Pipeline, sinks: Mapping[str, SearchSink]) -> Answer:
    try:
        catalogue = tables_of(pipeline, all_of_them=False)
    except HeadwaterError as error:
        return Answer(INDICES, skipped=f"needs the tables: {error.what}")
    found = []
    for name, sink in sinks.items():
        try:
            views = resolve_views(pipeline, catalogue, name)
            config = sink_config(name, sink, views, {}, pipeline=pipeline.name)
        except ConfigError:
            continue  # the check «views» says so
        try:
            refused, others = refusals({**config, **PATIENCE}), of_others({**config, **PATIENCE})
        except ConfigError as error:  # what `run` would be told as well, whichever server answers
            found.append(Finding(Level.ERROR, f"sink {name}", error.what, error.fix))
            continue
        except HeadwaterError as error:
            return Answer(INDICES, skipped=error.what)
        for view, why in refused.items():
            what = f"sink {name}, view {view}: the index would be refused: {why}"
            at = pipeline.locate(("sinks", name, "mapping" if sink.mapping else "settings"))
            fix = f"correct `mapping:` or `settings:` of the sink ({at}), or the view"
            found.append(Finding(Level.ERROR, f"sink {name}", what, fix))
        for view, (index, theirs, fix) in others.items():
            what = f"sink {name}, view {view}: index {index} was made by {theirs}, and two can't have one name"
            found.append(Finding(Level.ERROR, f"sink {name}", what, fix))
    return Answer(INDICES, tuple(found))


def _ask_store(pipeline: Pipeline) -> str:
    store = RedisRowStore(StoreSettings(**reading_settings(pipeline) | PATIENCE))
    try:
        return store.refuse_evicting()
    finally:
        store.close()


def _finding(name: str, ask: Callable[[], str]) -> Finding | None:
    try:
        unseen = ask()
    except HeadwaterError as error:
        if not error.transient:
            return Finding(Level.ERROR, name, error.what, error.fix)
        who = "joined views" if name == "row_store" else "its views"
        fix = f"start it (`headwater up` starts the local ones), or correct its address in {name}"
        return Finding(Level.WARNING, name, f"{error.what}: {who} would wait for it, all else goes on", fix)
    return Finding(Level.WARNING, name, unseen) if unseen else None


def _classes(pipeline: Pipeline, views: list[str]) -> Iterator[Finding]:
    """Of our own classes for Spark: that they are there if views need them, and of this Headwater if they are."""
    try:
        jars = find_jars(jars_of(pipeline))
    except ConfigError as error:
        if views:  # else `run` says so
            yield Finding(Level.ERROR, "spark", error.what, error.fix)
        return
    other = of_another(jars)
    if other is not None:
        yield Finding(Level.WARNING, "spark", told_of_another(other), BUILD_OWN_JAR)
    elif views and not any(jar.name == OWN_JAR for jar in jars):
        what = f"{OWN_JAR} is not among Spark's jars: {', '.join(views)} would fail"
        yield Finding(Level.ERROR, "spark", what, BUILD_OWN_JAR)
