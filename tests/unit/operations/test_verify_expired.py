"""When documents that a cache lacks may have expired, and when their versions may have, too."""

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
from operations.verify.expired import may_have_expired, versions_may_be_gone
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


def made(monkeypatch: pytest.MonkeyPatch, folder: Path, age: float, stage: Any = "living") -> Opened:
    """A generation that was made so many seconds ago; its documents live a day, its fences a week."""
    began = time.time() - age
    monkeypatch.setattr(registers, "time", SimpleNamespace(time=lambda: began))
    register = register_of(build(folder, DAY, 1).pipeline, "cache")
    number = register.create("another view").number
    register.move(number, stage)
    return build(folder, DAY, number)


@pytest.mark.parametrize("stage", ["filling", "ready", "living", "previous"])
def test_documents_of_a_generation_may_expire_whoever_sees_it_and_however_young_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Any
) -> None:
    """Of one whose fill took longer than a document lives no gate ever passed: what had expired was missing."""
    young = made(monkeypatch, tmp_path, 0, stage)
    assert may_have_expired(young)
    assert not may_have_expired(build(tmp_path, None, young.number)), "nothing expires"


@pytest.mark.parametrize(
    ("age", "gone"), [(0, False), (2 * DAY, False), (8 * DAY - 60, False), (8 * DAY + 60, True), (-DAY, False)]
)
def test_no_version_is_gone_before_one_may_have_outlived_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int, gone: bool
) -> None:
    """What had never come was doubtful as soon as the generation was as old as `ttl_seconds`."""
    old = made(monkeypatch, tmp_path, age)
    assert versions_may_be_gone(old) is gone
    assert not versions_may_be_gone(build(tmp_path, None, old.number)), "nothing expires"


@pytest.mark.parametrize("stage", ["filling", "ready", "previous"])
def test_one_that_readers_do_not_see_must_have_a_version_of_everything_however_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Any
) -> None:
    """A gate had only to wait for long enough, and showed a generation that was empty."""
    assert not versions_may_be_gone(made(monkeypatch, tmp_path, 20 * DAY, stage))


def test_the_first_generation_is_as_old_as_its_first_query(tmp_path: Path) -> None:
    """The register does not know when it was begun, and it was never too young: what an empty one lacked was right."""
    first = build(tmp_path, DAY, 1)
    assert not versions_may_be_gone(first), "nobody knows"
    begun(first.generation, 8 * DAY - 60, "airport")
    assert not versions_may_be_gone(first)
    begun(first.generation, 8 * DAY + 60)
    assert versions_may_be_gone(first), "the other flow came later"


def test_what_may_have_expired_the_server_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(_sink: RedisSink, view: str, keys: list[str], *, unversioned: bool) -> set[str]:
        return {key for key in keys if key == view or unversioned}

    monkeypatch.setattr(RedisSink, "expired", expired)
    with holding(build(tmp_path, DAY, 1), View.identity(ORDERS)) as held:
        assert held.expired(["orders", "other"], unversioned=False) == {"orders"}
        assert held.expired(["orders", "other"], unversioned=True) == {"orders", "other"}


@pytest.mark.parametrize("ttl", [None, DAY])
def test_verify_asks_it_of_each_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ttl: int | None) -> None:
    monkeypatch.setattr(verifier, "holding", lambda *_: nullcontext())
    monkeypatch.setattr(verifier, "opened_servers", lambda _: nullcontext())
    monkeypatch.setattr(verifier, "needs_spark", lambda _: False)
    monkeypatch.setattr(verifier, "Frontier", lambda *_: None)
    cache = build(tmp_path, ttl, 1)
    asking = Verifier(cache.pipeline, Catalogue({"public.orders": ORDERS}, "1", 1), Asked(), lambda _: None)
    with asking._settler(SimpleNamespace(outlives_rows=True), cache, tmp_path) as settler:  # type: ignore[arg-type]
        assert (settler.expires, settler.stays) == (ttl is not None, True)
