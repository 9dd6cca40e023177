"""Start a server that outlives us, find it again, and stop that one and no other.

A pid alone names nothing: pids are used again. A server is known by boot id, pid and start time (in clock ticks since
boot, which no clock change can move), kept in its pid file; together they are unique.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from cdc.errors import StackError
from deploy.local.account import Account

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Start a fresh log when the old one has this size: a server that complains for weeks must not fill the disk.
LOG_BYTES = 10 * 2**20
# What a server gets to see of our environment; nothing of ours (secrets, JAVA_TOOL_OPTIONS …) leaks into it.
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC"}
# A one-off program (initdb, Kafka's format) takes seconds; on a machine this slow nothing else would work either.
ONCE_SECONDS = 180.0
# On a machine that has more to do than it can, a start takes as many times longer; beyond this something else is wrong.
MOST_PATIENCE = 5.0
# Children of this process, so that a killed one is reaped and does not stay as a zombie.
_children: list[subprocess.Popen[bytes]] = []


@atexit.register
def _let_go() -> None:
    """Servers outlive us on purpose: without this Python warns of each when it ends."""
    for child in _children:
        if child.poll() is None:
            child.returncode = 0


@dataclass(frozen=True)
class Launch:
    """What to start. ``env`` comes on top of ENVIRONMENT.

    ``pid_file``: for a server whose starter ends when the server is ready and leaves the server's pid here.
    """

    argv: Sequence[str]
    cwd: Path
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    account: Account | None = None
    pid_file: Path | None = None
    starter_seconds: float = 120.0


class StartError(StackError):
    """A server could not be started; its logs say why."""


class InterruptedStartError(StackError):
    """Someone pressed Ctrl-C while a server was starting."""


@dataclass(frozen=True)
class Record:
    """A started server: enough to recognise it for sure."""

    service: str
    pid: int
    ticks: int
    boot: str

    @classmethod
    def load(cls, path: Path) -> Record | None:
        """Read a pid file; None if there is none or it can't be understood."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def save(self, path: Path) -> None:
        """Write the pid file in one step."""
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self)) + "\n")
        temporary.replace(path)

    def alive(self) -> bool:
        """Is that very process running (a zombie is not)?"""
        for child in _children:
            child.poll()
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks


def boot_id() -> str:
    """The kernel's name for this boot."""
    return BOOT_ID.read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When ``pid`` started, in clock ticks since boot; None if it isn't running."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return None if state in "ZX" else int(rest[18])


def record(service: str, pid: int) -> Record | None:
    """A record of the running process ``pid``; None if it is gone."""
    ticks = start_ticks(pid)
    return None if ticks is None else Record(service, pid, ticks, boot_id())


def spawn(service: str, launch: Launch, cancelled: threading.Event) -> Record:
    """Start a server in a session of its own: it survives our exit and a Ctrl-C in our terminal.

    Raises:
        StackError: the program can't be started, or ended at once.
    """
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    if launch.log.exists() and launch.log.stat().st_size > LOG_BYTES:
        launch.log.replace(launch.log.with_suffix(".old.log"))
    account = launch.account
    with launch.log.open("ab") as log:
        log.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S')} starting {service}\n".encode())
        log.flush()
        try:
            child = subprocess.Popen(
                [*launch.argv],
                cwd=launch.cwd,
                env={**ENVIRONMENT, **launch.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        except OSError as error:
            raise StackError(f"{service}: can't start {launch.argv[0]}: {error.strerror}") from error
    if launch.pid_file is not None:
        return _from_starter(service, child, launch, cancelled)
    _children.append(child)
    started = record(service, child.pid)
    if started is None:
        raise StartError(f"{service} ended at once")
    return started


def run_once(what: str, argv: Sequence[str], cwd: Path, account: Account | None = None) -> None:
    """Run a program to its end; StackError with its last lines if it fails."""
    try:
        result = subprocess.run(
            [*argv],
            cwd=cwd,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=ONCE_SECONDS,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{what} did not end within {ONCE_SECONDS:.0f} s") from None
    if result.returncode != 0:
        tail = "\n".join(f"    {line}" for line in result.stdout.decode(errors="replace").splitlines()[-8:])
        raise StackError(f"{what} failed (exit code {result.returncode}):\n{tail}")


def load() -> str:
    """How busy the machine is, in words."""
    return f"load {os.getloadavg()[0]:.0f} on {os.cpu_count() or 1} processors"


def patience() -> float:
    """How many times longer than on an idle machine a start may take: by the load of the last minute. One that is ended
    for being slow begins from nothing the next time, and would be ended again."""
    return min(MOST_PATIENCE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def _from_starter(service: str, starter: subprocess.Popen[bytes], launch: Launch, cancelled: threading.Event) -> Record:
    """Wait for the starter to end and take over the server whose pid it leaves."""
    assert launch.pid_file is not None
    began = time.monotonic()
    while (code := starter.poll()) is None:
        if cancelled.wait(0.1) or time.monotonic() > began + launch.starter_seconds * patience():
            # Starter and half-started server are one process group (the session made in spawn): both must go.
            os.killpg(starter.pid, signal.SIGKILL)
            starter.wait()
            if cancelled.is_set():
                raise InterruptedStartError(f"{service} was not started: interrupted")
            raise StartError(f"{service} was not ready after {time.monotonic() - began:.0f} s and was ended ({load()})")
    try:
        pid = int(launch.pid_file.read_text())
    except (OSError, ValueError):
        raise StartError(f"{service} did not start (exit code {code})") from None
    started = record(service, pid)
    if started is None:
        raise StartError(f"{service} ended right after its start")
    return started


def stop(server: Record, with_signal: int, seconds: float) -> bool:
    """Stop a server by ``with_signal``; after ``seconds`` by SIGKILL. True if it ended by itself.

    The process is pinned by a pidfd before it is looked at, so the signal can't hit a later process with its pid.
    """
    try:
        handle = os.pidfd_open(server.pid)
    except OSError:
        return True
    try:
        if not server.alive():
            return True
        signal.pidfd_send_signal(handle, with_signal)
        if select.select([handle], [], [], seconds)[0]:
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 10)
        return False
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
        server.alive()  # reaps it if it was our child


def matching(is_ours: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """Every living process that ``is_ours``; those we may not look at are not ours."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and is_ours(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def log_tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, indented, for an error message; empty if there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 16384))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    tail = [line[:300] for line in text.splitlines() if line.strip()][-lines:]
    return f"\n  last lines of {log}:\n" + "\n".join(f"    {line}" for line in tail)


def send(server: Record, with_signal: int) -> None:
    """Send a signal to that very process; nothing if it is gone."""
    try:
        handle = os.pidfd_open(server.pid)
    except OSError:
        return
    try:
        if server.alive():
            signal.pidfd_send_signal(handle, with_signal)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
