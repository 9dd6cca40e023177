"""The local stack: how soon it is up, and how much memory it holds."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.results import Measurement
from deploy.local import artifacts
from deploy.local.stack import LocalStack
from spark.machine import startup


def ready(more: Sequence[str] = ()) -> LocalStack:
    """The stack, up, with all that `headwater up` prepares; and ``more`` servers."""
    stack = LocalStack()
    stack.up(progress=print, more=more)
    startup.prepare(artifacts.spark_jars(print)[0].parent, stack.endpoints.spark_archive, print)
    return stack


def measure() -> list[Measurement]:
    """Stop and start the stack once, everything fetched and warm."""
    stack = LocalStack()
    stack.up()
    stack.down()
    began = time.perf_counter()
    stack.up()
    seconds = time.perf_counter() - began
    time.sleep(5)
    rss = sum(service.rss_mib for service in stack.ps())
    return [Measurement("stack_up_warm_s", seconds, "s", 1), Measurement("stack_rss_mib", rss, "MiB", 1)]
