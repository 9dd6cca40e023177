"""The producer of dead letters says nothing on the terminal while the brokers are away."""

from __future__ import annotations

import time

import orjson
import pytest

from cdc.log import letters


def test_it_is_quiet_while_the_brokers_are_away(capfd: pytest.CaptureFixture[str]) -> None:
    producer = letters._producer.__wrapped__(orjson.dumps({"bootstrap.servers": "127.0.0.1:1"}))
    until = time.monotonic() + 3
    while time.monotonic() < until:
        producer.poll(0.1)
    assert capfd.readouterr().err == ""
