"""Any order, any repeats: the newest version wins. Random histories against real Redis, compared with a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.contract import STALE, UNVERSIONED, WRITTEN, Answer, Item, Sink
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, subject_on

pytestmark = pytest.mark.stack

KEYS = ("a", "b|c", "{d}")
# Close together, and around where doubles and shorter numbers begin to go wrong.
VERSIONS = st.sampled_from([0, 1, 9, 10, 99, 100, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 2, 2**63 - 1])
ITEM = st.builds(
    lambda key, version, n: Item(key, version, None if n is None else doc(n)),
    st.sampled_from(KEYS),
    VERSIONS,
    st.none() | st.integers(0, 9),
)
TOMBSTONE = st.builds(lambda key: Item(key, UNVERSIONED, None), st.sampled_from(KEYS))
BATCHES = st.lists(
    st.lists(ITEM | TOMBSTONE, min_size=1, max_size=3, unique_by=lambda item: item.key), min_size=1, max_size=12
)


@dataclass
class Model:
    """What the contract says, in ten lines."""

    versions: dict[str, int]
    documents: dict[str, bytes]

    def write(self, item: Item) -> Answer:
        if item.version == UNVERSIONED:
            self.documents.pop(item.key, None)
            return WRITTEN
        if item.version < self.versions.get(item.key, -1):
            return STALE
        self.versions[item.key] = item.version
        if item.document is None:
            self.documents.pop(item.key, None)
        else:
            self.documents[item.key] = item.document
        return WRITTEN


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    with subject_on(servers(), "redis") as made:
        yield made


@pytest.fixture(scope="module")
def sink(subject: Subject) -> Sink:
    return subject.open()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES, replay_from=st.integers(0, 11))
def test_redis_does_what_the_model_says(
    subject: Subject, sink: Sink, batches: list[list[Item]], replay_from: int
) -> None:
    with redis.Redis.from_url(subject.url) as client:
        for key in KEYS:
            value = f"{subject.name}:{VIEW}:{key.replace('{', '%7B').replace('}', '%7D')}"
            client.delete(value, f"hw:v:{{{value}}}")
    model = Model({}, {})
    # A crash replays the log from an earlier point: the same batches again, in order.
    for batch in [*batches, *batches[min(replay_from, len(batches) - 1) :]]:
        assert sink.write(VIEW, batch) == [model.write(item) for item in batch]
    assert held(sink) == {key: (model.versions[key], document) for key, document in model.documents.items()}


CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9)), min_size=1, max_size=15)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, data=st.data())
def test_any_order_and_any_repeats_end_at_the_newest(
    subject: Subject, sink: Sink, changes: list[tuple[str, int | None]], data: st.DataObject
) -> None:
    """Each change of a history has a version of its own; delivered shuffled and repeated, the end is the same."""
    with redis.Redis.from_url(subject.url) as client:
        for found in client.scan_iter(match=f"*{subject.name}*", count=1000):
            client.delete(found)
    history = [Item(key, place, None if n is None else doc(n)) for place, (key, n) in enumerate(changes)]
    delivered = data.draw(st.permutations(history + data.draw(st.lists(st.sampled_from(history), max_size=10))))
    for item in delivered:
        sink.write(VIEW, [item])
    newest = {item.key: item for item in history}
    assert held(sink) == {key: (item.version, item.document) for key, item in newest.items() if item.document}
