"""What `run` gives to whoever watches for caches that have forgotten: an engine without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cdc.pipeline import Pipeline
from operations.state.folder import register_of


class Builds:
    """The generations of the cache that are kept: all are held here."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __iter__(self) -> Iterator[Any]:
        register = register_of(self.pipeline, "cache")
        for number in register.kept():
            yield SimpleNamespace(sink="cache", generation=register.generation(number))


def engine_of(pipeline: Pipeline, stopped: list[Path]) -> Any:
    """An engine that holds all generations of the sink ``cache``, and notes the folders of flows that it stops."""
    runner = SimpleNamespace(running=[], fail=lambda folder, _reason: stopped.append(folder))
    return SimpleNamespace(paused={}, runner=runner, builds=Builds(pipeline))
