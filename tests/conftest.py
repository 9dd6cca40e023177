"""What holds for the whole test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import servers


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Containers end with the tests that made them."""
    yield
    servers.close()
