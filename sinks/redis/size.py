"""About how much memory the keys below a prefix take, without looking at all of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

# Keys looked at to tell what share of all is meant, and those of them that are weighed: a moment, whatever the size.
LOOKED, WEIGHED = 20_000, 100


def held_bytes(client: Any, prefix: bytes) -> int:
    """An estimate from a part of the keys; exact in number where there are few.

    Args:
        client: a ``redis.Redis`` or ``redis.RedisCluster``.
        prefix: of the keys.

    Raises:
        redis.RedisError: the server went away, or does not allow MEMORY USAGE.
    """
    looked = list(islice(client.scan_iter(count=1000), LOOKED))
    mine = [key for key in looked if key.startswith(prefix)]
    if not mine:
        return 0
    some = mine[:: max(len(mine) // WEIGHED, 1)]
    weight = sum(client.memory_usage(key) or 0 for key in some) / len(some)
    keys = max(client.dbsize(), len(looked)) if len(looked) == LOOKED else len(looked)
    return round(weight * keys * len(mine) / len(looked))
