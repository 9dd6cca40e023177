"""A history that a process with another state folder has taken since is left alone, as its sink's generations are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import Fenced, TopicRecreated
from cdc.pipeline import Pipeline
from operations.generations.elsewhere import noted_claim, take_over
from operations.run import history
from operations.run.history import OpenedHistory, history_flow, open_history
from operations.state.history import FORMER, STREAM, history_folder, history_lease
from sinks.iceberg.catalogue import LEASE
from sinks.iceberg.history import KEY
from spark.warehouse.history.tables import HistoryPlace

TABLE = Table("public", "orders", (Column("id", "int4", "int4"), Column("uid", "int4", "int4")), ("id",))
Started = Callable[[Pipeline, int], None]


def machine(folder: Path, name: str) -> Pipeline:
    """The file as one of two machines has it, of whose state folders each is its own."""
    where = {"catalog_uri": f"sqlite:///{folder}/c.db", "warehouse": f"{folder}/w", "namespace": "n"}
    return Pipeline.model_validate(
        {
            "version": 1,
            "name": "p",
            "source": {"host": "h", "database": "d", "user": "u", "tables": ["public.orders"]},
            "kafka": {"bootstrap": "h:9092"},
            "connect": {"url": "http://h:8083"},
            "views": {"order": {"root": "orders"}},
            "sinks": {"lake": {"type": "iceberg", "views": ["order"], "history": True, **where}},
            "engine": {"state_dir": str(folder / name)},
        }
    )


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    """How a machine's process, which has a lease's token, starts the history."""
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}

    def claim(_spark: Any, _flow: Any, place: HistoryPlace, *_: Any) -> Any:
        catalog = SqlCatalog("hw_lake", **properties)
        catalog.create_namespace_if_not_exists("n")
        made = catalog.create_table_if_not_exists(("n", "orders_history"), pa.schema({"id": pa.int32()}))
        with made.transaction() as transaction:
            transaction.set_properties({LEASE: str(place.token), KEY: json.dumps(["id"])})
        catalog.close()

    monkeypatch.setattr(history, "start_history", claim)
    monkeypatch.setattr(history, "source_catalogue", lambda _: Catalogue({TABLE.qualified: TABLE}))

    def started(pipeline: Pipeline, token: int) -> None:
        folder = history_folder(pipeline, "lake")
        opened = OpenedHistory(pipeline, "lake", folder, history_lease(folder, "lake"), token, "7")
        flow, begin = history_flow(opened, lambda: 0)
        begin(cast(Any, None), flow)

    return started


def test_a_machine_that_is_started_again_does_not_take_it_back(start: Started, tmp_path: Path) -> None:
    """Its generations were refused, and its history not: the new machine's ended, and nobody wrote it afterwards."""
    old, new = machine(tmp_path, "old"), machine(tmp_path, "new")
    start(old, 10)
    start(old, 20)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    start(new, 30)
    for token in (20, 40):  # the process that lives on, and one that is started again
        with pytest.raises(Fenced, match=r"claimed the history of public\.orders .*token 30.*token 20") as error:
            start(old, token)
    assert "--take-over" in error.value.fix
    start(new, 50)
    take_over(old, [])
    start(old, 60)
    with pytest.raises(Fenced):
        start(new, 70)


def test_a_machine_that_is_started_again_puts_nothing_aside_that_another_one_has_begun_anew(
    start: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table had got another key there: the old machine renamed the new one's history, found none that anybody had
    claimed, and both appended."""
    old, new = machine(tmp_path, "old"), machine(tmp_path, "new")
    ids, tables = {"p.public.orders": "before"}, {TABLE.qualified: TABLE}
    monkeypatch.setattr(history, "topic_ids", lambda *_, **__: dict(ids))
    monkeypatch.setattr(history, "source_catalogue", lambda _: Catalogue(dict(tables)))

    def opened(pipeline: Pipeline) -> OpenedHistory:
        one = open_history(pipeline, Catalogue(dict(tables)), "lake")
        one.lease.release()
        start(pipeline, one.token)
        return one

    assert opened(old).said == ()
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    ids["p.public.orders"], tables[TABLE.qualified] = "anew", Table("public", "orders", TABLE.columns, ("uid",))
    assert "another key" in opened(new).said[0]
    for _ in range(2):
        with pytest.raises(Fenced, match=r"claimed the history of public\.orders"):
            opened(old)
    catalog = SqlCatalog("hw_lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    assert {name for _, name in catalog.list_tables("n")} == {"orders_history", "orders_history_by_id"}
    catalog.close()
    assert opened(new).said == ()
    take_over(old, [])
    assert "another key" in opened(old).said[0]


def test_a_topic_that_was_made_anew_under_a_running_history_is_noticed_at_its_next_start(
    start: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was compared as the history was opened alone: what stood in the new topic before the place in the old one was
    skipped, and cuts were called complete."""
    pipeline, tables = machine(tmp_path, "one"), {TABLE.qualified: TABLE}
    topic = pipeline.topic(TABLE.qualified)
    ids = {topic: "before"}

    def asked(_pipeline: Pipeline, topics: set[str], *, missing_ok: bool = False) -> dict[str, str]:
        assert missing_ok or topics <= ids.keys()
        return {name: ids[name] for name in topics if name in ids}

    monkeypatch.setattr(history, "topic_ids", asked)
    monkeypatch.setattr(history, "source_catalogue", lambda _: Catalogue(dict(tables)))
    opened = open_history(pipeline, Catalogue(dict(tables)), "lake")
    opened.lease.release()
    start(pipeline, opened.token)
    ids.clear()  # it is not there at this moment: others tell
    start(pipeline, opened.token)
    ids[topic] = "anew"
    for _ in range(2):
        with pytest.raises(TopicRecreated, match=f"topic {topic} was deleted and created again") as error:
            start(pipeline, opened.token)
        assert "another namespace" in error.value.fix
    assert caplog.messages == []
    tables[TABLE.qualified] = Table("public", "orders", TABLE.columns, ("uid",))
    start(pipeline, opened.token)
    assert "has another key, so its history begins anew; what was is in n.orders_history_by_id" in caplog.text
    caplog.clear()
    start(pipeline, opened.token)
    assert caplog.messages == [], "once"


def test_who_takes_over_takes_the_histories_of_other_namespaces_too(start: Started, tmp_path: Path) -> None:
    made = machine(tmp_path, "one")
    start(made, 10)
    log = history_folder(made, "lake") / STREAM
    former = history_folder(made, "lake") / FORMER / "before" / STREAM
    shutil.copytree(log, former)
    assert noted_claim(log) == noted_claim(former) == 10
    take_over(made, ["lake"])
    assert noted_claim(log) is noted_claim(former) is None
