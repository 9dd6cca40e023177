"""Documents in Redis: plain values, guarded by a version key beside each, deletes fenced."""

from sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
