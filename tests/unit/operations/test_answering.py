"""Whether a sink's server answers: believed when it is said twice, told once, and no matter of rights."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import SinkRefused, SinkUnavailable
from cdc.pipeline import Pipeline, load
from operations.freshness import answering
from operations.freshness.answering import Answering
from operations.state.folder import register_of
from tests.support.watched import NOWHERE, ROOT


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load(ROOT / "examples/flights/pipeline.yaml", {**NOWHERE, "HEADWATER_HOME": str(tmp_path)})


def without_views(pipeline: Pipeline, sink: str) -> Pipeline:
    part = pipeline.sinks[sink].model_copy(update={"view": None, "views": None, "tables": "all"})
    return pipeline.model_copy(update={"sinks": {**pipeline.sinks, sink: part}})


class Server:
    """What a sink's server answers, question by question; the last answer again and again."""

    def __init__(self, *answers: Exception | bool) -> None:
        self.answers, self.asked, self.closed = list(answers), 0, 0

    def there(self, _view: str) -> bool:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def living(self, _view: str) -> int:
        return 1

    def close(self) -> None:
        self.closed += 1


AWAY = SinkUnavailable("nobody listens")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(answering, "LOOK_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("answers", "error", "news"),
    [
        ([True], None, 0),
        ([False], None, 0),  # it is not there: it answers
        ([AWAY, True], None, 0),  # a connection that somebody between has dropped
        ([AWAY], "nobody listens", 1),
        ([SinkRefused("no rights")], None, 0),
    ],
)
def test_one_look(pipeline: Pipeline, monkeypatch: Any, answers: list[Any], error: str | None, news: int) -> None:
    server, heard = Server(*answers), list[int]()
    monkeypatch.setattr(answering, "open_sink", lambda _config: server)
    one = Answering(pipeline, "search", lambda: heard.append(1))
    one.look()
    assert (one.error, len(heard)) == (error, news)


def test_that_it_is_gone_and_back_is_told_once_each(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    server, heard = Server(True, AWAY, AWAY, AWAY, AWAY, True), list[str | None]()
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(answering, "open_sink", lambda config: opened.append(config) or server)
    one = Answering(pipeline, "cache", lambda: heard.append(one.error))
    one.start()
    until = time.monotonic() + 10
    while len(heard) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    one.close(5.0)
    assert heard == ["nobody listens", None]
    assert len(opened) == 1 and server.closed == 1
    assert opened[0]["request_timeout_seconds"] == answering.REQUEST_SECONDS


def test_an_alias_that_leads_elsewhere_is_told_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, found = Answering(pipeline, "search"), iter(["it leads away", "it leads away", None, "it leads away"])
    monkeypatch.setattr(one, "_lead", lambda: next(found))
    for _ in range(4):
        one.lead()
    told = [record.getMessage() for record in caplog.records if record.name == answering.__name__]
    assert told == ["sink search: it leads away"] * 2


def test_a_table_that_a_sink_takes_up_while_it_lives_is_looked_after(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one generation: who had opened it went on with the views of the beginning, and missed the lost alias."""
    server, opened = Server(True), list[set[str]]()
    generation = register_of(pipeline, "search").generation(1)
    monkeypatch.setattr(answering, "open_sink", lambda config: opened.append(set(config["targets"])) or server)
    monkeypatch.setattr(answering, "as_defined", lambda made, _generation: without_views(made, "search"))
    one = Answering(pipeline, "search")
    for views in (["a"], ["a", "b"]):
        generation.note_views(views)
        one.look()
        one.look()
    assert opened == [{"a"}, {"a", "b"}] and server.closed == 1


def test_a_warehouse_has_no_server(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Answering(pipeline, "warehouse")
    one.start()
    one.close(1.0)
    assert one.error is None and not one._thread.is_alive()
