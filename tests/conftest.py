"""What holds for the whole test run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import sampling, schedule, servers


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Containers end with the tests that made them."""
    yield
    servers.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, without those whose turn it is not."""
    out = sampling.left_out(items)
    if out:
        config.hook.pytest_deselected(items=out)
    rest = set(items) - set(out)
    items[:] = schedule.ordered([item for item in items if item in rest])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> schedule.Files:
    """Whole files to whoever is free."""
    return schedule.Files(config, log)
