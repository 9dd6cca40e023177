"""A subscriber while all between it and Postgres is killed: each change once, and in the end what Postgres has."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.local import ready
from tests.support.migrating import Rows
from tests.support.pushed import Event, folded
from tests.support.pushing import Coming, Pushing, broken
from tests.support.receiver import Receiver
from tests.support.serving import Server

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

SETTLE_SECONDS = 60.0


def settled(events: Callable[[], list[Event]], truth: dict[str, str | None]) -> None:
    """Wait until who has taken these events has what Postgres has."""
    until = time.monotonic() + SETTLE_SECONDS
    while (state := {key: one and one["spare"] for key, one in folded(events()).items()}) != truth:
        assert time.monotonic() < until, (len(state), len(truth), state.items() ^ truth.items())
        time.sleep(0.2)


def test_nothing_is_missed_and_nothing_comes_twice_whatever_is_killed(tmp_path: Path) -> None:
    """Writer -> Postgres -> run (killed twice) -> Redis -> serve (killed once) -> a client with Last-Event-ID; and from
    Redis to a webhook, which `run` sends.
    """
    receiver = Receiver()
    made = Pushing(ready(), tmp_path, sinks=("cache",), views={"thing": {"root": "things"}}, hook=receiver.url)
    with closing(receiver), made.running(), Server(made.file, made.environment()) as server:
        with Coming(f"{server.url}/v1/stream/{made.view('thing')}") as client:
            client.more(0)
            receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
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
            truth = made.spares()
            for events in (lambda: list(client.events), receiver.taken):
                settled(events, truth)
            [hook] = made.status()["push"]
            assert (hook["state"], hook["lag_entries"], hook["letters"]) == ("delivering", 0, 0)
        assert client.connected == 2
        assert broken(client.events) == []
        assert len(client.named("reset")) == 1, "whoever comes again in time goes on"
        cursors = [one.id for one in client.named("change") if one.id]
        assert len(cursors) == len(set(cursors)) > 300
        assert broken(receiver.taken()) == []
        assert [one.name for one in receiver.taken()].count("reset") == 1, "its place outlives the process"
