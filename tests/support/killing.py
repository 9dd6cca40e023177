"""kill -9, as the kernel does it to a whole container."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil


def kill_family(pid: int) -> None:
    """kill -9 of a process and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        for one in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
