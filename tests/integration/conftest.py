"""Fixtures on the local stack, which is started when it does not run. It is shared: tests remove what they make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.endpoints import Endpoints
from tests.support import inside
from tests.support.local import ready
from tests.support.source import SourceDatabase, source_database


@pytest.fixture(scope="session", autouse=True)
def spark_with_jars() -> Iterator[None]:
    """Whoever starts this process's Java machine starts it for all."""
    with inside.with_jars():
        yield


@pytest.fixture(scope="session")
def stack() -> Endpoints:
    """Where the running servers are."""
    return ready().endpoints


@pytest.fixture
def source(stack: Endpoints) -> Iterator[SourceDatabase]:
    """A source database of the test's own."""
    with source_database(stack) as database:
        yield database


@pytest.fixture(scope="module")
def shared_source(stack: Endpoints) -> Iterator[SourceDatabase]:
    """A source database for the tests of one file."""
    with source_database(stack) as database:
        yield database
