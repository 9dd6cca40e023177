"""Reading values of a cache back that are large: so many at once as fit, from the first on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdc.paging import BYTES
from sinks.redis.names import Names
from sinks.redis.read import Reads

MB = 1 << 20
WHERE = Names("p:", "v")


class Cluster:
    """Values of one size under some keys; it notes how many bytes were asked for at once, and how often."""

    def __init__(self, count: int, size: int) -> None:
        self.document = b'{"x":"%s"}' % (b"x" * size)
        self.values = {WHERE.own + b"%d" % at for at in range(count)}
        self.asked, self._keys = list[int](), list[bytes]()

    def pipeline(self, transaction: bool) -> Cluster:
        self._keys = []
        return self

    def get(self, key: bytes) -> None:
        self._keys.append(key)

    def execute(self, raise_on_error: bool) -> list[bytes | None]:
        found = [self.document if key in self.values else None for key in self._keys]
        self.asked.append(sum(map(len, filter(None, found))))
        return found


@pytest.mark.parametrize(
    ("there", "size", "asked", "times"), [(60, 2 * MB, 60, 60), (2_000, 10, 2_000, 11), (0, 0, 2_000, 11)]
)
def test_values_are_read_by_as_many_as_fit(there: int, size: int, asked: int, times: int) -> None:
    """Fifty of 20 MB came with the first page; keys that are not there tell no size, and are not asked one by one."""
    client = Cluster(there, size)
    found = Reads(cast(Any, client), cluster=True).get(WHERE, [str(at) for at in range(asked)])
    assert len(found) == there and max(client.asked) <= BYTES and len(client.asked) <= times
