"""The Redis client (one server or a cluster), and which of its errors pass by themselves."""

from __future__ import annotations

import re
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from sinks.redis.settings import Settings

Client = Any  # redis.Redis | RedisCluster: same verbs here, no common base worth naming

CONNECT_SECONDS = 5.0

# Said by the server for a while: full memory, starting, fail-over, a slow script, a full disk. The client makes classes
# of some and cuts the word off; errors inside a script come wrapped in text on 6.2, so there the word is searched.
_PASSING_KINDS = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.RedisClusterException,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,
    redis.exceptions.MovedError,
    OSError,
)
_PASSING = re.compile(
    r"\b(OOM|LOADING|READONLY|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|MISCONF|BUSY|NOREPLICAS|MOVED|ASK|UNBLOCKED)\b"
)
_RIGHTS = re.compile(r"\b(NOAUTH|WRONGPASS|NOPERM)\b|invalid (username-)?password")


def connect(settings: Settings) -> Client:
    """A client that repeats nothing by itself. A cluster's first contact happens here (it asks for the slots).

    Raises:
        redis.RedisError: a cluster that does not answer.
    """
    options: dict[str, Any] = {
        "socket_timeout": settings.request_timeout_seconds,
        "socket_connect_timeout": min(CONNECT_SECONDS, settings.request_timeout_seconds),
        "socket_keepalive": True,
    }
    if settings.user:
        options["username"] = settings.user
    if settings.password:
        options["password"] = settings.password
    if settings.ca_certs and settings.url.startswith("rediss"):
        options["ssl_ca_certs"] = settings.ca_certs
    if settings.cluster:
        # Its own retries follow moved slots; waiting for servers is ours.
        return RedisCluster.from_url(settings.url, retry=Retry(NoBackoff(), 3), **options)  # type: ignore[no-untyped-call]
    return redis.Redis.from_url(settings.url, retry=Retry(NoBackoff(), 0), **options)


def is_no_script(error: Exception) -> bool:
    """The server restarted (or its scripts were flushed) and must be given the script again."""
    return isinstance(error, redis.exceptions.NoScriptError) or "NOSCRIPT" in str(error)


def is_moved(error: Exception) -> bool:
    """The key lives on another node: seen without a cluster client, the server is part of a cluster."""
    return isinstance(error, redis.exceptions.MovedError) or "MOVED" in str(error)


def is_read_only(error: Exception) -> bool:
    """The server is a replica now."""
    return isinstance(error, redis.exceptions.ReadOnlyError) or "READONLY" in str(error)


def lacks_rights(error: Exception) -> bool:
    """Wrong password or no permission: waiting does not help. (AuthenticationError *is* a ConnectionError.)"""
    return isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError) or bool(
        _RIGHTS.search(str(error))
    )


def is_passing(error: Exception) -> bool:
    """May the same command succeed later?"""
    if lacks_rights(error) or "CERTIFICATE_VERIFY_FAILED" in str(error):
        return False
    return isinstance(error, _PASSING_KINDS) or bool(_PASSING.search(str(error)))


def reason_of(error: Exception) -> str:
    """One line for a person."""
    return f"{type(error).__name__}: {error}"[:500]
