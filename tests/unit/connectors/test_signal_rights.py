"""Brokers with ACLs: a right that signals or notifications lack is named, and is no outage."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError as CoreError

from cdc.errors import KafkaError
from cdc.log.client import Kafka
from cdc.pipeline import loads
from connectors.snapshots import signals
from connectors.snapshots.signals import Notifications, send_snapshot_signal, send_stop_signal
from tests.support.plain_file import plain_file

PIPELINE = loads(plain_file())


class Denied:
    """In place of a ``Producer``, and a ``Consumer``: it may not write, and not read."""

    code = CoreError.TOPIC_AUTHORIZATION_FAILED

    def __init__(self, _settings: Any) -> None:
        pass

    def produce(self, _topic: str, *, on_delivery: Any, **_: Any) -> None:
        on_delivery(CoreError(self.code), None)

    def flush(self, _seconds: float) -> int:
        return 0

    def assign(self, _places: Any) -> None:
        """Nothing."""

    def poll(self, _seconds: float) -> Denied:
        return self

    def error(self) -> CoreError:
        return CoreError(self.code)


def test_a_signal_that_may_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice was `apply` again, for ever."""
    monkeypatch.setattr(signals, "Producer", Denied)
    kafka = Kafka(PIPELINE)
    for send in (
        lambda: send_snapshot_signal(kafka, PIPELINE, {"public.t": None}),
        lambda: send_stop_signal(kafka, PIPELINE, ["public.t"]),
    ):
        with pytest.raises(KafkaError, match=r"not taken by p-signal: .*uthorization failed") as told:
            send()
        assert not told.value.transient and "the right to" in told.value.fix
    monkeypatch.setattr(Denied, "code", CoreError.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError) as told:
        send_snapshot_signal(kafka, PIPELINE, {"public.t": None})
    assert told.value.transient


def test_notifications_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.log.client.Consumer", Denied)
    notifications = Notifications(Kafka(PIPELINE), PIPELINE)
    for read in (notifications.catch_up, notifications.read):
        with pytest.raises(KafkaError, match=r"read from p-notifications: .*uthorization failed") as told:
            read(0.5)
        assert not told.value.transient and "the right to read" in told.value.fix
