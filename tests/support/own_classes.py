"""Our own classes for Spark, where a test's session finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from deploy.local import own_classes
from deploy.local.stack import LocalStack
from spark.machine import class_archive
from spark.machine.settings import OWN_SETTINGS
from spark.reading.source import SOURCE


@contextmanager
def own_classes_at_hand() -> Iterator[None]:
    """A session that is built meanwhile uses them; a machine without a Java compiler fails."""
    stack = LocalStack()
    assert own_classes.prepare(stack.site, print) is not None
    _end_machine_without()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(class_archive.VARIABLE, str(stack.endpoints.spark_archive))
        yield


def _end_machine_without() -> None:
    """End an earlier test's Java machine that lacks our jar or our log: both are told to one when it starts, and never
    after."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    try:
        gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(OWN_SETTINGS[SOURCE])
        lacking = gateway.jvm.System.getProperty("headwater.log") is None
    except Py4JJavaError:
        lacking = True
    if lacking:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the machine ends with it
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
