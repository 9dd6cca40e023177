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
# What a server that takes no writes calls itself.
REPLICAS = ("slave", "replica")

# What the client raises; RedisClusterException is no RedisError, and comes from its own look at the cluster.
ERRORS = (redis.RedisError, redis.exceptions.RedisClusterException, OSError)

# Said by the server for a while: full memory, starting, fail-over, a slow script, a full disk. The client makes classes
# of some and cuts the word off; errors inside a script come wrapped in text on 6.2, so there the word is searched, but
# only where a server puts it: a text may quote a key, which may hold any word.
_PASSING_KINDS = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.SlotNotCoveredError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,
    OSError,
)
_WORD = r"(?:^|: -?)({})\b"
_PASSING = re.compile(
    _WORD.format("OOM|LOADING|READONLY|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|MISCONF|BUSY|NOREPLICAS|MOVED|ASK|UNBLOCKED")
)
# Of a cluster that is away or changing: the client's own words, it has one class for these and for lasting ones.
_CHANGING = re.compile(
    "cannot be connected|slots are not covered|could not agree|No targets were found|doesn't exist in the cluster"
)
# Whatever stands around it: waiting does not help. (A crossed slot is a name of ours that does not fit a cluster.)
NO_CLUSTER = "Cluster mode is not enabled"
_LASTING = re.compile(
    rf"CERTIFICATE_VERIFY_FAILED|NO_CERTIFICATE_OR_CRL_FOUND|{NO_CLUSTER}|CROSSSLOT|hash to the same slot"
    "|map to the same key slot"
)
# What a command inside a script is refused with has no word of its own: up to 7.0 the one text, then the other.
_RIGHTS = re.compile(
    r"\b(NOAUTH|WRONGPASS|NOPERM)\b|invalid (username-)?password"
    r"|ACL failure in script|The user executing the script can't"
)
# What a single item can cause: its version's key is of another type, or it is too large for the server.
_OF_AN_ITEM = re.compile("^WRONGTYPE|^(ERR )?string exceeds maximum allowed size")


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
    return isinstance(error, redis.exceptions.NoScriptError) or _says("NOSCRIPT", error)


def is_moved(error: Exception) -> bool:
    """The key lives on another node: seen without a cluster client, the server is part of a cluster."""
    return isinstance(error, redis.exceptions.MovedError) or _says("MOVED", error)


def is_read_only(error: Exception) -> bool:
    """The server is a replica now."""
    return isinstance(error, redis.exceptions.ReadOnlyError) or _says("READONLY", error)


def lacks_rights(error: Exception) -> bool:
    """Wrong password or no permission: waiting does not help. (AuthenticationError *is* a ConnectionError.)"""
    return isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError) or bool(
        _RIGHTS.search(str(error))
    )


def is_passing(error: Exception) -> bool:
    """May the same command succeed later?"""
    text = str(error)
    if lacks_rights(error) or _LASTING.search(text):
        return False
    if isinstance(error, _PASSING_KINDS):
        return True
    if isinstance(error, redis.exceptions.RedisClusterException):
        return bool(_CHANGING.search(text))
    return bool(_PASSING.search(text))


def is_of_an_item(error: Exception) -> bool:
    """Is one item of a script's call refused for what it is? Whatever else the server says would meet all others too.

    Args:
        error: of one item; the answer to a whole call is never one's fault.
    """
    return bool(_OF_AN_ITEM.search(str(error)))


def _says(word: str, error: Exception) -> bool:
    return bool(re.search(_WORD.format(word), str(error)))


def reason_of(error: Exception) -> str:
    """One line for a person."""
    return f"{type(error).__name__}: {error}"[:500]
