"""Erasure beside others: two of them at once, and a generation that begins while one works."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc.errors import StateError
from operations.erase import eraser
from operations.erase.eraser import Eraser, Options
from operations.erase.note import Note
from tests.support.erase_cases import pipeline, subject

# -- one at a time -----------------------------------------------------------------------------------------------------

HOLDS = """
import sys, time
from pathlib import Path
from operations.erase.note import Note
from tests.support.erase_cases import pipeline
with Note(pipeline(Path(sys.argv[1]))).alone():
    print("held", flush=True)
    time.sleep(60)
"""


def eraser_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, act: bool = True) -> Eraser:
    """One whose servers are not there, and that finds nothing."""
    monkeypatch.setattr(eraser, "builds_of", lambda _: [])
    made = Eraser(subject(tmp_path), Options(act=act))
    monkeypatch.setattr(made, "_look", lambda _: SimpleNamespace(places=lambda _: []))
    monkeypatch.setattr(made, "_why_not", lambda _: ([], []))
    return made


def test_a_second_erasure_is_refused_before_it_puts_back_what_the_first_one_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgot the first one's note and noted its settings as the topic's own, which so stayed for good."""
    second, back = eraser_of(tmp_path, monkeypatch), list[str]()
    monkeypatch.setattr(second._kafka, "alter", lambda topic, _: back.append(topic))
    first = Note(pipeline(tmp_path))
    noted = {"topics": {"t": {"min.compaction.lag.ms": "3600000"}}}
    with first.alone():
        first.begin("topics", "t", noted["topics"]["t"])
        with pytest.raises(StateError, match="another erasure of pipeline p is at work"):
            second.run()
        assert not back and first.read() == noted
        assert eraser_of(tmp_path, monkeypatch, act=False).run()["found"] == 0, "who only looks is let"
    with first.alone():
        pass


def test_one_that_was_killed_holds_up_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(StateError, match="at work"), Note(pipeline(tmp_path)).alone():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    with Note(pipeline(tmp_path)).alone():
        pass
