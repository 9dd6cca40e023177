"""The local stack, ready for tests."""

from __future__ import annotations

import os

from deploy.local import artifacts
from deploy.local.stack import LocalStack
from spark import startup


def ready() -> LocalStack:
    """The servers, started when they do not run, and what lets Spark start faster, here and in commands."""
    stack = LocalStack()
    stack.up()
    archive = stack.endpoints.spark_archive
    startup.prepare(artifacts.spark_jars()[0].parent, archive, print)
    os.environ[startup.VARIABLE] = str(archive)
    return stack
