"""Where a pipeline's state is, and which of its sinks are meant. Imports nothing heavy: `status` is asked often."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from spark.register import Register


def chosen_sinks(pipeline: Pipeline, only: Sequence[str]) -> list[str]:
    """Names of the sinks to work on.

    Raises:
        ConfigError: a name that the pipeline file does not have.
    """
    for name in only:
        if name not in pipeline.sinks:
            raise ConfigError(f"no sink {name} in the pipeline", fix=f"choose from {', '.join(pipeline.sinks)}")
    return list(only) or list(pipeline.sinks)


def state_dir(pipeline: Pipeline) -> Path:
    """Where checkpoints and status files live."""
    return Path(pipeline.engine.state_dir)


def register_of(pipeline: Pipeline, sink: str) -> Register:
    """The register of a sink's generations."""
    return Register(state_dir(pipeline), pipeline.name, sink)
