"""A running pipeline that the tests of one file break, one after the other."""

from collections.abc import Iterator

import pytest

from tests.support.local import ready
from tests.support.scenario import Scenario
from tests.support.servers import Servers


@pytest.fixture(scope="session")
def local_stack() -> Servers:
    """The servers; started when they do not run."""
    return ready()


@pytest.fixture(scope="module")
def scenario(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """A captured shop with a running pipeline."""
    # A keyword without ignore_above refuses words over 32,766 bytes: that is the poison.
    keyword = {"sinks.search.mapping.name": {"type": "keyword", "fields": {}}}
    made = Scenario(local_stack, tmp_path_factory.mktemp("scenario"), extra=keyword)
    with made.running():
        yield made
