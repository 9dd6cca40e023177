"""An audit goes on when the disk was full for a moment, or is not to be written to, or a table was altered."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, load
from operations.verify import audit as module
from operations.verify.audit import audit, metric_file
from operations.verify.verifier import Asked
from spark.disk.files import disk_full, write_atomic
from tests.support.lone_cache import written
from tests.unit.operations.test_verify_repair_parts import report

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load(written(tmp_path))


class Ends(threading.Event):
    """Asks an audit to stop after two runs; what it has written by then is there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.runs, self.text = path, 0, ""

    def wait(self, timeout: float | None = None) -> bool:
        self.runs += 1
        self.text = self.path.read_text() if self.path.exists() else ""
        if self.runs == 2:
            self.set()
        return self.is_set()


def audited(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, verified: Callable[[], Any]) -> tuple[list[str], str]:
    """What an audit says in two runs, and what its file holds before it ends."""
    said, stop = list[str](), Ends(metric_file(pipeline))
    monkeypatch.setattr(module, "verified", lambda *_, **__: verified())
    audit(pipeline, Asked(), 0.0, stop, said.append)
    return said, stop.text


def in_turn(*answers: Any) -> Callable[[], Any]:
    """Gives one after the other, or raises it."""
    left = list(answers)

    def verified() -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return verified


def test_a_verification_that_finds_no_room_for_its_files_is_made_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, second), text = audited(pipeline, monkeypatch, in_turn(FULL, report()))
    assert "could not verify: [Errno 28] No space left on device" in first and second.endswith(": equal")
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
    (first, told, second), text = audited(pipeline, monkeypatch, report)
    assert first.endswith(": equal") and second.endswith(": equal") and "could not write the metrics: " in told
    assert "headwater_verify_runs_total" in text


def test_what_is_asked_for_in_vain_ends_it_and_a_table_that_is_altered_later_does_not(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ALTER TABLE ended it for good, and its last result stood as if it were of today."""
    gone = ConfigError("view v names a column that is not there")
    (first, second), text = audited(pipeline, monkeypatch, in_turn(report(), gone))
    assert first.endswith(": equal") and "could not verify: view v names a column" in second
    assert 'headwater_verify_errors_total{pipeline="p"} 1.0' in text
    with pytest.raises(ConfigError):
        audited(pipeline, monkeypatch, in_turn(gone))


def test_what_it_has_written_goes_as_it_is_told_to_stop(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be proved for ever that all is equal."""
    _, text = audited(pipeline, monkeypatch, report)
    assert 'headwater_verify_equal{pipeline="p"} 1.0' in text and not metric_file(pipeline).exists()
