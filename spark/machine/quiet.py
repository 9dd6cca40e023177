"""What Spark, its virtual machine and its Python workers say to standard error goes to a file beside Spark's log.

On the terminal it hides our own words. The virtual machine reports threads that die (a deep regular expression that
overflows the stack when a query is cancelled fills a thousand lines of it), workers whose job was cancelled complain of
broken pipes, and PySpark's own threads do when the machine is gone before them: all of it when everything is well and
`run` is told to stop. It is kept for whoever looks for a cause.
"""

from __future__ import annotations

import logging
import socketserver
import traceback
from pathlib import Path
from typing import Any

from pyspark import accumulators
from pyspark.logger import PySparkLogger

# The file begins anew at the first start after it has grown beyond this.
MOST_BYTES = 5 * 2**20
# Loggers of py4j and PySpark write tracebacks; nobody sees what these have to say unless we keep it.
_LOGGERS = ("py4j", "pyspark")
# These print the stack of every error of an analysis. The error itself is raised, and told in our words.
_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def output(log: Path) -> Path:
    """The file beside a session's log; made ready to be appended to."""
    path = log.with_suffix(".out")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > MOST_BYTES:
        path.write_bytes(b"")
    path.touch()
    return path


def keep(path: Path) -> None:
    """Send to ``path`` what PySpark's and py4j's loggers and PySpark's server of accumulators say in this process."""
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False

    def told(_server: Any, _request: Any, _client: Any) -> None:
        logging.getLogger(_LOGGERS[1]).warning("a worker's connection broke: %s", traceback.format_exc())

    for server in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        kind = getattr(accumulators, server, None)
        if isinstance(kind, type) and issubclass(kind, socketserver.BaseServer):
            setattr(kind, "handle_error", told)  # noqa: B010 (its type wants a server's own method)


def hush() -> None:
    """Let PySpark raise an analysis's errors, and Py4J a Ctrl-C, without printing them first."""
    for name in _ERRORS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_no_ctrl_c)


def _no_ctrl_c(record: logging.LogRecord) -> bool:
    """Py4J tells the root of all loggers of Ctrl-C, with its trace, and raises it too: it is told enough."""
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")


def tail(path: Path, lines: int = 15) -> str:
    """The end of the file, for an error that needs it."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
