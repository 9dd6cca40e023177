"""A real Redis is flushed: noticed, told, filled anew, promoted, the lost generation removed; all but Spark is real."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from cdc.pipeline import Pipeline, load
from deploy.local.endpoints import Endpoints
from operations.child_process import Apart
from operations.losses import losses as module
from operations.losses.losses import Losses
from operations.state.folder import register_of
from operations.status.sinks import _sink
from sinks.configure import plain_config
from sinks.contract import Item
from sinks.factory import open_sink
from tests.support.begun_beside import begun_beside
from tests.support.losing import engine_of

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]
DATABASE = "/11"  # of its own: FLUSHDB is FLUSHALL for whoever is in it alone
TEXT = """\
version: 1
name: shop
source: {{database: shop, user: u, tables: [public.orders]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://localhost:1"}}
views: {{order: {{root: orders}}, card: {{root: orders}}}}
sinks:
  cache: {{type: redis, url: "{url}", views: [order, card], key_prefix: "t:"}}
engine: {{state_dir: {state}}}
"""


def fill(
    say: Callable[[str], None], pipeline: Pipeline, file: Path, _sink: str, _master: str | None, _why: str
) -> None:
    """In the place of `rebuild`, which needs Spark: a generation is created and filled, or fails."""
    register = register_of(pipeline, "cache")
    number = begun_beside(register, "lost").number  # also beside one that was killed
    generation = register.generation(number)
    generation.note_views(["order", "card"])
    sink = open_sink({**plain_config(pipeline, "cache", number, ["order", "card"]), "token": number})
    sink.setup()
    say("filling")
    while (file.parent / "hold").exists():
        time.sleep(0.05)
    for view in ("order", "card"):
        sink.write(view, [Item(str(n), 1, b'{"n": 1}') for n in range(500)])
    register.move(number, "ready")


@pytest.fixture
def client(stack: Endpoints) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(stack.redis_cache_url.rsplit("/", 1)[0] + DATABASE) as made:
        made.flushdb()
        yield made
        made.flushdb()


class Run:
    """What `run` does about losses, with a sink that is written to without Spark."""

    def __init__(self, file: Path) -> None:
        self.file, self.pipeline = file, load(file, {})
        self.stopped: list[Path] = []
        self.said: list[str] = []
        self.verbs: list[str] = []
        self.engine = engine_of(self.pipeline, self.stopped)
        register_of(self.pipeline, "cache").generation(1).note_views(["order", "card"])
        self.first = open_sink({**plain_config(self.pipeline, "cache", 1, ["order", "card"]), "token": 1})
        self.first.setup()
        for view in ("order", "card"):
            self.first.write(view, [Item(str(n), 1, b'{"n": 1}') for n in range(500)])
        self.losses = Losses(self.pipeline, file, start=self._start)

    def _start(self, step: Callable[..., Any], *arguments: Any) -> Apart[Any]:
        self.verbs.append(step.__name__)
        return Apart(fill if step.__name__ == "rebuild" else step, *arguments)

    def until(self, good: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not good():
            assert time.monotonic() < end, self.said
            self.said += self.losses.step(self.engine)
            time.sleep(0.02)

    def status(self) -> dict[str, Any]:
        return _sink(self.pipeline, "cache", None)

    def close(self) -> None:
        self.losses.close()
        self.first.close()


@pytest.fixture
def run(stack: Endpoints, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr("operations.losses.loss_watch.CHECK_SECONDS", 0.2)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.2)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    file = tmp_path / "shop.yaml"
    url = stack.redis_cache_url.rsplit("/", 1)[0] + DATABASE
    file.write_text(TEXT.format(url=url, state=tmp_path / "state"))
    made = Run(file)
    yield made
    made.close()


def seen(client: redis.Redis) -> int:
    """Documents that plain readers find."""
    return len(list(client.scan_iter(match="t:order:*", count=1000)))


def test_flushed_and_made_again(run: Run, client: redis.Redis) -> None:
    run.until(lambda: bool(run.losses.watch._seen))
    (run.file.parent / "hold").touch()
    client.flushdb()
    run.until(lambda: run.status()["state"] == "rebuilding" and run.status()["rebuilding"]["progress"] == "filling")
    assert run.stopped and set(run.stopped) == {register_of(run.pipeline, "cache").generation(1).folder}
    assert seen(client) == 0 and run.status()["rebuilding"]["attempt"] == 1
    # It forgets again meanwhile: that attempt can't end well, and the next one begins anew.
    client.flushdb()
    (run.file.parent / "hold").unlink()
    run.until(lambda: not run.losses.busy)
    assert run.verbs.count("rebuild") == 2 and run.verbs[-2:] == ["retire", "verify"]
    assert "could not be compared" in run.said[-1]  # there is no Postgres here; readers did not wait for that
    assert seen(client) == 500
    register = register_of(run.pipeline, "cache")
    assert register.living() == 3 and 1 not in [entry.number for entry in register.entries()]
    assert run.status()["rebuilding"] is None
    assert json.loads(client.get("t:card:7") or b"") == {"n": 1}


def test_a_server_that_is_away_is_no_loss(run: Run, client: redis.Redis) -> None:
    run.until(lambda: bool(run.losses.watch._seen))
    pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + 2
        run.until(lambda: time.monotonic() > end)
        assert run.verbs == [] and run.stopped == []
    finally:
        os.kill(pid, signal.SIGCONT)
    run.until(lambda: time.monotonic() > end + 1)
    assert run.verbs == [] and seen(client) == 500


def test_one_view_s_pointer_is_enough(run: Run, client: redis.Redis) -> None:
    run.until(lambda: len(run.losses.watch._seen) == 2)
    client.delete("t:card@live")  # evicted, say
    run.until(lambda: run.losses.busy)
    run.until(lambda: not run.losses.busy)
    assert seen(client) == 500 and register_of(run.pipeline, "cache").living() == 2
    client.delete("t:card@live")  # and the one that leads to what is at the plain names since
    run.until(lambda: run.losses.busy)
    run.until(lambda: not run.losses.busy)
    assert register_of(run.pipeline, "cache").living() == 3
    assert not [key for key in client.scan_iter(match="t:card@*", count=1000) if key != b"t:card@live"]
