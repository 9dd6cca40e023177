"""A subscriber while all between it and Postgres is killed: each change once, and in the end what Postgres has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.local import ready
from tests.support.migrating import Rows
from tests.support.pushing import Coming, Pushing, broken
from tests.support.serving import Server

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

SETTLE_SECONDS = 60.0


def test_nothing_is_missed_and_nothing_comes_twice_whatever_is_killed(tmp_path: Path) -> None:
    """Writer -> Postgres -> run (killed twice) -> Redis -> serve (killed once) -> a client with Last-Event-ID."""
    made = Pushing(ready(), tmp_path, sinks=("cache",), views={"thing": {"root": "things"}})
    with made.running(), Server(made.file, made.environment()) as server:
        with Coming(f"{server.url}/v1/stream/{made.view('thing')}") as client:
            client.more(0)
            with Rows(made.conninfo):
                client.more(100)
                made.kill()
                made.launch()
                client.more(100)
                server.kill()
                time.sleep(1)  # changes come meanwhile
                server.start()
                client.more(100)
                made.kill()
                made.launch()
                client.more(100)
            until = time.monotonic() + SETTLE_SECONDS
            truth = made.spares()
            while (state := {key: one and one["spare"] for key, one in client.state().items()}) != truth:
                assert time.monotonic() < until, (len(state), len(truth), state.items() ^ truth.items())
                time.sleep(0.2)
        assert client.connected == 2
        assert broken(client.events) == []
        assert len(client.named("reset")) == 1, "whoever comes again in time goes on"
        cursors = [one.id for one in client.named("change") if one.id]
        assert len(cursors) == len(set(cursors)) > 300
