"""Fixtures on the local stack, which is started when it does not run. It is shared: tests remove what they make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from elasticsearch import Elasticsearch

from cdc.errors import SourceError
from deploy.local.endpoints import Endpoints
from examples.common import Server, connect, conninfo
from tests.support import inside
from tests.support.local import ready
from tests.support.servers import Servers, servers
from tests.support.sinks import Subject, client_of, subject_on
from tests.support.source import SourceDatabase, source_database


@pytest.fixture(scope="session", autouse=True)
def spark_with_jars() -> Iterator[None]:
    """Whoever starts this process's Java machine starts it for all."""
    with inside.with_jars():
        yield


@pytest.fixture(scope="session")
def local_stack() -> Servers:
    """The servers; started when they do not run."""
    return ready()


@pytest.fixture(scope="session")
def stack(local_stack: Servers) -> Endpoints:
    """Where the running servers are."""
    return local_stack.endpoints


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


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Elasticsearch as a sink, or another search server that a file names; files about Redis have their own."""
    with subject_on(servers(), getattr(request, "param", "elasticsearch")) as made:
        yield made


@pytest.fixture
def client(subject: Subject) -> Iterator[Elasticsearch]:
    """Its server, asked directly."""
    with client_of(subject) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Server:
    """The stack's Postgres: as the environment says, or started here."""
    try:
        connect(conninfo(Server.from_environment(), "postgres")).close()
        return Server.from_environment()
    except SourceError:
        stack = servers()
        stack.up(["postgres"])
        return Server.from_environment(stack.endpoints.environment())
