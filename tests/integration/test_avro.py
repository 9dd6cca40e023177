"""Avro from commit to document, and what happens when columns change, the registry is away, or a record is none.

The evolution runs in both formats: they must end the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support.evolving import Evolving, Writer
from tests.support.local import ready
from tests.support.sampling import in_turn
from tests.support.source import eventually

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module", params=in_turn("json", "avro", ring=True))
def evolving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evolving]:
    stack = ready()
    stack.up(more=["registry"] if request.param == "avro" else ())
    made = Evolving(stack, tmp_path_factory.mktemp("evolving"), form=request.param)
    with made.running():
        yield made


def values(made: Evolving, table: str) -> list[bytes]:
    """Every value of a table's topic, oldest first in each partition."""
    settings = {"group.id": "test", "bootstrap.servers": made.stack.endpoints.kafka, "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    found: list[bytes] = []
    try:
        for partition in range(2):
            consumer.assign([TopicPartition(f"{made.name}.public.{table}", partition, OFFSET_BEGINNING)])
            while (message := consumer.poll(10)) is not None and not message.error():
                if value := message.value():
                    found.append(bytes(value))
    finally:
        consumer.close()
    return found


def versions(made: Evolving) -> list[int]:
    """Versions of the things' schema in the registry."""
    answer = requests.get(f"{made.stack.endpoints.registry_url}/subjects/{made.name}.public.things-value/versions")
    found: list[int] = answer.json()
    return found


def test_the_first_rows_arrive(evolving: Evolving) -> None:
    evolving.assert_settled()
    first = {value[:1] for value in values(evolving, "things")}
    assert first == ({b"{"} if evolving.form == "json" else {b"\0"})


def test_columns_come_go_and_widen_while_traffic_flows(evolving: Evolving) -> None:
    before = {flow["flow"]: flow["pid"] for flow in flows(evolving)}
    with Writer(evolving.conninfo) as writer:
        for change in (
            "ADD COLUMN came text DEFAULT 'here'",
            "DROP COLUMN gone",
            "ALTER n TYPE bigint",
            "ALTER a TYPE text",
            "ALTER price TYPE numeric(12,2)",
            'ADD COLUMN "and then" int[]',
            "DROP COLUMN came",
        ):
            time.sleep(1)
            evolving.execute(f"ALTER TABLE things {change}")
        writer.largest = 10**12  # type: ignore[attr-defined]
        time.sleep(2)
    evolving.execute(
        "UPDATE things SET n = 5000000000, a = 'longer than eight' WHERE id = (SELECT min(id) FROM things)"
    )
    evolving.assert_settled()
    # The last column's going may just be taken up.
    assert eventually(lambda: {flow["state"] for flow in flows(evolving)} == {"running"}, 60), flows(evolving)
    after = flows(evolving)
    assert {flow["flow"]: flow["pid"] for flow in after} == before
    if evolving.form == "avro":
        assert len(versions(evolving)) >= 6  # each change of a column made a schema, and all are still read
    refused = [letter for letter in evolving.dead_letters() if letter["view"] != evolving.view("thing")]
    assert not refused


def flows(made: Evolving) -> list[dict[str, Any]]:
    report = made.status()
    return [flow for sink in report["sinks"] for flow in sink["flows"]]


def test_a_row_that_is_only_in_the_topic_is_swept(evolving: Evolving) -> None:
    """Headwater writes its own deletes as the topic is written."""
    newest = values(evolving, "things")[-1]
    evolving.produce("things", b'{"id":7777}', newest)
    assert eventually(lambda: "7777" in evolving.in_redis("thing"), 60)
    evolving.readable(allowed=True)
    try:
        evolving.run("resnapshot", "public.things", "--wait")
    finally:
        evolving.readable(allowed=False)
    evolving.assert_settled()
    first = {value[:1] for value in values(evolving, "things")}
    assert first == ({b"{"} if evolving.form == "json" else {b"\0"})


def test_what_is_no_record_goes_to_the_dead_letters(evolving: Evolving) -> None:
    if evolving.form == "json":
        pytest.skip("tests/faults has it for JSON")
    known = next(value for value in values(evolving, "things") if value[:1] == b"\0")
    wrong = {
        b'{"id":9001}': (b"no Avro at all", "does not begin with a zero byte"),
        b'{"id":9002}': (b"\0\x7f\xff\xff\xfe" + known[5:], "the schema registry has no schema 2147483646"),
        b'{"id":9003}': (known[:5] + b"\x02\xff\xff", "it is not Avro of schema"),
        b'{"id":9004}': (known + b"more", "4 bytes are left"),
        b'{"id":9005}': (known[:3], "does not begin with a zero byte"),
    }
    for key, (value, _) in wrong.items():
        evolving.produce("things", key, value)
    evolving.execute("INSERT INTO things (id, a, n) VALUES (9000, 'after', 1)")
    evolving.assert_settled()
    letters = {letter["key"]: letter["reason"] for letter in evolving.dead_letters() if letter["sink"] == "search"}
    for key, (_, reason) in wrong.items():
        assert reason in letters.get(key.decode(), ""), (key, letters.keys())


def test_without_the_registry_nothing_is_skipped(evolving: Evolving) -> None:
    """What is known goes on; what is not waits, and is decided when the registry is back."""
    if evolving.form == "json":
        pytest.skip("JSON needs none")
    evolving.stack.kill("registry")
    evolving.execute("UPDATE things SET a = 'known' WHERE id < 50")
    evolving.assert_settled()  # schemas are kept by the connector and by the engine
    # Documents are written before their offsets are committed and told.
    evolving.wait(lambda report: all(sink["lag_events"] == 0 for sink in report["sinks"]))
    time.sleep(2)
    offsets = {flow["flow"]: flow["offsets"] for flow in flows(evolving)}
    evolving.produce("things", b'{"id":9010}', b"\0\x7f\xff\xff\xfd" + b"x")
    evolving.execute("UPDATE things SET a = 'behind' WHERE id < 100")
    waiting: set[str] = set()
    assert eventually(lambda: not waiting_still(evolving, waiting), 120), (flows(evolving), evolving.log())
    evolving.stop()
    evolving.launch()  # new processes know no schema at all
    time.sleep(10)
    assert evolving.runner is not None and evolving.runner.poll() is None, evolving.log()
    for flow in flows(evolving):
        topic = f"{evolving.name}.public.things"
        assert moved(offsets[flow["flow"]].get(topic), flow["offsets"].get(topic)) <= 1, "past the record"
    evolving.execute("ALTER TABLE things ADD COLUMN unheard text")
    evolving.execute("UPDATE things SET a = 'unheard' WHERE id < 20")
    assert eventually(lambda: "FAILED" in connector(evolving), 60), connector(evolving)
    evolving.stack.up(["registry"])
    evolving.run("apply")  # starts the connector's task again
    evolving.assert_settled(180)
    letters = [letter for letter in evolving.dead_letters() if letter["key"] == '{"id":9010}']
    assert {letter["sink"] for letter in letters} == {"cache", "search"}


def connector(made: Evolving) -> str:
    """The connector's status."""
    return requests.get(f"{made.stack.endpoints.connect_url}/connectors/headwater-{made.name}/status", timeout=20).text


def waiting_still(made: Evolving, seen: set[str]) -> set[str]:
    """Flows that were not yet seen to be tried again for want of the registry."""
    found = flows(made)
    for flow in found:
        why = str(flow["last_error"])
        if "schema registry" in why and "does not answer" in why and flow["state"] != "failed":
            seen.add(flow["flow"])
    return {flow["flow"] for flow in found} - seen


def moved(before: dict[str, int] | None, after: dict[str, int] | None) -> int:
    """In how many partitions a flow has gone on."""
    return sum((after or {}).get(part, at) != at for part, at in (before or {}).items())


def test_the_format_of_a_living_pipeline_may_change(evolving: Evolving) -> None:
    """Both ways; the topics then hold both, and nobody reads anything anew."""
    evolving.stack.up(["registry"])
    evolving.stop()
    evolving.form = "avro" if evolving.form == "json" else "json"
    evolving.write_pipeline()
    evolving.run("apply")
    evolving.start()
    evolving.execute("UPDATE things SET a = 'changed' WHERE mod(id, 2) = 0")
    evolving.assert_settled()
    assert {value[:1] for value in values(evolving, "things")} >= {b"{", b"\0"}
