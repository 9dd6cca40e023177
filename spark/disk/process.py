"""A process is told from a later one with its number: by when it began, in a figure that no change of the clock moves.

psutil's ``create_time`` is seconds since 1970, made of the moment of boot, which the kernel reckons anew from the
clock: that steps when a virtual machine is resumed, or at the first answer of a time server, and every process on the
machine has begun at another time then.

A state folder may be of several machines, or containers, whose processes have the same numbers: what is kept names the
host as well, and the namespace of the numbers, which containers of one pod have each of their own under one name. From
another place nobody sees a process, only when it said something last. A container that is started again may be another
place than it was: what it has left behind counts until it has been silent for long enough.
"""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from pathlib import Path
from typing import TypedDict

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Its inode is the same for two processes if they see each other's numbers. The host's own has the same at every boot.
NAMESPACE = Path("/proc/self/ns/pid")
# Ticks are hundredths of a second: 36 bits are 21 years without a boot. Above them 17 bits tell boots apart; these 53
# are as many as a float holds exactly. Every figure is greater than seconds since 1970 will be for 2000 years.
_TICKS, _BOOTS = 2**36, 2**17
# Seconds since 1970, of an older Headwater or where there is no /proc, may move by so much.
CLOCK_SECONDS = 2.0


class Signature(TypedDict):
    """What a process leaves of itself in a file: its number, when it began (``born``), and where that counts.

    ``host`` is as ``place`` says it.
    """

    host: str
    pid: int
    started: float


def signature() -> Signature:
    """This process's."""
    return Signature(host=place(), pid=os.getpid(), started=born(os.getpid()))


def place() -> str:
    """Where this process's number counts: the host's name, and its processes' namespace if the kernel has any."""
    try:
        return f"{socket.gethostname()}/{NAMESPACE.stat().st_ino}"
    except OSError:
        return socket.gethostname()


def host_name(host: str) -> str:
    """The host alone of what was kept, to be shown. Pure."""
    return host.partition("/")[0]


def is_here(host: str) -> bool:
    """Whether processes of what was kept are seen here by their numbers.

    Args:
        host: as ``place`` says it; the name alone, or nothing, of an older Headwater, which is taken for one of here.
    """
    return host in ("", socket.gethostname(), place())


def is_namesake(host: str) -> bool:
    """Whether what was kept has this host's name, and is not of here: another container of one pod, or this one before
    it was started again.

    Args:
        host: what was kept.
    """
    return host_name(host) == socket.gethostname() and not is_here(host)


def is_me(host: str, pid: int, started: float) -> bool:
    """Whether what was kept is of this very process."""
    return is_here(host) and pid == os.getpid() and is_same(pid, started)


def is_gone(host: str, pid: int, started: float, silence: float, patience: float) -> bool:
    """Whether a process is no more: on this host by its number and its beginning, on another one by its silence alone.

    Args:
        host: what was kept; empty if nothing was.
        pid: likewise.
        started: likewise; 0 if only the number was.
        silence: for how long it has said nothing (seconds).
        patience: after how long one on another host is taken for gone.
    """
    if not is_here(host):
        return silence > patience
    return not (is_same(pid, started) if started else psutil.pid_exists(pid))


def born(pid: int) -> float:
    """When a process began, to be kept beside its number; 0 if there is none.

    Args:
        pid: its number.

    Returns:
        Which boot and how many ticks after it; seconds since 1970 where the kernel does not tell these.
    """
    boot = _boot()
    ticks = None if boot is None else _ticks(pid)
    return _seconds(pid) if boot is None or ticks is None else float(boot * _TICKS + ticks)


def is_same(pid: int, since: float) -> bool:
    """Whether the process of this number is the one of which ``born`` said so, or an older Headwater (in seconds since
    1970), and no later one.

    Args:
        pid: its number.
        since: what was kept.
    """
    if since < _TICKS:
        return since > 0 and abs(_seconds(pid) - since) < CLOCK_SECONDS
    return born(pid) == since


@cache
def _boot() -> int | None:
    """A number of this boot, never 0; None if the kernel has no name for it."""
    try:
        return uuid.UUID(BOOT_ID.read_text().strip()).int % (_BOOTS - 1) + 1
    except (OSError, ValueError):
        return None


def _ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name is in brackets, and may hold brackets and spaces: what counts begins after the last one.
    return int(text.rpartition(b")")[2].split()[19])


def _seconds(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0
