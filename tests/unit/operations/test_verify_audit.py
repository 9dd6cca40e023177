"""An audit goes on when the disk was full for a moment, or is not to be written to."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import Pipeline, load
from operations.verify import audit as module
from operations.verify.audit import audit, metric_file
from operations.verify.verifier import Asked
from spark.disk.files import disk_full, write_atomic
from tests.support.lone_cache import FILE
from tests.unit.operations.test_verify_repair_parts import report

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state"))
    return load(path)


def audited(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, verified: Callable[[], Any]) -> list[str]:
    """What an audit says in two runs."""
    said, stop = list[str](), threading.Event()
    runs = iter((False, True))

    def once(*_: object, **__: object) -> Any:
        if next(runs):
            stop.set()
        return verified()

    monkeypatch.setattr(module, "verified", once)
    audit(pipeline, Asked(), 0.0, stop, said.append)
    return said


def test_a_verification_that_finds_no_room_for_its_files_is_made_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [FULL, report()]

    def verified() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    first, second = audited(pipeline, monkeypatch, verified)
    assert "could not verify: [Errno 28] No space left on device" in first and second.endswith(": equal")
    text = metric_file(pipeline).read_text()
    assert 'headwater_verify_runs_total{pipeline="p"} 2.0' in text
    assert 'headwater_verify_errors_total{pipeline="p"} 1.0' in text


@pytest.mark.parametrize("error", [disk_full(Path("/full")), PermissionError(errno.EACCES, "Permission denied")])
def test_metrics_that_can_not_be_written_are_written_the_next_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    errors = [error]

    def write(path: Path, text: str) -> None:
        if errors:
            raise errors.pop()
        write_atomic(path, text)

    monkeypatch.setattr(module, "write_atomic", write)
    first, told, second = audited(pipeline, monkeypatch, report)
    assert first.endswith(": equal") and second.endswith(": equal") and "could not write the metrics: " in told
    assert "headwater_verify_runs_total" in metric_file(pipeline).read_text()
