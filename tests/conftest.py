"""What holds for the whole test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import sampling, schedule, servers

# Java machines of tests, and of the commands that tests call, live for seconds: on two cores, half of what a start of
# `run` takes is spent on compiling well what will not be called again (80 s of processor time, and 43 s with this).
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# The machine is shared: how long making an example takes says nothing of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Containers end with the tests that made them."""
    yield
    servers.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, without those whose turn it is not."""
    for item in items:
        if name := sampling.group(item):
            item.user_properties.append((sampling.GROUP, name))
    out = sampling.left_out(items)
    if out:
        config.hook.pytest_deselected(items=out)
    rest = set(items) - set(out)
    items[:] = schedule.ordered([item for item in items if item in rest])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> schedule.Files:
    """Whole files to whoever is free."""
    return schedule.Files(config, log)
