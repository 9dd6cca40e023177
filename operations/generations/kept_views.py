"""Views of generations that are kept, whatever the file says by now: what they need of the log stays in it."""

from __future__ import annotations

from cdc.pipeline import Pipeline
from operations.state.folder import register_of
from spark.disk.made_of import views_of


def with_kept_views(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the views of its sinks' generations beside those of the file: for the way in, which makes
    topics as all of them need it.

    A view that showed rows as they were is followed on in each generation that has it, and one that is put back is
    built of the log from its beginning: a topic that was compacted meanwhile would have lost versions for good.

    Args:
        pipeline: the loaded file.

    Returns:
        the same, with more views, which are named in words; sinks and all else as the file says.

    Raises:
        StateError: what a generation was made of can't be read, or a newer Headwater wrote it (terminal).
    """
    kept = {
        f"{view} in generation {generation.number} of sink {sink}": model
        for sink in pipeline.sinks
        for generation in register_of(pipeline, sink).begun()
        for view, model in views_of(generation).items()
        if model != pipeline.views.get(view)
    }
    return pipeline.model_copy(update={"views": {**pipeline.views, **kept}}) if kept else pipeline
