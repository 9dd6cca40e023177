"""Threads that do work side by side, and keep no process from ending."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from cdc.hands import Hands


def test_so_much_is_done_at_one_time_and_no_more() -> None:
    hands, meet, more = Hands(2, "two"), threading.Barrier(2), threading.Event()
    both = [hands.submit(meet.wait, 10) for _ in range(2)]
    assert sorted(one.result(10) for one in both) == [0, 1]
    held = [hands.submit(more.wait, 10) for _ in range(2)]
    third = hands.submit(threading.current_thread)
    assert not third.done() and third.cancel()
    more.set()
    hands.close()
    assert [one.result() for one in held] == [True, True]
    with pytest.raises(CancelledError):
        third.result()


def test_what_fails_is_told_and_the_next_is_done() -> None:
    hands = Hands(1, "one")
    failed, done = hands.submit(int, "x"), hands.submit(int, "7")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(10)
    assert done.result(10) == 7
    hands.close()
    assert not hands._threads[0].is_alive()


def test_a_process_ends_while_a_server_answers_none_of_its_indices() -> None:
    """Those of a sink are made ready side by side."""
    code = """
import threading
from sinks.elasticsearch.index import at_once
begun = threading.Event()
work = lambda _: [begun.set(), threading.Event().wait(600)]
threading.Thread(target=at_once, args=(work, [1, 2]), daemon=True).start()
assert begun.wait(10)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 0, ended.stderr
