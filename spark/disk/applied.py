"""How far a flow has applied the log, told as soon as a batch has ended: what its checkpoint may say later.

Spark tells a listener of every batch once all of its tasks have returned, so once the sink has answered for all of it.
The end offsets go into ``applied.json`` beside the checkpoint, where every process finds them within milliseconds.
Whoever waits for a write to become visible reads them there (operations/freshness/).

What is claimed stays true when the process is killed at any moment: the target holds those writes. A checkpoint that is
behind is replayed, and versions make that change nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cdc.log.ends import Offsets
from spark.disk.checkpoint import committed_offsets
from spark.disk.files import write_somehow
from spark.disk.notes import offsets_of_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "applied.json"
_log = logging.getLogger(__name__)


def applied_offsets(folder: Path) -> dict[str, dict[int, int]]:
    """Through which offsets, exclusive, a flow has applied its topics: topic -> partition -> next offset.

    Args:
        folder: the flow's. What its checkpoint knows counts as well: an earlier version left nothing else.
    """
    _, committed = committed_offsets(folder / "checkpoint")
    return furthest(committed, _told(folder))


def furthest(one: Offsets, other: Offsets) -> dict[str, dict[int, int]]:
    """The larger offset of each partition. Pure."""
    return {
        topic: {
            part: max(one.get(topic, {}).get(part, 0), other.get(topic, {}).get(part, 0))
            for part in {*one.get(topic, {}), *other.get(topic, {})}
        }
        for topic in {*one, *other}
    }


def forget_applied(folder: Path) -> None:
    """A flow's target is made anew: what was applied to the former one says nothing of it."""
    (folder / FILE).unlink(missing_ok=True)


def _told(folder: Path) -> dict[str, dict[int, int]]:
    try:
        return offsets_of_json(json.loads((folder / FILE).read_text())["offsets"])
    except (FileNotFoundError, ValueError, KeyError, AttributeError):
        return {}  # half of a text was read, or there is none: the checkpoint tells


class AppliedListener:
    """Writes the end offsets of each batch of the queries of one session. Java calls it, in one thread of its own.

    Spark's Python listener makes Python objects of the whole report, some fifty calls a batch; this one asks for the
    two things that it needs.
    """

    def __init__(self) -> None:
        self._folders: dict[str, tuple[Path, Mapping[str, Any]]] = {}

    def follow(self, title: str, folder: Path, about: Mapping[str, Any]) -> None:
        """From now on write what the query of this name has applied into a flow's folder."""
        self._folders[title] = folder, about

    # -- called by Java -----------------------------------------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Nothing has been applied yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """A batch has ended."""
        about: Mapping[str, Any] = {}
        try:
            progress = event.progress()
            folder, about = self._folders.get(progress.name(), (None, {}))
            if folder is not None:
                ends = json.loads(progress.sources()[0].endOffset())
                write_somehow(folder / FILE, json.dumps({"batch": progress.batchId(), "offsets": ends}))
        except Exception as error:  # a full disk, or a machine that is going away: the checkpoint tells, a little later
            _log.debug("a batch's end could not be told: %s", error, extra=dict(about))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """There is nothing to apply."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """What was applied stays so."""

    class Java:
        """For py4j: which interface this is."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


# A session that has ended takes its listener along.
_listeners: WeakKeyDictionary[SparkSession, AppliedListener] = WeakKeyDictionary()


def tell_applied(spark: SparkSession, title: str, folder: Path, about: Mapping[str, Any]) -> None:
    """Have it written down what a query applies; to be called before it starts.

    Args:
        spark: the session that runs it.
        title: the query's name.
        folder: the flow's.
        about: what lines about it are about.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    if spark not in _listeners:
        _listeners[spark] = listener = AppliedListener()
        context = spark.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        assert context._jvm is not None
        wrapper = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        streams: Any = spark.streams
        streams._jsqm.addListener(wrapper(listener))
    _listeners[spark].follow(title, folder, about)
