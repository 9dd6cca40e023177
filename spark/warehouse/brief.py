"""Errors of a batch function in few words, because Spark looks through them with a regular expression.

To tell a query that was stopped from one that has failed, Spark 4.1 searches the text of what a ``foreachBatch``
function raised for ``py4j.protocol.Py4JJavaError: An error occurred while calling((.|\\r\\n|\\r|\\n)*)(…Interrupted…)``
(``StreamExecution.PROXY_ERROR``). Java's matcher descends a level for each character: with 4 MiB of stack, ten thousand
characters overflow it, and a MERGE that was cancelled in the middle says more than that. So such an error gets by with
its causes and our own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import DataFrame

from cdc.errors import HeadwaterError
from spark.failures import CALLING

BatchFunction = Callable[[DataFrame, int], None]

# Far below what overflows (measured: 5,000 are well with 4 MiB), traceback and all.
MOST_CHARACTERS = 3000
_LINE = 300
_TELLING = re.compile(
    rf"{re.escape(HeadwaterError.__module__)}\.|Caused by:|Exception|Error\b|No space left|Disk quota"
)
# Spark knows a query that was stopped by one of these names at the end of py4j's words.
_INTERRUPTED = re.compile(r"java\.[\w.]*Interrupt\w*Exception|java\.io\.UncheckedIOException")


class BatchFailed(Exception):
    """What a batch function has failed with; the runner reads the text."""


def brief(function: BatchFunction) -> BatchFunction:
    """The same function, whose errors are short; errors of ours pass as they are.

    Raises:
        BatchFailed: from the function, in place of what it raises.
    """

    def called(batch: DataFrame, batch_id: int) -> None:
        try:
            function(batch, batch_id)
        except HeadwaterError:
            raise
        except Exception as error:  # Spark wraps what Java says in many types
            raise BatchFailed(shortened(str(error))) from None

    return called


def shortened(text: str) -> str:
    """The first line and those that tell a cause, the last of them for certain, where the root cause is."""
    lines = [line.strip()[:_LINE] for line in text.replace(CALLING, "Java:").splitlines() if line.strip()]
    telling = [line for line in lines[1:] if _TELLING.search(line) and not line.startswith("at ")]
    kept, room = [], MOST_CHARACTERS
    for line in [*lines[:1], *reversed(telling)]:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    interrupted = _INTERRUPTED.search(text)
    end = [f"{CALLING} a method: {interrupted[0]}"] if interrupted else []
    return "\n".join([*kept[:1], *reversed(kept[1:]), *end])
