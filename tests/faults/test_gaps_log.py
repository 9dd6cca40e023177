"""Gaps in the log and in the checkpoints: each is refused by name, and the command that its message names cures it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.scenario import Scenario

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]


def refused(scenario: Scenario, sink: str, *said: str) -> str:
    """`run` ends with 1, and says why."""
    error = scenario.run_error("run", "--sink", sink, "--until-caught-up", "--timeout", "120")
    for word in said:
        assert word in error, error
    return error


def cured(scenario: Scenario, sink: str) -> None:
    """`rebuild --auto`, the command that the messages name, makes a generation that equals Postgres."""
    scenario.readable(allowed=True)
    report = json.loads(scenario.run("rebuild", sink, "--auto", "--json"))
    assert (report["stage"], report["equal"]) == ("living", True)
    scenario.start("--sink", sink)
    scenario.assert_equal("--sink", sink)
    scenario.stop()
    scenario.run("retire", sink, "--yes")


def flow_folder(scenario: Scenario, sink: str, flow: str) -> Path:
    state = scenario.folder / "state" / scenario.name / sink
    return max(state.glob("g*"), key=lambda path: int(path.name[1:])) / flow


def test_fault_18_a_sink_that_was_away_for_longer_than_tombstones_are_kept(scenario: Scenario) -> None:
    scenario.stop()
    unread = flow_folder(scenario, "search", "main") / "unread.json"

    def age() -> None:
        batch, since = json.loads(unread.read_text())["marks"][-1]
        assert since > time.time() - 600
        then = since - 400 * 86400
        unread.write_text(json.dumps({"marks": [[batch, then]], "looks": []}))
        for commit in (unread.parent / "checkpoint" / "commits").iterdir():
            os.utime(commit, (then, then))

    age()
    scenario.start("--sink", "search")  # nothing to read: nothing was missed
    scenario.stop()
    age()
    producer = Producer({"bootstrap.servers": scenario.stack.endpoints.kafka})
    old = int((time.time() - 400 * 86400) * 1000)  # the end of a row that nobody has
    topic, key = f"{scenario.name}.public.order_items", b'{"order_id":-1,"line":1}'
    producer.produce(topic, key=key, value=None, partition=0, timestamp=old)
    producer.flush()
    refused(scenario, "search", "search/main has not caught up for 400", "headwater rebuild FILE search --auto")
    cured(scenario, "search")


def test_fault_32_an_empty_offset_file(scenario: Scenario) -> None:
    scenario.stop()
    offsets = flow_folder(scenario, "search", "main") / "checkpoint" / "offsets"
    newest = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    newest.write_text("")
    refused(scenario, "search", f"offsets/{newest.name} is empty", "headwater rebuild FILE search --auto")
    cured(scenario, "search")


def test_fault_31_a_checkpoint_without_its_metadata(scenario: Scenario) -> None:
    scenario.stop()
    (flow_folder(scenario, "search", "main") / "checkpoint" / "metadata").unlink()
    refused(scenario, "search", "metadata is missing", "headwater rebuild FILE search --auto")
    cured(scenario, "search")


def _remove(admin: AdminClient, topic: str) -> None:
    for future in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
        future.result()


def test_fault_33_offsets_that_the_log_no_longer_has(scenario: Scenario) -> None:
    scenario.stop()
    admin = AdminClient({"bootstrap.servers": scenario.stack.endpoints.kafka})
    topic = f"{scenario.name}.public.products"
    scenario.execute("UPDATE products SET name = name || '-'")
    time.sleep(3)
    # A broker removes records only from topics that may lose old ones, as an operator's mistake would make it.
    for policy in ("compact,delete", "compact"):
        settings = ConfigResource(ConfigResource.Type.TOPIC, topic)
        settings.add_incremental_config(
            ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        )
        for future in admin.incremental_alter_configs([settings]).values():
            future.result()
        if policy == "compact,delete":
            _remove(admin, topic)
    refused(scenario, "search", f"{topic}/0 begins at", "headwater apply FILE --wait")
    scenario.readable(allowed=True)
    scenario.run("apply", "--wait")
    cured(scenario, "search")


def test_fault_33_a_topic_that_was_deleted_and_made_again(scenario: Scenario) -> None:
    scenario.stop()
    admin = AdminClient({"bootstrap.servers": scenario.stack.endpoints.kafka})
    topic = f"{scenario.name}.public.products"
    for future in admin.delete_topics([topic]).values():
        future.result()
    time.sleep(2)
    scenario.readable(allowed=True)
    scenario.run("apply", "--wait")
    refused(scenario, "search", f"topic {topic} was deleted and created again", "headwater apply FILE --wait")
    cured(scenario, "search")
