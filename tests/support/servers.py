"""The servers that tests run against: the local stack's processes, or containers; tests do not see which.

``HEADWATER_TEST_SERVERS=containers`` chooses containers made from our images (`make test-containers`).
"""

from __future__ import annotations

import os
import signal as signals
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import pytest

from deploy.local.endpoints import Endpoints
from deploy.local.site import Site
from deploy.local.stack import LocalStack

CHOICE = "HEADWATER_TEST_SERVERS"


class Servers(Protocol):
    """What tests ask of the servers. ``site`` has their ports, and a folder for what tests keep."""

    @property
    def site(self) -> Site: ...

    @property
    def endpoints(self) -> Endpoints: ...

    def up(self, only: Sequence[str] | None = None, *, more: Sequence[str] = ()) -> Any:
        """Start what does not run (these and what they need; all usual ones if None), and ``more``; wait for health."""

    def kill(self, service: str, signal: int = signals.SIGKILL) -> None:
        """Send a signal to a server; return after its death if it is SIGKILL."""


def servers() -> Servers:
    """The servers of this test run."""
    chosen = os.environ.get(CHOICE) or "local"
    if chosen == "local":
        return LocalStack()
    assert chosen == "containers", f"{CHOICE}={chosen}: there are local and containers"
    return _containers()


def require(stack: Servers, service: str) -> None:
    """Skip a test of a server that these do not include: there are images of the usual ones only."""
    if not isinstance(stack, LocalStack) and service in ("elasticsearch-9", "opensearch"):
        pytest.skip(f"{service} has no image")


@cache
def _containers() -> Any:
    from tests.support.containers import Containers

    return Containers()


def close() -> None:
    """End what tests must not leave behind: containers. The local stack stays up for the next run."""
    if _containers.cache_info().currsize:
        _containers().close()
        _containers.cache_clear()
