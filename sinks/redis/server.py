"""The connection of one sink, and what its errors mean: wait, refuse, or tell the caller to come again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cdc.errors import SinkRefused, SinkUnavailable
from cdc.waits import waiting_for
from sinks.contract import OnWait
from sinks.redis.client import (
    ERRORS,
    NO_CLUSTER,
    Client,
    connect,
    is_moved,
    is_passing,
    is_read_only,
    lacks_rights,
    reason_of,
)
from sinks.redis.read import Moving, SlotsMoving
from sinks.redis.script import SOURCE
from sinks.redis.settings import Settings
from sinks.retry import Patience

T = TypeVar("T")

_SLOTS_FIX = (
    "start it again when the move has ended; if none is under way, one was cut: "
    "`redis-cli --cluster check <host>:<port>` names what it left open, `redis-cli --cluster fix <host>:<port>` ends it"
)


class Server:
    """Thread-safe (redis-py's connection pool is); connects at its first use."""

    def __init__(self, settings: Settings, on_wait: OnWait) -> None:
        self.settings, self._on_wait = settings, on_wait
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._made: Client = None

    def client(self) -> Client:
        """The client, our script loaded.

        Raises:
            redis.RedisError: the server does not answer.
        """
        if self._made is None:
            with self._lock:
                if self._made is None:
                    client = connect(self.settings)
                    try:
                        client.script_load(SOURCE)
                    except BaseException:
                        client.close()
                        raise
                    self._made = client
        return self._made

    def patience(self) -> Patience:
        """One write's patience."""
        return Patience(
            self.settings.who, give_up_seconds=self.settings.give_up_seconds, on_wait=self._on_wait, stop=self._stop
        )

    @contextmanager
    def once(self, doing: str) -> Iterator[None]:
        """For setup and reads: no waiting. (A scan must not go on after a restart: the new server's cursors differ.)

        Raises:
            SinkUnavailable: transient. SinkRefused: final.
        """
        who = self.settings.who
        try:
            with waiting_for(f"{who}: {doing}"):
                yield
        except Moving as error:
            raise SinkUnavailable(
                f"{who}: {doing}: keys are being renamed by a promotion",
                fix="start it again when the promotion has ended; one that was killed ends by promoting again",
            ) from error
        except ERRORS as error:
            # MOVED passes where a cluster is asked as one; who asks a single node of it is sent on for ever.
            if lacks_rights(error) or not is_passing(error) or self._is_clusters(error):
                self.wait_or_raise(error, self.patience())
            fix = _SLOTS_FIX if isinstance(error, SlotsMoving) else "start it again"
            raise SinkUnavailable(f"{who}: {doing}: {reason_of(error)}", fix=fix) from error

    def patiently(self, verb: Callable[[Client], T], patience: Patience) -> T:
        """Run one verb, waiting for the server as long as it takes."""
        while True:
            try:
                with waiting_for(self.settings.who):
                    return verb(self.client())
            except ERRORS as error:
                self.wait_or_raise(error, patience)

    def wait_or_raise(self, error: Exception, patience: Patience) -> None:
        """Sleep if the error passes by itself.

        Raises:
            SinkRefused: it does not. SinkUnavailable: the patience has run out.
        """
        who = self.settings.who
        if lacks_rights(error):
            raise SinkRefused(
                f"{who}: {reason_of(error)}", fix="check this sink's user, its password and its rights"
            ) from error
        if not is_passing(error):
            alone = NO_CLUSTER in str(error)
            fix = "leave `cluster` out, or give this sink's user the right to CLUSTER SLOTS" if alone else ""
            raise SinkRefused(f"{who}: {reason_of(error)}", fix=fix) from error
        if self._is_clusters(error):
            raise SinkRefused(f"{who} is part of a Redis Cluster", fix="set `cluster: true` for this sink") from error
        if is_read_only(error) and not self.settings.cluster and self._made is not None:
            self._made.connection_pool.disconnect()  # after a fail-over the name may lead to the new master
        patience.hold(f"{who}: {reason_of(error)}")

    def _is_clusters(self, error: Exception) -> bool:
        return is_moved(error) and not self.settings.cluster

    def close(self) -> None:
        """Give the connections back and wake up who waits. Idempotent."""
        self._stop.set()
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None
