"""A verb called in the tests' own process: no Python to start, and one Java machine for all that needs Spark.

What it prints, its exit code and the environment that it sees are those of the command; one test of each verb calls the
command itself.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from subprocess import CompletedProcess
from unittest.mock import patch

from console.cli.main import main
from deploy.local import artifacts, own_classes
from deploy.local.stack import LocalStack

# Those that end by themselves, and soon. What `run` and `rebuild` do, they do in a process of their own.
_ASKING = ("check", "explain", "generations", "init", "plan", "preview", "query", "status", "verify")
_CHANGING = ("apply", "as-of", "drop", "erase", "letters", "promote", "retire", "rollback")
VERBS = frozenset((*_ASKING, *_CHANGING))
# What spark-submit is told: a session of another test, or of `apply`, may be the one that starts the machine, and what
# is not on its class path then no later session will find.
SPARK = "PYSPARK_SUBMIT_ARGS"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@cache
def submit_arguments() -> str:
    """For SPARK: with every jar that anybody needs."""
    own = own_classes.prepare(LocalStack().site, print)
    jars = [*artifacts.spark_jars(), *([own] if own is not None else [])]
    return f"--jars {','.join(map(str, jars))} pyspark-shell"


@contextmanager
def with_jars() -> Iterator[None]:
    """Sessions of this process, whoever starts them, know all jars."""
    with patch.dict(os.environ, {SPARK: submit_arguments()}):
        yield


def call(words: Sequence[str], environment: Mapping[str, str]) -> CompletedProcess[str]:
    """``headwater WORDS`` with these environment variables; what is no error of ours is raised.

    Args:
        words: the verb and its arguments.
        environment: all of it.
    """
    assert threading.current_thread() is threading.main_thread(), (
        "standard output, environment and signals are the process's"
    )
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        patch.dict(os.environ, environment, clear=True),
        with_jars(),
        patch.object(sys, "argv", ["headwater", *words]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
    said, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return CompletedProcess(list(words), code, said, told)
