"""Programs that Spark's virtual machine starts."""

from __future__ import annotations

from typing import Any

import psutil
from pyspark.sql import SparkSession

# CPU seconds that a Python worker of an earlier test takes to end, whenever it does. Ten batches with a program for
# each file take 0.34, fifteen commits 0.5.
OTHERS = 0.1


def of_ended_children(spark: SparkSession) -> float:
    """CPU seconds of the programs that Spark's virtual machine has started, and that have ended."""
    jvm: Any = spark._jvm
    times = psutil.Process(jvm.java.lang.ProcessHandle.current().pid()).cpu_times()
    return float(times.children_user + times.children_system)
