"""The servers, ready for tests."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.local import artifacts
from deploy.local.stack import LocalStack
from spark.machine import class_archive, startup
from tests.support.servers import Servers, servers


def ready() -> Servers:
    """The servers, started when they do not run, and what lets Spark start faster, here and in commands."""
    stack = servers()
    stack.up()
    os.environ[class_archive.VARIABLE] = str(archive())
    return stack


def archive() -> Path:
    """What lets Spark start faster, made when it is not there."""
    path = LocalStack().endpoints.spark_archive
    startup.prepare(artifacts.spark_jars()[0].parent, path, print)
    return path
