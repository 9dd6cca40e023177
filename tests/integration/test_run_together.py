"""Two pipelines in one process: one Spark, and neither is the other's business."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.local import ready
from tests.support.migrating import Migrating, Rows

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900), pytest.mark.sampled(part=0)]


def made(folder: Path, *sinks: str) -> Migrating:
    folder.mkdir()
    return Migrating(ready(), folder, sinks=sinks)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Migrating, Migrating]]:
    """Both have a warehouse of one name, at different places, and flows of one name."""
    first, second = made(tmp_path / "first", "cache", "warehouse"), made(tmp_path / "second", "cache", "warehouse")
    try:
        first.prepare()
        try:
            second.prepare()
            yield first, second
        finally:
            first.stop()  # the one process of both
            second.close()
    finally:
        first.close()


def in_step(pipeline: Migrating) -> None:
    pipeline.wait(lambda report: all(one["lag_events"] == 0 and one["state"] == "running" for one in report["sinks"]))


def test_two_pipelines_in_one_process(two: tuple[Migrating, Migrating]) -> None:
    first, second = two
    first.start(str(second.file))
    in_step(second)
    assert first.runner is not None
    family = psutil.Process(first.runner.pid).children(recursive=True)
    assert [one.name() for one in family].count("java") == 1
    with Rows(first.conninfo), Rows(second.conninfo):
        time.sleep(3)
    first.assert_equal()
    second.assert_equal()
    first.kill()
    with Rows(first.conninfo), Rows(second.conninfo):
        time.sleep(1)
    first.launch(str(second.file))
    first.assert_equal()
    second.assert_equal()
    assert first.runner is not None
    os.kill(first.runner.pid, signal.SIGTERM)
    assert first.runner.wait(60) == 0, first.log()
    first.runner = None
    assert {sink["state"] for one in two for sink in one.status()["sinks"]} == {"stopped"}


def test_one_that_can_not_be_run_does_not_end_the_other(tmp_path: Path) -> None:
    good, bad = made(tmp_path / "good", "cache"), made(tmp_path / "bad", "cache")
    try:
        good.prepare()
        bad.conninfo = ""
        bad.write_pipeline()  # of a database that is not there
        good.start(str(bad.file))
        with Rows(good.conninfo):
            time.sleep(1)
        good.assert_equal()
        assert f'database "{bad.name}" does not exist' in good.log(), good.log()
        assert good.runner is not None
        os.kill(good.runner.pid, signal.SIGTERM)
        assert good.runner.wait(60) == 1, good.log()
        good.runner = None
    finally:
        good.close()
