"""Documents that show rows as they were: what of the log a look holds a sink against, and what it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.join.view import JoinedView
from cdc.records.debezium_json import JSON
from operations import logged_events
from operations.holding import Holding, Holds
from operations.logged_events import Ends, logged
from operations.verify import looks, settle
from operations.verify.buckets import Keys
from operations.verify.comparison import Comparison, marked
from operations.verify.frontier import Frontier
from operations.verify.settle import Settler
from tests.support.trees import node, table
from truth.digest import digest
from truth.versions import Logged, Versions

PRODUCTS = table("products", "id", id="int4", name="text")
ORDERS = table("orders", "id", id="int4", product="int4", at="timestamptz")
TREE = node(ORDERS, refs=(node(PRODUCTS, "product", "ref", [("product", "id")], as_of="at"),))
VIEW = JoinedView("order", ORDERS, ("id",), TREE.columns, {}, None, TREE)
TOPIC = "shop.public.products"
PIPELINE = cast(Any, SimpleNamespace(topic=lambda name: f"shop.{name}", source=SimpleNamespace(reader=lambda: None)))


class Log:
    """The topic of products, of one partition: names that one of them has had, one after the other."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def describe(self, topics: Sequence[str]) -> dict[str, Any]:
        return {topic: SimpleNamespace(name=topic, partitions=1) for topic in topics}

    def records(self, _kafka: object, topic: str, part: int) -> Iterator[Any]:
        assert (topic, part) == (TOPIC, 0)
        for offset, name in enumerate(list(self.names)):
            event = {"source": {"ts_ms": offset}, "op": "u", "after": {"id": 1, "name": name}}
            key, value = orjson.dumps({"id": 1}), orjson.dumps(event)
            yield SimpleNamespace(key=lambda key=key: key, value=lambda value=value: value, offset=lambda at=offset: at)

    def ends(self) -> Ends:
        return {TOPIC: {0: len(self.names)}}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[Log], Log]:
    """A log that is the one which is read."""

    def made(log: Log) -> Log:
        monkeypatch.setattr(logged_events, "Kafka", lambda _pipeline: log)
        monkeypatch.setattr(logged_events, "records", log.records)
        monkeypatch.setattr(logged_events, "encoding_of", lambda _settings: JSON)
        return log

    return made


def names(versions: Any) -> list[Any]:
    return [one.row and one.row["name"] for one in cast("Iterator[Logged]", versions())]


@pytest.mark.parametrize(
    ("ends", "read"),
    [
        (None, ["a", "b", "c"]),
        ({TOPIC: {0: 2}}, ["a", "b"]),
        ({TOPIC: {0: 0}}, []),
        ({TOPIC: {0: 9}}, ["a", "b", "c"]),
        ({TOPIC: {}}, []),  # a partition that there was not yet
    ],
)
def test_versions_are_read_up_to_the_ends(opened: Any, ends: Ends | None, read: list[str]) -> None:
    opened(Log("a", "b", "c"))
    assert names(logged(PIPELINE, VIEW, ends)) == read


def test_a_version_that_comes_after_the_ends_that_were_waited_for_is_no_difference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: Any
) -> None:
    """The truth was read to the end of the log, the sink waited for up to the snapshot: what came in between was called
    `changed`, and proved, of a document whose moment is still to come."""
    log: Log = opened(Log("a"))
    held = {"name": "a", "wrong": "other"}
    waited = 0

    def wait(*_: object) -> Ends:
        nonlocal waited
        waited += 1
        ends = log.ends()
        if waited == 1:
            log.names.append("b")  # and the sink, which has passed the ends, has not read it yet
        else:
            held["name"] = log.names[-1]
        return ends

    def expected(
        _view: object, _connection: object, _spark: object, keys: Sequence[str], *, events: Versions, folder: Path
    ) -> Iterator[tuple[str, Mapping[str, bytes]]]:
        newest = names(events)[-1]
        for key in keys:
            yield key, {"document": digest(orjson.dumps(newest if key == "name" else "right"))}

    @contextmanager
    def snapshot(_source: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(looks, "snapshot", snapshot)
    monkeypatch.setattr(looks, "wal_position", lambda _: 0)
    monkeypatch.setattr(looks, "expected", expected)
    monkeypatch.setattr(looks, "digests", lambda _view, found, _forms: found)
    monkeypatch.setattr(settle.time, "sleep", lambda _: None)
    keys = Keys(tmp_path / "asked")
    for key in held:
        keys.add(marked("changed", key))
    keys.flush()
    holding = SimpleNamespace(
        opened=SimpleNamespace(pipeline=PIPELINE, form=lambda _view: "document"),
        get=lambda keys: {key: Holds(1, digest(orjson.dumps(held[key]))) for key in keys},
    )
    frontier = cast(Frontier, SimpleNamespace(wait=wait))
    result = Comparison("order")
    certain = Settler(VIEW, cast(Holding, holding), frontier, None, tmp_path).settle(result, keys, 60.0)
    assert (result.changed, certain.count, result.caught_up) == (["wrong"], 1, True)
