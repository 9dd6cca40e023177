"""Options of a secured Kafka where few look: files that executors read as well, and topics that `push` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import Pipeline, loads
from operations.push.writing import topic_of
from operations.run import machines
from tests.support.plain_file import plain_file


def pipeline(options: str) -> Pipeline:
    return loads(plain_file(options=options, more='engine: {master: "spark://127.0.0.1:7077"}'))


def test_executors_must_see_the_clients_certificate_and_its_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They write dead letters with it."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(machines.cluster, "check", lambda _spark, **what: asked.update(what))
    names = ("ca", "certificate", "key")
    of = pipeline(", ".join(f"ssl.{name}.location: /{name}.pem" for name in names))
    machines.check_machines(of, ["cache"], None)  # type: ignore[arg-type]
    assert asked["files"] == [Path(f"/{name}.pem") for name in names]


def test_options_that_no_client_takes_do_not_end_who_pushes() -> None:
    """It goes on, and its verdict says why nothing is delivered."""
    place = topic_of(pipeline("security.protocl: SSL"), "p.changes")
    told = place.open().carry(None, "message", 1, None)  # type: ignore[arg-type]
    assert told.done == "again" and "security.protocl" in told.why
