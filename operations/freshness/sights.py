"""The sinks as who asks how old they are sees them: at once, though a row store may take seconds to answer.

Who asks may be a server's only event loop. So nobody who asks speaks to a row store: a thread does, one for each sink
that was asked for, and tells those who ask next.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from cdc.pipeline import Pipeline
from operations.freshness.place import Place, Seen, look_at

# What row stores have said is good for who asks every few seconds: it was so then, and promises nothing newer. They are
# asked again when it is older than the second.
GOOD_SECONDS, NEW_SECONDS = 15.0, 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Told:
    """A sink with the answers of its row stores.

    Attributes:
        at: when the last of them came, on the monotonic clock.
        seconds: how long all of them took.
    """

    seen: Seen
    at: float
    seconds: float


class Sights:
    """Looks at a pipeline's sinks for who asks. In any thread; waits for no server.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._places: dict[str, Place] = {}
        self._told: dict[str, _Told] = {}
        self._asking: set[str] = set()
        self._lock, self._closed = threading.Lock(), False

    def close(self) -> None:
        """Let go; whoever waits for a row store lets go when that has answered, or has had its time."""
        with self._lock:
            self._closed = True
            for sink in self._places.keys() - self._asking:
                self._places.pop(sink).close()

    def now(self, sink: str) -> Seen:
        """As it stands, from the state folder."""
        with self._lock:
            place = self._places.get(sink) or self._places.setdefault(sink, Place(self.pipeline, sink))
            return look_at({sink: place})[sink]

    def answered(self, sink: str, within: float) -> Seen | None:
        """As it stood when its row stores were asked last; None while that is not known: they are being asked then.

        Args:
            sink: its name.
            within: so many seconds ago, or as many more as they take to answer.
        """
        with self._lock:
            told = self._told.get(sink)
            age = float("inf") if told is None else time.monotonic() - told.at
            if age >= NEW_SECONDS and sink not in self._asking and not self._closed:
                self._asking.add(sink)
                threading.Thread(target=self._ask, args=(sink,), name=f"row stores {sink}", daemon=True).start()
        return told.seen if told is not None and age < within + told.seconds else None

    def _ask(self, sink: str) -> None:
        began = time.monotonic()
        try:
            seen = self.now(sink)
            seen.ask()
            ended = time.monotonic()
            self._told[sink] = _Told(seen, ended, ended - began)
        except Exception:  # a defect: who asks next begins anew
            _log.exception("a look at sink %s failed", sink, extra={"pipeline": self.pipeline.name})
        finally:
            with self._lock:
                self._asking.discard(sink)
                if self._closed and sink in self._places:  # meanwhile
                    self._places.pop(sink).close()
