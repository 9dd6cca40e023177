"""Work that is killed in the middle, as by the kernel for want of memory: nothing of its end is done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def killed_in_a_fork(work: Callable[[], Any]) -> None:
    """Do something in a copy of this process, which kills itself there."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "it was to be killed"
