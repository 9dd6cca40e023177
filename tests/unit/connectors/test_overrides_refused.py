"""A worker whose policy lets no connector set up its producer: each setting it names is Headwater's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.preflight import worker
from connectors.preflight.model import Site
from connectors.rest import of_the_worker

SAID = "The 'None' policy does not allow 'linger.ms' to be overridden in the connector configuration."
WORSE = "Invalid value soon for configuration linger.ms: Not a number of type LONG"


@pytest.mark.parametrize(
    ("complaint", "fix"),
    [
        (f"producer.override.linger.ms: {SAID}", "connector.client.config.override.policy=All"),
        (f"producer.override.linger.ms: {WORSE}", "correct what it names"),  # of somebody's connect.options
        ("exactly.once.support: This worker does not have exactly-once enabled", "exactly.once.source.support=enabled"),
        ("database.hostname: no such host", "correct what it names"),
    ],
)
def test_what_lies_in_the_workers_own_settings_is_mended_there(
    monkeypatch: pytest.MonkeyPatch, complaint: str, fix: str
) -> None:
    """It was "correct what it names": a setting that is nowhere in the file."""
    monkeypatch.setattr(worker, "connector_config", lambda *_: {})
    monkeypatch.setattr(worker, "connector_name", lambda _: "headwater-shop")
    connect = SimpleNamespace(validate=lambda _: [complaint])
    site: Any = SimpleNamespace(
        pipeline=None,
        catalogue=None,
        facts={},
        connect=connect,
        db=SimpleNamespace(info=SimpleNamespace(server_version=170000)),
    )
    [found] = worker._accepted(cast(Site, site), ())
    assert found.fix.startswith(("set ", "correct ")) and fix in found.fix and complaint in found.message


def test_so_it_is_where_the_worker_refuses_to_create_it() -> None:
    """Its answer to POST has no option's name."""
    answer = f"Connector configuration is invalid and contains the following 1 error(s): {SAID} You can also find …"
    assert of_the_worker(answer) == "set connector.client.config.override.policy=All on every worker"
