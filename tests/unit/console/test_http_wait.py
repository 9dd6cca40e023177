"""`/v1/wait` with a source, a sink and an index that answer as told: several writes at once, and whether one is visible
now."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from headwater_client import Headwater

from cdc.errors import SourceUnavailable
from cdc.pipeline import Pipeline, load
from cdc.token import History
from connectors.database.write_tokens import Standing
from connectors.ledger import LedgerEntry
from console.http import freshness
from operations.freshness.log import Look
from operations.freshness.place import FlowSeen, Seen
from operations.freshness.refresh import REFRESH_SECONDS, Refresher
from operations.state.accepted import Text, note_running, this_process
from tests.support.serving import running_app
from tests.unit.console.test_http import client

HERE = History(0x69A5, 1, "3f2a91bc", "0badcafe", 57)
COMMITTED, BACK, OPEN = (f"x1.69a5.1.3f2a91bc.0badcafe.39.{number:x}" for number in (1, 2, 3))
ELSEWHERE = COMMITTED.replace("0badcafe", "0000cafe")
FATES = {1: "committed", 2: "aborted", 3: "in progress"}


class World:
    """All that the thread of the waits has open.

    Attributes:
        applied: how far the sink has applied the log, of 10.
        state: of its flow.
        away: whether Postgres is.
        refreshed: when the index was.
    """

    def __init__(self) -> None:
        self.applied, self.state, self.away = 10, "running", False
        self.confirmed, self.refreshed = 50, list[float]()
        self.lock = threading.Lock()

    def servers(self, pipeline: Pipeline, _letters: Any) -> Any:
        quiet = SimpleNamespace(judge=lambda *_: None, close=lambda: None)
        place = SimpleNamespace(look=self.look, close=lambda: None)
        refresher = Refresher(pipeline)
        return SimpleNamespace(
            source=self, refresher=refresher, letters=quiet, places={"search": place}, close=refresher.close
        )

    # -- the source: a slot that confirms the log's end with the next event

    def look(self, transactions: Any = None) -> Any:
        if transactions is None:
            flow = FlowSeen(self.state, None, ("t",), {"t": {0: self.applied}})
            return Seen((1,), {1: {"main": flow}}, {1: {"t": "id"}})
        if self.away:
            raise SourceUnavailable("Postgres does not answer")
        fates: Any = {number: FATES[number] for number in transactions}
        return Look(HERE, Standing(fates, 100, self.confirmed), time.time())

    def beat(self) -> None:
        self.confirmed = 100

    def entry(self, lsn: int, _topics: Any) -> LedgerEntry:
        return LedgerEntry(lsn, {"t": {0: 10}}, {}, {"t": "id"})

    # -- the index

    def open(self, _config: Any) -> Any:
        return SimpleNamespace(refresh=self.refresh, close=lambda: None)

    def refresh(self, _view: str) -> None:
        with self.lock:
            self.refreshed.append(time.monotonic())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr("operations.freshness.waits._Servers", made.servers)
    monkeypatch.setattr("operations.freshness.refresh.open_target", made.open)
    return made


@pytest.fixture
def asking(world: World, tmp_path: Path) -> Iterator[TestClient]:
    with client(tmp_path) as opened:
        yield opened


def wait(asking: TestClient, **asked: Any) -> tuple[dict[str, Any], float]:
    """The answer, and how long it took."""
    began = time.monotonic()
    answer = asking.post("/v1/wait", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json(), time.monotonic() - began


def test_several_writes_share_a_refresh(asking: TestClient, world: World) -> None:
    """Asked for one after the other, each took one of its own, a fifth of a second apart."""
    answer, took = wait(asking, token=COMMITTED, tokens=[COMMITTED] * 3, timeout_ms=5_000)
    assert (answer["state"], [one["state"] for one in answer["writes"]]) == ("visible", ["visible"] * 4)
    assert len(world.refreshed) == 1 and took < 3 * REFRESH_SECONDS


def test_of_several_writes_the_worst_is_answered_and_each_is_told(asking: TestClient) -> None:
    answer, took = wait(asking, tokens=[COMMITTED, OPEN, BACK], timeout_ms=300)
    assert [one["state"] for one in answer["writes"]] == ["visible", "timeout", "aborted"]
    assert (answer["state"], answer["reason"]) == ("timeout", "the transaction is in progress") and took >= 0.3
    answer, _ = wait(asking, token=ELSEWHERE, tokens=[COMMITTED])
    assert [one["state"] for one in answer["writes"]] == ["unknown", "visible"] and answer["state"] == "unknown"
    assert wait(asking, token=BACK, tokens=[COMMITTED])[0]["state"] == "visible", "what is rolled back is no write"
    answer, _ = wait(asking, token=BACK, tokens=[])
    assert answer["state"] == "aborted" and "writes" not in answer


def test_a_bad_one_of_several_is_refused(asking: TestClient) -> None:
    for tokens, code in ((["x1"], "bad-token"), (["x" * 500], "config"), ([COMMITTED] * 65, "config")):
        answer = asking.post("/v1/wait", json={"token": COMMITTED, "tokens": tokens})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_what_is_visible_now_is_said_to_be(asking: TestClient, world: World) -> None:
    """It was answered before anybody had looked: a timeout, always."""
    asks: list[dict[str, Any]] = [{"token": COMMITTED}, {"max_staleness_ms": 5_000}, {}]
    for asked in asks:
        world.confirmed = 50
        answer, took = wait(asking, **asked, timeout_ms=0)
        assert answer["state"] == "visible" and took < 3, asked
    answer, _ = wait(asking, token=COMMITTED, tokens=[COMMITTED], timeout_ms=0)
    assert answer["state"] == "visible"


def test_what_is_not_visible_now_is_said_not_to_be_in_a_moment(
    asking: TestClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.applied = 9
    answer, took = wait(asking, token=COMMITTED, timeout_ms=0)
    assert (answer["state"], answer["sinks"]["search"]["behind"]) == ("timeout", 1)
    assert freshness.NOW_SECONDS <= took < 3
    # What is in its way is not waited for.
    monkeypatch.setattr(freshness, "NOW_SECONDS", 20.0)
    world.state = "failed"
    answer, took = wait(asking, token=COMMITTED, timeout_ms=0)
    assert answer["sinks"]["search"]["reason"] == "flow main is failed" and took < 5
    answer, took = wait(asking, token=OPEN, timeout_ms=0)
    assert answer["reason"] == "the transaction is in progress" and took < 5
    world.confirmed = 200
    answer, took = wait(asking, token=COMMITTED, timeout_ms=0)
    assert "is gone" in answer["reason"] and took < 5
    world.away = True
    answer, took = wait(asking, token=COMMITTED, timeout_ms=0)
    assert answer["reason"] == "Postgres does not answer" and took < 5


def test_who_asked_and_has_gone_holds_no_place(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aborted page loads held theirs for all of their time, a minute at most, and all others were refused."""
    monkeypatch.setattr("operations.freshness.waits.MOST_WAITS", 3)
    world.applied = 9

    def becomes(code: str | None) -> bool:
        """Whether who asks is told that before long."""
        until = time.monotonic() + 10
        while (answer := headwater.wait(COMMITTED, timeout=0)).code != code and time.monotonic() < until:
            time.sleep(0.02)
        return answer.code == code

    with running_app(client(tmp_path).app) as url:
        headwater = Headwater(url)
        for _ in range(2):
            with closing(HTTPConnection(url.removeprefix("http://"))) as aborted:
                body = json.dumps({"tokens": [COMMITTED] * 3, "timeout_ms": 60_000})
                aborted.request("POST", "/v1/wait", body, {"Content-Type": "application/json"})
                assert becomes("too-many-waits")
            assert becomes(None)


def test_a_sink_that_was_saved_and_not_applied_keeps_nobody_from_his_write(asking: TestClient, tmp_path: Path) -> None:
    """Each wait without `sinks` ended in a timeout: no flow of it had begun."""
    file = tmp_path / "shop.yaml"
    text = file.read_text()
    note_running(load(file), this_process(Text(str(file), text, 2.0)))
    file.write_text(text.replace("sinks: {", 'sinks: {new: {type: redis, url: "redis://127.0.0.1:1", view: v}, '))
    answer, _ = wait(asking, token=COMMITTED, timeout_ms=5_000)
    assert answer["state"] == "visible" and list(answer["sinks"]) == ["search"]


def test_which_sinks_are_waited_for_is_not_looked_up_in_the_loop(
    asking: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that `run` had taken up was parsed there: all other waits stood still meanwhile."""

    def beside(pipeline: Pipeline) -> list[str]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return [*pipeline.sinks]

    monkeypatch.setattr(freshness, "sinks_to_wait_for", beside)
    assert wait(asking, token=COMMITTED)[0]["state"] == "visible"
