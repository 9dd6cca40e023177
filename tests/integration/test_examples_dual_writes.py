"""The dual-write failure on the real servers: by hand it must happen, or headwater's half means nothing."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.common import Passwords, Server, drop_database, ensure_database
from examples.dual_writes import __main__ as story
from examples.dual_writes import load
from examples.dual_writes.names import BY_HAND_INDEX, BY_HAND_PREFIX, OWNER
from examples.dual_writes.stores import Stores

pytestmark = pytest.mark.stack
RACED = [4, 5, 6, 7]
CRASHED = [8, 9, 12]


@pytest.fixture(scope="module")
def server() -> Server:
    """Every server: as the environment says, else the local stack, started if need be."""
    if "HEADWATER_ELASTICSEARCH" not in os.environ:
        from tests.support.servers import servers

        stack = servers()
        stack.up()
        os.environ.update(stack.endpoints.environment())
    return Server.from_environment()


@pytest.fixture
def shelf(server: Server) -> Iterator[str]:
    name = f"dual_writes_test_{secrets.token_hex(4)}"
    info = ensure_database(server, name, OWNER)
    load.reset(info)
    yield info
    drop_database(server, name)


@pytest.fixture
def stores() -> Iterator[Stores]:
    mine = Stores.connect(BY_HAND_INDEX, BY_HAND_PREFIX)
    yield mine
    mine.search.options(ignore_status=404).indices.delete(index=BY_HAND_INDEX)
    mine.close()


def test_dual_writes_diverge_exactly_where_raced_and_crashed(
    shelf: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "SETTLE_S", 0.5)
    assert story.by_hand(shelf) == RACED + CRASHED
    assert story.afterwards(shelf) == RACED + CRASHED
    database, search, cache = load.in_database(shelf), stores.in_search(), stores.in_cache()
    assert search == cache
    assert (database[4]["price"], search[4]["price"]) == ("39.00", "45.00")  # the last commit is not the last put
    assert (database[6]["stock"], search[6]["stock"]) == (98, 99)
    assert 7 not in database and 7 in search  # a ghost
    assert 9 not in database and 9 in cache
    assert 12 in database and 12 not in search


def test_the_load_gives_the_same_database_whoever_fills_the_stores(shelf: str, stores: Stores) -> None:
    stores.clear()
    load.run(shelf, stores, lambda line: None)
    by_hand = load.in_database(shelf)
    load.reset(shelf)
    assert len(load.in_database(shelf)) == len(load.SHELF)
    load.run(shelf, None, lambda line: None)
    assert load.in_database(shelf) == by_hand


def test_a_race_in_the_other_order_is_harmless(shelf: str, stores: Stores) -> None:
    """What breaks it is the order and nothing else: the test of the test."""
    stores.clear()
    race = load.RACES[0]
    load.publish(stores, race.alice, load.commit(shelf, race.alice))
    load.publish(stores, race.bob, load.commit(shelf, race.bob))
    assert stores.in_search()[4] == load.in_database(shelf)[4]


def test_the_crash_is_a_real_kill(shelf: str) -> None:
    """The victim commits and then waits; the signal ends it, not its own code."""
    command = [sys.executable, "-m", "examples.dual_writes.victim", "0", "database-only"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdin is not None and victim.stdout is not None
        victim.stdin.write(shelf + "\n")
        victim.stdin.flush()
        assert victim.stdout.readline() == "committed\n"
        assert victim.poll() is None
        assert load.in_database(shelf)[8]["price"] == "88.00"
        victim.kill()
        assert victim.wait(10) == -signal.SIGKILL


@pytest.mark.sampled
def test_the_whole_story(server: Server, tmp_path: Path) -> None:
    """Apply, run, verify and drop as commands; a home of its own, for the state of an earlier run must not matter."""
    env = {**os.environ, **Passwords.load().as_environment(), "HEADWATER_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "examples.dual_writes"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DUAL WRITES OK" in done.stdout.splitlines()[-1]
    assert "every sink equals Postgres" in done.stdout
    assert "still there" not in done.stderr
