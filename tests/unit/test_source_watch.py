"""`run`'s first look at its source, and what it says of a login that is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import ConnectUnavailable, SourceChanged, SourceError, SourceUnavailable
from cdc.pipeline import Pipeline, loads
from connectors import source_gaps
from console.cli import run
from operations.run import patience, source_watch
from operations.run.patience import Stop
from operations.run.source_watch import SourceWatch

TEXT = """\
version: 1
name: shop
source: {host: 127.0.0.1, port: 1, database: shop, user: u, password: p, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views: {order: {root: orders}}
sinks: {cache: {type: redis, url: "redis://127.0.0.1:1", view: order}}
engine: {state_dir: STATE}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    lines: list[str] = []
    monkeypatch.setattr(run, "_say", lines.append)
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    yield lines


def failing(*errors: Exception) -> Callable[..., None]:
    left = list(errors)

    def check(*_: Any) -> None:
        if left:
            raise left.pop(0)

    return check


def test_kafka_connect_that_is_away_after_a_failover_is_waited_for(
    pipeline: Pipeline, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promoted server can't be followed before the connector was looked at, and nothing may run before that."""
    away = ConnectUnavailable("Kafka Connect does not answer at http://127.0.0.1:1")
    monkeypatch.setattr(source_watch, "check_source", failing(away, away))
    with SourceWatch(pipeline, run._first(pipeline, (), Stop(), None)) as watch:
        assert watch.error is None
    assert said == ["waiting: Kafka Connect does not answer at http://127.0.0.1:1"]


def test_what_no_waiting_cures_ends_it_at_once(
    pipeline: Pipeline, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_watch, "check_source", failing(SourceChanged("another one")))
    watch = SourceWatch(pipeline, run._first(pipeline, (), Stop(), None))
    with pytest.raises(SourceChanged), watch:
        pass
    assert said == []


def test_a_login_that_is_refused_is_told_once_and_is_no_gap(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = SourceError('Postgres refused 127.0.0.1:1/shop as u: password authentication failed for user "u"')
    watch = SourceWatch(pipeline)
    monkeypatch.setattr(source_gaps, "connect", failing(refused, refused, SourceUnavailable("down")))
    for _ in range(3):
        watch.check()
    assert [line.partition(":")[0] for line in watch.news] == ["warning"]
    assert 'password authentication failed for user "u"' in watch.news[0]
    monkeypatch.setattr(source_gaps, "connect", failing(SourceUnavailable("down")))
    watch.check()
    assert len(watch.news) == 1, "a server that is down has not taken the login"
    watch._told(None)
    assert watch.news[-1] == "Postgres takes the login again"
