"""Servers killed under a writing sink: a stack of the tests' own, on ports of its own, because it is shot at."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from elasticsearch import Elasticsearch

from deploy.local.stack import LocalStack
from sinks.contract import STALE, WRITTEN, Item
from tests.support.sinks import VIEW, Subject, doc, held, items, subject_on

pytestmark = [pytest.mark.stack, pytest.mark.fault]

# Below the kernel's ephemeral ports: an outgoing connection could hold a port of ours for a moment.
BASE = 21000
SERVICE = {"elasticsearch": "elasticsearch", "redis": "redis-cache"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    made = LocalStack(tmp_path_factory.mktemp("sinks") / "home", BASE)
    yield made
    made.down()
    made.wipe()


@pytest.fixture(params=["elasticsearch", "redis"])
def subject(request: pytest.FixtureRequest, stack: LocalStack) -> Iterator[Subject]:
    with subject_on(stack, request.param) as made:
        yield made


@pytest.fixture
def search(stack: LocalStack) -> Iterator[Subject]:
    with subject_on(stack, "elasticsearch") as made:
        yield made


@pytest.mark.sampled
def test_fault_16_killed_and_restarted_in_the_middle_of_a_write(subject: Subject, stack: LocalStack) -> None:
    sink = subject.open(request_timeout_seconds=10.0)
    sink.setup()
    versions = range(1, 13)
    count = 3000 if subject.kind == "redis" else 1500
    done: list[int] = []
    wrong: list[object] = []

    def write() -> None:
        try:
            for version in versions:
                answers = sink.write(VIEW, [Item(str(n), version, doc(version)) for n in range(count)])
                wrong.extend(answer for answer in answers if answer != WRITTEN)
                done.append(version)
        except BaseException as error:
            wrong.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    while len(done) < 3 and writer.is_alive():
        time.sleep(0.01)
    stack.kill(SERVICE[subject.kind])
    before = len(done)
    time.sleep(1.5)
    assert len(done) == before, "nothing may be called written while the server is dead"
    assert writer.is_alive()
    stack.up([SERVICE[subject.kind]])
    writer.join(90)
    assert not wrong
    assert done == list(versions)
    assert held(subject.open()) == {str(n): (12, doc(12)) for n in range(count)}
    assert subject.waits


@pytest.mark.sampled
def test_fault_14_a_delete_survives_a_restart_of_elasticsearch(search: Subject, stack: LocalStack) -> None:
    """Elasticsearch itself forgets deletes at a restart, whatever ``gc_deletes`` says: the control index shows it."""
    control = f"{search.name}_g9"
    sink = search.open()
    sink.setup()
    sink.write(VIEW, items(3, 10))
    sink.write(VIEW, [Item("1", 20, None)])
    with Elasticsearch(search.url, request_timeout=60) as client:
        client.indices.create(index=control, settings={"gc_deletes": "1h"})
        client.index(index=control, id="1", version=10, version_type="external_gte", document={})
        client.delete(index=control, id="1", version=20, version_type="external_gte")
        client.indices.flush(index=f"{search.name}_g1,{control}")
    stack.down(["elasticsearch"])
    stack.up(["elasticsearch"])
    assert sink.write(VIEW, [Item("1", 15, doc(15)), Item("2", 15, doc(2))]) == [STALE, WRITTEN]
    assert set(held(sink)) == {"0", "2"}
    with Elasticsearch(search.url, request_timeout=60) as client:
        forgotten = client.options(ignore_status=409).index(
            index=control, id="1", version=15, version_type="external_gte", document={}
        )
    assert forgotten.meta.status == 201, "if the server remembers now, the fences may be simplified"


@pytest.mark.sampled
def test_a_kill_between_fence_and_delete_loses_nothing(search: Subject, stack: LocalStack) -> None:
    """The batch that was cut is repeated by the engine: fence again, delete again."""
    sink = search.open(request_timeout_seconds=10.0)
    sink.setup()
    sink.write(VIEW, items(2, 10))
    inner = sink._send_all  # type: ignore[attr-defined]

    def kill_first(*arguments: object) -> None:
        stack.kill("elasticsearch")
        threading.Thread(target=stack.up, args=(["elasticsearch"],), daemon=True).start()
        inner(*arguments)

    sink._send_all = kill_first  # type: ignore[attr-defined]
    assert sink.write(VIEW, [Item("1", 20, None)]) == [WRITTEN]
    sink._send_all = inner  # type: ignore[attr-defined]
    stack.up(["elasticsearch"])
    assert sink.write(VIEW, [Item("1", 20, None), Item("0", 9, doc(9))]) == [WRITTEN, STALE]
    assert set(held(sink)) == {"0"}
