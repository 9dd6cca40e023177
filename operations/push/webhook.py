"""One webhook: a thread that posts a view's changes to an address, one batch after the other, for as long as it takes.

The place up to which all was taken lies in Redis and moves only after an answer of 2xx, so a batch may come twice (with
the same id and the same events), and none is left out. Whoever sends holds a lease there, so that two processes do not
send side by side. Nothing here waits for the flows, and no flow waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cdc.errors import HeadwaterError
from operations.push.delivery import Delivery, Taken, Webhook
from operations.push.envelope import cut
from operations.push.feed import BLOCK_MS
from operations.push.health import Health
from operations.push.posting import Posting
from operations.push.source import TROUBLES, Source, told
from operations.push.told import Changes, Told
from operations.push.walk import Walk
from sinks.redis.read import Moving
from sinks.redis.tail import Standing

log = logging.getLogger(__name__)

# Others may send after so long without a word of who sends; longer than a POST may take (posting.py).
LEASE_SECONDS = 20.0
# After an error of Redis, and between two looks of one that waits for another's lease.
PAUSE_SECONDS = 1.0


class Sender:
    """Sends one webhook's events in a thread of its own, until it is stopped.

    Args:
        webhook: what is sent where.
        token: tells this process from every other that may send it.
        say: told when it fails, when it is well again, and of what is refused.

    Attributes:
        health: how it goes.
    """

    def __init__(self, webhook: Webhook, token: str, say: Callable[[str], Any]) -> None:
        self.webhook, self.health = webhook, Health()
        self._token, self._say, self._stop = token, say, threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"webhook {webhook.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end. Idempotent."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, but not longer: a POST under way is left alone, and with it the lease."""
        self._thread.join(seconds)

    def _run(self) -> None:
        source, posting = Source(self.webhook.place), Posting(self.webhook.url, self.webhook.secret)
        try:
            while not self._stop.is_set():
                try:
                    self._serve(source, posting)
                except Taken:
                    self.health.state = "standby"
                except TROUBLES as error:
                    self._waits(told(error, self.webhook.place).what)
                except HeadwaterError as error:  # the sink has not begun to keep changes
                    self._waits(error.what)
                except Exception as error:  # a thread that ends silently would be a webhook that nobody misses
                    log.exception("webhook %s", self.webhook.name)
                    self._waits(type(error).__name__)
                self._stop.wait(PAUSE_SECONDS)
        finally:
            posting.close()
            source.close()

    def _waits(self, why: str) -> None:
        if self.health.fail(why):
            self._say(f"warning: webhook {self.webhook.name} waits: {why}")

    def _serve(self, source: Source, posting: Posting) -> None:
        """Send for as long as the lease is ours.

        Raises:
            Taken: somebody else sends.
            redis.RedisError, HeadwaterError: as ``Walk.step``.
        """
        webhook, tail = self.webhook, source.changes()
        hooks = source.hooks(webhook.name, self._token, LEASE_SECONDS)
        delivery = Delivery(webhook, hooks, tail, posting, self.health, self._say, self._stop)
        walk = Walk(tail, webhook.place.view, Changes(webhook.lens), delivery.cursor, documents=webhook.documents)
        anew = delivery.cursor is None  # whether everything is being told
        while not self._stop.is_set():
            try:
                found = walk.step()
            except Moving:  # a promotion: the same walk begins anew
                self._stop.wait(PAUSE_SECONDS)
                delivery.word()
                continue
            anew = anew or any(one.name == "reset" for one in found)
            shown = [one for one in found if anew or one.name != "ready"]
            anew = anew and not any(one.name == "ready" for one in found)
            self._deliver(delivery, shown)
            if walk.live and not self._stop.is_set():
                delivery.passed(walk.cursor.text())
                delivery.word()
                at = walk.cursor
                tail.wait(Standing(at.generation, at.mark), at.place, BLOCK_MS)
        hooks.release()

    def _deliver(self, delivery: Delivery, events: Sequence[Told]) -> None:
        while events and not self._stop.is_set():
            batch = cut(events, self.webhook.batch, delivery.begun)
            delivery.send(batch)
            delivery.word()
            events = events[len(batch.events) :]
