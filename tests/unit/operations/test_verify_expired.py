"""When documents that a cache lacks may have expired: not before the generation is as old as they may become."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.pipeline import loads
from cdc.view import View
from operations.holding import holding
from operations.opened import Opened
from operations.state.folder import register_of
from operations.verify import verifier
from operations.verify.expired import may_have_expired
from operations.verify.verifier import Asked, Verifier
from sinks.redis import RedisSink
from spark.disk import register as registers
from spark.disk.state import Generation
from tests.support.watched_file import TEXT

DAY = 86_400
ORDERS = Table("public", "orders", (Column("id", "int4", "int4"),), ("id",))


def build(folder: Path, ttl: int | None, number: int) -> Opened:
    pipeline: Any = loads(TEXT.replace("STATE", str(folder)), "shop.yaml", {})
    cache = pipeline.sinks["cache"].model_copy(update={"ttl_seconds": ttl})
    pipeline = pipeline.model_copy(update={"sinks": {**pipeline.sinks, "cache": cache}})
    return Opened(pipeline, register_of(pipeline, "cache").generation(number), [], 0)


def begun(generation: Generation, age: float, flow: str = "main") -> None:
    """As Spark leaves it where a query began so many seconds ago."""
    path = generation.checkpoint(flow) / "metadata"
    path.parent.mkdir(parents=True)
    path.write_text('{"id": "0"}')
    os.utime(path, (time.time() - age,) * 2)


@pytest.mark.parametrize(("age", "expires"), [(0, False), (DAY - 60, False), (DAY + 60, True), (-DAY, False)])
def test_a_generation_must_have_everything_until_it_is_as_old_as_its_documents_may_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int, expires: bool
) -> None:
    began = time.time() - age
    monkeypatch.setattr(registers, "time", type("Clock", (), {"time": staticmethod(lambda: began)}))
    register = register_of(build(tmp_path, DAY, 1).pipeline, "cache")
    number = register.create("another view").number
    register.move(number, "living")
    assert may_have_expired(build(tmp_path, DAY, number)) is expires
    assert not may_have_expired(build(tmp_path, None, number)), "nothing expires"


@pytest.mark.parametrize("stage", ["filling", "ready", "previous"])
def test_one_that_readers_do_not_see_must_have_everything_however_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Any
) -> None:
    """A gate had only to wait for as long as `ttl_seconds`, and showed a generation that lacked documents."""
    monkeypatch.setattr(registers, "time", type("Clock", (), {"time": staticmethod(lambda: time.time() - 2 * DAY)}))
    register = register_of(build(tmp_path, DAY, 1).pipeline, "cache")
    number = register.create("another view").number
    register.move(number, stage)
    assert not may_have_expired(build(tmp_path, DAY, number))


def test_the_first_generation_is_as_old_as_its_first_query(tmp_path: Path) -> None:
    """The register does not know when it was begun, and it was never too young: what an empty one lacked was right."""
    made = build(tmp_path, DAY, 1)
    assert not may_have_expired(made), "nobody knows"
    begun(made.generation, DAY - 60, "airport")
    assert not may_have_expired(made)
    begun(made.generation, DAY + 60)
    assert may_have_expired(made), "the other flow came later"


def test_what_was_lost_the_server_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisSink, "lost", lambda _sink, view, keys: {key for key in keys if key == view})
    with holding(build(tmp_path, DAY, 1), View.identity(ORDERS)) as held:
        assert held.lost(["orders", "other"]) == {"orders"}


@pytest.mark.parametrize("ttl", [None, DAY])
def test_verify_asks_it_of_each_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ttl: int | None) -> None:
    monkeypatch.setattr(verifier, "holding", lambda *_: nullcontext())
    monkeypatch.setattr(verifier, "opened_servers", lambda _: nullcontext())
    monkeypatch.setattr(verifier, "needs_spark", lambda _: False)
    monkeypatch.setattr(verifier, "Frontier", lambda *_: None)
    made = build(tmp_path, ttl, 1)
    begun(made.generation, 2 * DAY)
    asking = Verifier(made.pipeline, Catalogue({"public.orders": ORDERS}, "1", 1), Asked(), lambda _: None)
    with asking._settler(SimpleNamespace(outlives_rows=True), made, tmp_path) as settler:  # type: ignore[arg-type]
        assert (settler.expires, settler.stays) == (ttl is not None, True)
