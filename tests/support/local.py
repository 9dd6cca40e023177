"""The servers, ready for tests."""

from __future__ import annotations

import os

from deploy.local import artifacts
from deploy.local.stack import LocalStack
from spark import class_archive, startup
from tests.support.servers import Servers, servers


def ready() -> Servers:
    """The servers, started when they do not run, and what lets Spark start faster, here and in commands."""
    stack = servers()
    stack.up()
    archive = LocalStack().endpoints.spark_archive
    startup.prepare(artifacts.spark_jars()[0].parent, archive, print)
    os.environ[class_archive.VARIABLE] = str(archive)
    return stack
