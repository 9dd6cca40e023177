"""Our own classes for Spark, where a test's session finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.local import own_classes
from deploy.local.stack import LocalStack
from spark import class_archive


@contextmanager
def own_classes_at_hand() -> Iterator[None]:
    """A session that is built meanwhile uses them; a machine without a Java compiler fails."""
    stack = LocalStack()
    assert own_classes.prepare(stack.site, print) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(class_archive.VARIABLE, str(stack.endpoints.spark_archive))
        yield
