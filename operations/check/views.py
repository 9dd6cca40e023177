"""``headwater check``, the views: do those of the file fit the tables, and those that sinks go on with?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.saying import Say
from connectors.preflight import Answer, Check, Finding, Level
from operations.gate import tables_of, wrong_in_file, wrong_in_generations
from operations.generations.kept_views import Kept, kept_alone
from operations.run.refusals import with_way_out
from operations.state.folder import register_of

VIEWS = Check("views", "the views fit the tables", lambda site: ())
GENERATIONS = Check("generations", "what the sinks were made of still fits the tables", lambda site: ())


def checked_views(pipeline: Pipeline, say: Say) -> Iterator[Answer]:
    """The answers of both checks; a table that is not there is only the trouble of the views that name it.

    Args:
        pipeline: the loaded file.
        say: told a line when it takes seconds.
    """
    try:
        catalogue = tables_of(pipeline, all_of_them=False)
    except HeadwaterError as error:
        for check in (VIEWS, GENERATIONS):
            yield Answer(check, skipped=f"needs the tables: {error.what}")
        return
    yield _answer(VIEWS, pipeline, catalogue, say)
    yield _answer(GENERATIONS, pipeline, catalogue, say)


def _answer(check: Check, pipeline: Pipeline, catalogue: Catalogue, say: Say) -> Answer:
    of = _of_file if check is VIEWS else _of_generations
    try:
        return Answer(check, tuple(of(pipeline, catalogue, say)))
    except HeadwaterError as error:
        return Answer(check, error=error.what)


def _of_file(pipeline: Pipeline, catalogue: Catalogue, say: Say) -> Iterator[Finding]:
    for wrong in wrong_in_file(pipeline, catalogue, say):
        yield Finding(Level.ERROR, "views", wrong.what, wrong.fix)


def _of_generations(pipeline: Pipeline, catalogue: Catalogue, say: Say) -> Iterator[Finding]:
    for sink, number, error in wrong_in_generations(pipeline, catalogue, say):
        living = register_of(pipeline, sink).living() == number
        fix = with_way_out(pipeline, sink, number, error).fix
        yield Finding(Level.ERROR if living else Level.WARNING, sink, error.what, fix)
    for table, views in kept_alone(pipeline, catalogue).items():
        topic, names = pipeline.topic(table), ", ".join(views)
        ways = " and ".join(dict.fromkeys(_way_out(pipeline, one) for one in views.values()))
        so = f"topic {topic} keeps all versions of its rows, for view {names} alone"
        yield Finding(Level.WARNING, topic, so, f"if nobody is to go back to it: {ways}; then `headwater apply FILE`")


def _way_out(pipeline: Pipeline, kept: Kept) -> str:
    if kept.sink in pipeline.sinks:
        return f"`headwater retire FILE {kept.sink} --generation {kept.generation}`"
    return f"`headwater drop --sink {kept.sink}`, with a file that has that sink"
