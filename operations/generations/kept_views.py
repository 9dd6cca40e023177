"""Views of generations that are kept, whatever the file says by now: what they need of the log stays in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.pipeline.views import View
from cdc.resolve.versions import kept_versions
from operations.state.folder import left_sinks, register_of
from spark.disk.made_of import views_of

log = logging.getLogger(__name__)


class Kept(NamedTuple):
    """A view of a generation that is kept, which is not the file's of that name.

    Attributes:
        sink, generation: whose it is.
        stage: of that generation.
        model: the view.
    """

    sink: str
    generation: int
    stage: str | None
    model: View


def with_kept_views(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the views of its sinks' generations beside those of the file: for the way in, which makes
    topics as all of them need it.

    A view that showed rows as they were is followed on in each generation that has it, and one that is put back is
    built of the log from its beginning: a topic that was compacted meanwhile would have lost versions for good. So it
    is with a sink that was let go of, until it is dropped: put back, it goes on from where it is.

    Args:
        pipeline: the loaded file.

    Returns:
        the same, with more views, which are named in words; sinks and all else as the file says.

    Raises:
        StateError: what a generation was made of can't be read, or a newer Headwater wrote it (terminal).
    """
    kept = {name: one.model for name, one in _kept(pipeline).items()}
    return pipeline.model_copy(update={"views": {**pipeline.views, **kept}}) if kept else pipeline


def kept_alone(pipeline: Pipeline, catalogue: Catalogue) -> dict[str, Mapping[str, Kept]]:
    """Tables of which all versions stay in the log only for generations that neither the file nor readers need.

    Args:
        pipeline: the loaded file.
        catalogue: the captured tables.

    Returns:
        table -> the views that they stay for, named in words.

    Raises:
        StateError: as ``with_kept_views``.
    """
    kept, needed = _kept(pipeline), kept_versions(pipeline, catalogue)
    found = kept_versions(
        pipeline.model_copy(update={"views": {name: one.model for name, one in kept.items()}}), catalogue
    )
    every = {table: {name: kept[name] for name in views} for table, views in found.items() if table not in needed}
    return {
        table: views
        for table, views in every.items()
        if all(one.stage == "previous" or one.sink not in pipeline.sinks for one in views.values())
    }


def _kept(pipeline: Pipeline) -> dict[str, Kept]:
    found = dict[str, Kept]()
    for sink in (*pipeline.sinks, *left_sinks(pipeline)):
        try:
            found |= _kept_by(pipeline, sink)
        except (HeadwaterError, KeyError) as error:
            if sink in pipeline.sinks:
                raise
            # What is left of a sink that nobody asks for any more stops no pipeline.
            log.warning("what sink %s, which the file has no more, was made of can't be read: %s", sink, error)
    return found


def _kept_by(pipeline: Pipeline, sink: str) -> dict[str, Kept]:
    register, found = register_of(pipeline, sink), {}
    for generation in register.begun():
        for view, model in views_of(generation).items():
            if model != pipeline.views.get(view):
                number = generation.number
                name = f"{view} in generation {number} of sink {sink}"
                found[name] = Kept(sink, number, register.stage(number), model)
    return found
