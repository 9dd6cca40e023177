"""Work in a process of its own: its lines, its result and its error come back; it ends when nobody wants it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cdc.errors import HeadwaterError, SinkRefused
from operations.child_process import Apart, end_all

Say = Callable[[str], None]
ROOT = Path(__file__).parents[3]


def add(say: Say, one: int, other: int) -> tuple[int, int]:
    say("one line")
    say("another")
    return one + other, os.getpid()


def refuse(_say: Say) -> None:
    raise SinkRefused("the table is gone", means="nothing was written", fix="`headwater rebuild`")


def stumble(_say: Say) -> None:
    raise KeyError("nobody thought of this")


def vanish(_say: Say) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait(say: Say) -> None:
    say(str(os.getpid()))
    time.sleep(60)


def close(say: Say, done: Path) -> None:
    try:
        say("here")
        time.sleep(60)
    finally:
        time.sleep(0.5)
        done.touch()


def test_what_it_says_and_returns_comes_back() -> None:
    with Apart(add, 2, 3) as work:
        total, pid = work.result()
        assert work.lines() == ["one line", "another"] and work.lines() == []
        assert total == 5 and pid != os.getpid() and work.ended()


def test_an_error_of_ours_keeps_its_class_and_its_words() -> None:
    with Apart(refuse) as work, pytest.raises(SinkRefused) as caught:
        work.result()
    error = caught.value
    assert (error.what, error.means, error.fix) == ("the table is gone", "nothing was written", "`headwater rebuild`")


@pytest.mark.parametrize(("work", "told"), [(stumble, "KeyError: 'nobody"), (vanish, r"ended without a word .*-9")])
def test_any_other_end_is_an_error_with_a_reason(work: Callable[[Say], None], told: str) -> None:
    with Apart(work) as apart, pytest.raises(HeadwaterError, match=told):
        apart.result()


def deaf(say: Say) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(str(os.getpid()))
    time.sleep(60)


def test_one_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.child_process.END_SECONDS", 0.2)
    with Apart(deaf) as work:
        while not (said := work.lines()):
            time.sleep(0.05)
    assert not psutil.pid_exists(int(said[0]))


def test_several_end_in_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    works = [Apart(deaf) for _ in range(4)]
    said = [line for work in works for line in _first(work)]
    monkeypatch.setattr("operations.child_process.END_SECONDS", 3.0)
    began = time.monotonic()
    end_all(works)
    assert 3.0 <= time.monotonic() - began < 9.0  # and not four times three
    assert not any(psutil.pid_exists(int(pid)) for pid in said)


def _first(work: Apart[None]) -> list[str]:
    while not (said := work.lines()):
        time.sleep(0.05)
    return said


OWNER = """
    import time
    from operations.child_process import Apart
    from tests.unit.operations.test_apart import wait
    if __name__ == "__main__":
        work = Apart(wait)
        while not (said := work.lines()):
            time.sleep(0.05)
        print(said[0], flush=True)
        time.sleep(60)
"""


def test_it_ends_with_the_process_that_wants_it(tmp_path: Path) -> None:
    """Killed, it can't say so."""
    program = tmp_path / "owner.py"
    program.write_text(textwrap.dedent(OWNER))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen([sys.executable, program], env=environment, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    work = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    work.wait(10)


def test_it_ends_with_the_block_that_wants_it() -> None:
    with Apart(wait) as work:
        while not (said := work.lines()):
            time.sleep(0.05)
        assert not work.ended()
    assert not psutil.pid_exists(int(said[0]))
    work.end()  # again is no harm


def test_who_is_asked_twice_to_end_still_closes_what_is_open(tmp_path: Path) -> None:
    """A Java that was just being started lived on when the second signal broke off what would have ended it."""
    work = Apart(close, tmp_path / "done")
    while not work.lines():
        time.sleep(0.01)
    work.ask()
    time.sleep(0.2)
    work.end()
    assert (tmp_path / "done").exists()
