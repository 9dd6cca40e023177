"""When documents that a cache lacks may have expired: not before the generation is as old as they may become."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import loads
from operations.opened import Opened
from operations.state.folder import register_of
from operations.verify.expired import may_have_expired
from spark.disk import register as registers
from tests.support.watched_file import TEXT

DAY = 86_400


def build(folder: Path, ttl: int | None, number: int) -> Opened:
    pipeline: Any = loads(TEXT.replace("STATE", str(folder)), "shop.yaml", {})
    cache = pipeline.sinks["cache"].model_copy(update={"ttl_seconds": ttl})
    pipeline = pipeline.model_copy(update={"sinks": {**pipeline.sinks, "cache": cache}})
    return Opened(pipeline, register_of(pipeline, "cache").generation(number), [], 0)


@pytest.mark.parametrize(("age", "expires"), [(0, False), (DAY - 60, False), (DAY + 60, True), (-DAY, False)])
def test_a_generation_must_have_everything_until_it_is_as_old_as_its_documents_may_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int, expires: bool
) -> None:
    began = time.time() - age
    monkeypatch.setattr(registers, "time", type("Clock", (), {"time": staticmethod(lambda: began)}))
    made = build(tmp_path, DAY, 1)
    number = register_of(made.pipeline, "cache").create("another view").number
    assert may_have_expired(build(tmp_path, DAY, number)) is expires
    assert not may_have_expired(build(tmp_path, None, number)), "nothing expires"
    assert may_have_expired(made), "the first one, of which nobody knows when it was begun"
