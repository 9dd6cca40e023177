"""`run`'s first look at its source, and what it says of a login that is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.errors import (
    ConnectUnavailable,
    KafkaError,
    KafkaUnavailable,
    SourceChanged,
    SourceError,
    SourceRefused,
    SourceUnavailable,
)
from cdc.pipeline import Pipeline, Source, loads
from cdc.polling import poll
from connectors.gaps import source_gaps
from connectors.postgres import connect
from operations.run import owner, patience, source_watch
from operations.run.owner import owner_refused
from operations.run.patience import Stop
from operations.run.source_watch import SourceWatch
from operations.supervise.wanted import Wanted, first_look
from tests.support.watched_file import TEXT


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    return []


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
    with SourceWatch(pipeline, first_look(pipeline, Wanted((), Stop(), None, False, None), said.append)) as watch:
        assert watch.error is None
    assert said == ["waiting: Kafka Connect does not answer at http://127.0.0.1:1"]


def test_what_no_waiting_cures_ends_it_at_once(
    pipeline: Pipeline, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_watch, "check_source", failing(SourceChanged("another one")))
    watch = SourceWatch(pipeline, first_look(pipeline, Wanted((), Stop(), None, False, None), said.append))
    with pytest.raises(SourceChanged), watch:
        pass
    assert said == []


@pytest.mark.parametrize("kind", [SourceError, SourceRefused])
def test_a_login_that_is_refused_is_told_once_and_is_no_gap(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, kind: type[SourceError]
) -> None:
    refused = kind('Postgres refused 127.0.0.1:1/shop as u: password authentication failed for user "u"')
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


def test_a_topic_that_somebody_has_enlarged_is_told_once_the_servers_answer(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told by `check` alone, which nobody asks of a pipeline that was applied long ago."""
    found = KafkaError("topic shop.public.orders has 5 partitions", means="two partitions", fix="delete it")
    asked: list[Any] = [failing(KafkaUnavailable("down")), failing(psycopg.OperationalError("cut")), dict]
    asked += [lambda: {"t": found}] * 2  # an hour later
    monkeypatch.setattr(source_watch, "resized", lambda *_: asked.pop(0)())
    monkeypatch.setattr(source_watch, "check_source", lambda *_: None)
    monkeypatch.setattr(source_watch, "SIZE_SECONDS", 0.0)
    watch = SourceWatch(pipeline)
    monkeypatch.setattr(watch._tables, "look", dict)
    watch._watch()
    assert not watch.news
    for _ in range(4):
        watch._look()
    assert not asked
    assert [*watch.news] == ["warning: topic shop.public.orders has 5 partitions: two partitions; delete it"]


# -- the tables' owner ---------------------------------------------------------------------------------------------


def owned(pipeline: Pipeline, role: str | None = "shop_owner") -> Pipeline:
    return pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"setup_user": role})})


class Login:
    """Takes the place of `connect`: the owner's login is refused, taken, or nobody answers."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, list[bool]()

    def __call__(self, source: Source, *, setup: bool = False) -> Login:
        self.asked.append(setup)
        if self.error is not None:
            raise self.error
        return self

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("kind", [SourceError, SourceRefused])
def test_a_refused_login_of_the_tables_owner_is_warned_of_once_at_the_start(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, kind: type[SourceError]
) -> None:
    login = Login(kind("Postgres refused 127.0.0.1:1/shop as shop_owner: fe_sendauth: no password supplied"))
    monkeypatch.setattr(owner, "connect", login)
    monkeypatch.setattr(source_watch, "check_source", failing())
    monkeypatch.setattr(source_watch, "TABLE_SECONDS", 0.01)
    with SourceWatch(owned(pipeline)) as watch:
        assert poll(lambda: list(watch.news), bool, 5.0)
        time.sleep(0.2)
        assert watch.error is None
        assert len(watch.news) == len(login.asked) == 1
    line = watch.news[0]
    assert line.startswith("warning: Postgres refused 127.0.0.1:1/shop as shop_owner: fe_sendauth: no password")
    assert "put source.setup_password into the environment of `run`" in line


@pytest.mark.parametrize("error", [None, SourceUnavailable("Postgres does not answer")])
def test_an_owner_who_is_let_in_or_a_server_that_is_away_is_no_warning(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    login = Login(error)
    monkeypatch.setattr(owner, "connect", login)
    assert owner_refused(owned(pipeline).source) is None
    assert login.asked == [True], "one try, as the owner"


def test_no_owner_is_tried_where_the_file_names_none(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    login = Login(SourceError("refused"))
    monkeypatch.setattr(owner, "connect", login)
    assert owner_refused(pipeline.source) is None and login.asked == []


@pytest.mark.parametrize(("setup", "named"), [(True, "source.setup_password"), (False, "correct `source`")])
def test_a_refused_login_names_the_password_that_it_lacks(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, setup: bool, named: str
) -> None:
    def refuse(**_: Any) -> None:
        raise psycopg.OperationalError("connection failed: fe_sendauth: no password supplied")

    monkeypatch.setattr(psycopg, "connect", refuse)
    with pytest.raises(SourceError) as error:
        connect(owned(pipeline).source, setup=setup)
    assert named in error.value.fix and ("as shop_owner (source.setup_user): " in error.value.what) is setup
    assert ("environment of every process" in error.value.fix) is setup
