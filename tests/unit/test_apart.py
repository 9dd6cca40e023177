"""Work in a process of its own: its lines, its result and its error come back; it ends when nobody wants it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from cdc.errors import HeadwaterError, SinkRefused
from operations.apart import Apart

Say = Callable[[str], None]


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


def test_it_ends_with_the_block_that_wants_it() -> None:
    with Apart(wait) as work:
        while not (said := work.lines()):
            time.sleep(0.05)
        assert not work.ended()
    assert not psutil.pid_exists(int(said[0]))
    work.end()  # again is no harm
