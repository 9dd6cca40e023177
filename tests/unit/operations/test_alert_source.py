"""Of several processes of `run` one tells of the source and of the WAL that its slot keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.pipeline import Pipeline, load
from connectors.wal.budget import judge
from operations.freshness.keeper import Keeper
from operations.state.folder import register_of
from operations.state.wal import Window, write_window
from operations.status.alert import Alerting
from tests.support.lone_cache import TWO, written
from tests.unit.operations.test_other_host import ELSEWHERE, held, said

ALL = {"sink cache", "sink other", "source", "wal"}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = load(written(tmp_path, TWO))
    write_window(made, Window(), judge(retained=850, budget=1000, limit=None))
    return made


def looks(pipeline: Pipeline, *only: str) -> set[str]:
    """What a process that runs these sinks tells of."""
    return set(Alerting(Keeper(pipeline, only), print)._look(pipeline))


def flow(pipeline: Pipeline, state: str, ago: float = 0.0, sink: str = "cache") -> None:
    folder = register_of(pipeline, sink).generation().flow_folder("main")
    folder.mkdir(parents=True, exist_ok=True)
    said(state, ago).write(folder)


def test_the_one_with_the_first_sink_tells(pipeline: Pipeline) -> None:
    assert looks(pipeline) == ALL and looks(pipeline, "cache") == ALL - {"sink other"}
    flow(pipeline, "running")
    assert looks(pipeline, "other") == {"sink other"}
    flow(pipeline, "retrying")  # for servers, before it has any lease
    assert looks(pipeline, "other") == {"sink other"}
    flow(pipeline, "running", ago=19.0)
    register_of(pipeline, "cache").generation().lease._write(held(**ELSEWHERE))
    assert looks(pipeline, "other") == {"sink other"} and looks(pipeline) == ALL


def test_one_of_two_tells_that_go_by_files_of_another_order(pipeline: Pipeline) -> None:
    """Each took the other for the one with the first sink: nobody told."""
    turned = pipeline.model_copy(update={"sinks": dict(reversed(pipeline.sinks.items()))})
    for sink in pipeline.sinks:
        flow(pipeline, "running", sink=sink)
    assert looks(turned, "cache") == ALL - {"sink other"} and looks(pipeline, "other") == {"sink other"}
    assert looks(pipeline, "cache") == ALL - {"sink other"} and looks(turned, "other") == {"sink other"}


@pytest.mark.parametrize(("state", "ago"), [(None, 0.0), ("stopped", 0.0), ("failed", 0.0), ("running", 999.0)])
def test_where_that_one_has_ended_or_never_was_the_next_one_tells(
    pipeline: Pipeline, state: str | None, ago: float
) -> None:
    """Nobody told that the connector was dead, or that the disk filled, once the one process had ended."""
    if state is not None:
        flow(pipeline, state, ago)
    assert looks(pipeline, "other") == ALL - {"sink cache"}


def test_where_nobody_can_read_whether_it_lives_it_is_told(pipeline: Pipeline) -> None:
    (register_of(pipeline, "cache").folder / "generations.json").mkdir(parents=True)
    assert looks(pipeline, "other") == ALL - {"sink cache"}
