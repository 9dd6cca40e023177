"""A lock is refused to whoever begins only where somebody works under it: to look at it takes it for a moment, too."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from cdc.errors import StateError
from cdc.pipeline import loads
from operations.state import alone
from operations.state.alone import ERASING, is_held
from operations.state.folder import pipeline_folder
from tests.support.lone_cache import FILE

BUSY = StateError("somebody is at work")


def test_who_looks_just_now_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `apply` or `erase` that began in that moment was refused for good."""
    monkeypatch.setattr(alone, "LOOK_SECONDS", 30.0)
    made = loads(FILE.format(folder=tmp_path), "p.yaml")
    with alone.alone(made, ERASING, BUSY):
        assert is_held(made, ERASING)
    with (pipeline_folder(made) / ERASING).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with alone.alone(made, ERASING, BUSY):
            assert is_held(made, ERASING)
    assert not is_held(made, ERASING)


def test_who_works_is(tmp_path: Path) -> None:
    made = loads(FILE.format(folder=tmp_path), "p.yaml")
    with (
        alone.alone(made, ERASING, BUSY),
        pytest.raises(StateError, match="at work"),
        alone.alone(made, ERASING, BUSY),
    ):
        pytest.fail("both have it")
