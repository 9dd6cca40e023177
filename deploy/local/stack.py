"""The local stack as one thing: bring it up, take it down, look at it, break it for a test."""

from __future__ import annotations

import fcntl
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from cdc.ages import at_least
from cdc.errors import StackError
from cdc.saying import Say, to_nobody
from deploy.local import artifacts, own_classes
from deploy.local.endpoints import Endpoints
from deploy.local.keeper import Keeper
from deploy.local.ports import describe, holder, is_free
from deploy.local.services.base import Service
from deploy.local.services.registry import DEFAULT, SERVICES, select
from deploy.local.site import SYSTEM_DATA, Site


@dataclass(frozen=True)
class ServiceState:
    """One server as ``ps`` shows it.

    ``state``: running, unhealthy (the process is there but can't serve), stopped, or foreign (its port is taken by a
    process that isn't ours). ``rss_mib`` counts the server and its children; ``uptime_seconds`` is 0 when stopped.
    """

    name: str
    state: str
    address: str
    port: int
    pid: int | None = None
    uptime_seconds: float = 0.0
    rss_mib: float = 0.0
    detail: str = ""


class LocalStack:
    """The servers of one home folder.

    Args:
        home: data, logs and pid files; default ``HEADWATER_HOME``, else ``.headwater`` under the current folder.
        port_base: first port; default ``HEADWATER_PORT_BASE``, else 15000.

    Raises:
        StackError: the port base can't be used.
    """

    def __init__(self, home: Path | None = None, port_base: int | None = None) -> None:
        self.site = Site.find(home, port_base)

    @property
    def endpoints(self) -> Endpoints:
        """Addresses and the Postgres superuser's password; StackError if it is lost."""
        return Endpoints.of(self.site)

    def up(
        self, only: Sequence[str] | None = None, progress: Say | None = None, more: Sequence[str] = ()
    ) -> dict[str, float]:
        """Start what isn't running and heal what is half dead; returns when every server is healthy.

        Args:
            only: names of servers; what they need is started too. If None, all that are not optional.
            progress: called with one line at a time, from several threads.
            more: names of servers to start as well.

        Returns:
            Seconds that each server took (0.0: it was already running).

        Raises:
            StackError: the home's path can't be taken by servers (nothing was started); or a server can't be fetched,
                started or reached (the others have been started none the less).
        """
        self.site.refuse_mangled()
        say = progress or to_nobody
        services = select([*(DEFAULT if only is None else only), *more], with_needs=True)
        with self._lock(say):
            wanted = {unit for service in services for unit in service.units()} | ({"spark"} if only is None else set())
            units = artifacts.ensure(sorted(wanted), say)
            futures: dict[str, Future[float]] = {}
            cancelled = threading.Event()
            with ThreadPoolExecutor(len(services), "up") as pool:
                try:
                    for service in services:
                        needed = [futures[name] for name in service.needs]  # needs come first in the showing order
                        futures[service.name] = pool.submit(self._up_one, service, units, needed, say, cancelled)
                    wait(futures.values())
                except BaseException:  # Ctrl-C: what starts goes on starting, but we stop waiting for it
                    cancelled.set()
                    raise
            _raise_all([error for future in futures.values() if (error := future.exception()) is not None])
            if "spark" in wanted:
                own_classes.prepare(self.site, say)
        return {name: future.result() for name, future in futures.items()}

    def _up_one(
        self,
        service: Service,
        units: dict[str, Path],
        needed: list[Future[float]],
        say: Say,
        cancelled: threading.Event,
    ) -> float:
        if any(future.exception() is not None for future in needed):
            raise _NeedFailedError(f"{service.name} was not started: it needs {', '.join(service.needs)}")
        try:
            seconds = Keeper(service, self.site).up(units, say, cancelled)
        except OSError as error:
            raise StackError(f"{service.name} could not be started: {error}") from error
        say(f"{service.name} is up" + (f" after {seconds:.1f} s" if seconds else " (was already)"))
        if not seconds and service.behind(self.site, units):
            only = f"`headwater down --only {service.name}`, then `headwater up`"
            say(f"{service.name} runs other plugins than those of this version: {only}, brings these")
        return seconds

    def down(self, only: Sequence[str] | None = None, progress: Say | None = None) -> list[str]:
        """Stop what we started, dependents first; a server that isn't ours is left alone.

        Returns:
            Names of the servers that were stopped.
        """
        say = progress or to_nobody
        services = select(only, with_needs=False)
        stopped: list[str] = []

        def stop(service: Service) -> None:
            if Keeper(service, self.site).down():
                stopped.append(service.name)
                say(f"{service.name} is stopped")

        with self._lock(say):
            needed = {name for service in services for name in service.needs}
            dependents = [service for service in services if service.needs]
            others = [service for service in services if not service.needs]
            assert not needed & {service.name for service in dependents}, "the order below knows two levels"
            for level in (dependents, others):
                with ThreadPoolExecutor(max(1, len(level)), "down") as pool:
                    list(pool.map(stop, level))
        return [name for name in SERVICES if name in stopped]

    def wipe(self, only: Sequence[str] | None = None) -> list[str]:
        """Delete the data of stopped servers for good.

        Args:
            only: names of servers; all if None.

        Returns:
            Names of the servers that had any.

        Raises:
            StackError: one of them runs.
        """
        services, wiped = select(only, with_needs=False), list[str]()
        with self._lock(to_nobody):
            for service in services:
                if Keeper(service, self.site).find() is not None:
                    raise StackError(f"{service.name} is running: its data stay", fix="stop it first: headwater down")
            for service in services:
                place = self.site.folder("data") / service.name
                if place.is_symlink():
                    target = place.resolve()
                    if target.is_relative_to(SYSTEM_DATA):
                        shutil.rmtree(target, ignore_errors=True)
                        with suppress(OSError):  # another server's data are still there
                            target.parent.rmdir()
                    place.unlink()
                elif place.exists():
                    shutil.rmtree(place)
                else:
                    continue
                wiped.append(service.name)
        return wiped

    def ps(self) -> list[ServiceState]:
        """Look at every server, all at once; an optional one that was never started here is left out."""
        data = self.site.home / "data"
        shown = [service for name, service in SERVICES.items() if not service.optional or (data / name).exists()]
        with ThreadPoolExecutor(len(shown), "ps") as pool:
            return list(pool.map(self._state, shown))

    def _state(self, service: Service) -> ServiceState:
        port, address = self.site.port(service.port_names[0]), service.address(self.site)
        server = Keeper(service, self.site).find()
        if server is None:
            if is_free(port):
                return ServiceState(service.name, "stopped", address, port)
            detail = f"port {port} is taken by {describe(holder(port))}"
            return ServiceState(service.name, "foreign", address, port, detail=detail)
        try:
            ailment = service.ailment(self.site)
        except StackError as error:  # it can't even be asked; the others are shown none the less
            ailment = error.what
        state = "unhealthy" if ailment else "running"
        return ServiceState(service.name, state, address, port, server.pid, *_usage(server.pid), ailment or "")

    def kill(self, service: str, signal: int = signal.SIGKILL) -> None:
        """Send a signal to a running server, for tests; returns after its death if it is SIGKILL.

        Raises:
            StackError: it isn't running.
        """
        [chosen] = select([service], with_needs=False)
        Keeper(chosen, self.site).kill(signal)

    @contextmanager
    def _lock(self, say: Say) -> Iterator[None]:
        """One `up` or `down` at a time in one home."""
        with (self.site.folder("run") / "stack.lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another up or down is at work in this home: waiting for it")
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _raise_all(errors: list[BaseException]) -> None:
    """One error that tells every failure; a need that failed is told once, not again by each dependent."""
    for error in errors:
        if not isinstance(error, StackError):
            raise error
    told = [error for error in errors if not isinstance(error, _NeedFailedError)]
    if len(told) == 1:
        raise told[0]
    if told:
        raise StackError("\n".join(f"{number}. {error}" for number, error in enumerate(told, 1)))


def _usage(pid: int) -> tuple[float, float]:
    """Uptime in seconds and resident memory in MiB of a process and its children.

    In a family, memory that is shared is shared out (PSS): Postgres's buffers are in every backend's RSS again.
    """
    try:
        process = psutil.Process(pid)
        uptime = at_least(process.create_time(), time.time())
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0.0, 0.0
    rss = 0
    for member in family:
        with suppress(psutil.Error):  # Postgres's backends come and go
            rss += member.memory_full_info().pss if len(family) > 1 else member.memory_info().rss
    return uptime, rss / 2**20


class _NeedFailedError(StackError):
    """Not started because something it needs failed: told only through that failure."""
