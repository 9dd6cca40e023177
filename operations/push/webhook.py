"""A thread that sends a view's changes or matches to one place, one batch after the other, for as long as it takes.

The place up to which all was taken lies in Redis and moves only once a batch was, so a batch may come twice (with
the same id and the same events), and none is left out. Whoever sends holds a lease there, so that two processes do not
send side by side. Nothing here waits for the flows, and no flow waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from cdc.errors import HeadwaterError
from operations.push.carrier import Carrier
from operations.push.cursor import parse_cursor
from operations.push.delivery import Delivery, Sending, Taken
from operations.push.envelope import cut
from operations.push.events import Told, ready
from operations.push.events import reset as reset_of
from operations.push.feed import BLOCK_MS
from operations.push.follows import Follows
from operations.push.health import Health
from operations.push.source import TROUBLES, Source, told
from operations.push.walk import BEGUN, CHOSEN, Walk
from sinks.redis.read import Moving
from sinks.redis.stream.hooks import Hooks
from sinks.redis.stream.tail import Standing

log = logging.getLogger(__name__)

# Others may send after so long without a word of who sends; longer than a POST may be silent (posting.py).
LEASE_SECONDS = 20.0
# After an error of Redis, and between two looks of one that waits for another's lease.
PAUSE_SECONDS = 1.0


class Sender:
    """Sends to one destination in a thread of its own, until it is stopped.

    Args:
        sending: what is sent where.
        token: tells this process from every other that may send it. In one process nobody sends it before the one
            who did has ``ended``.
        say: told when it fails, when it is well again, and of what is refused.

    Attributes:
        health: how it goes.
    """

    def __init__(self, sending: Sending, token: str, say: Callable[[str], Any]) -> None:
        self.sending, self.health = sending, Health()
        self._token, self._say, self._stop = token, say, threading.Event()
        self._afresh = sending.afresh
        self._thread = threading.Thread(target=self._run, name=sending.title, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end. Idempotent."""
        self._stop.set()

    @property
    def ended(self) -> bool:
        """Whether it sends no more, and has given its lease back. Only once it has begun."""
        return not self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, but not longer: a POST under way is left alone, and with it the lease."""
        self._thread.join(seconds)

    def _run(self) -> None:
        source, carrier = Source(self.sending.place), self.sending.to.open()
        try:
            while not self._stop.is_set():
                try:
                    self._serve(source, carrier)
                except Taken:
                    if not self._stop.is_set():
                        self.health.state = "standby"
                except TROUBLES as error:
                    self._waits(told(error, self.sending.place).what)
                except HeadwaterError as error:  # the sink has not begun to keep changes
                    self._waits(error.what)
                except Exception as error:  # a thread that ends silently would be a webhook that nobody misses
                    log.exception("%s", self.sending.title)
                    self._waits(type(error).__name__)
                self._stop.wait(PAUSE_SECONDS)
        finally:
            with suppress(*TROUBLES):  # it ends by itself
                self._hooks(source).release()
            carrier.close()
            source.close()

    def _hooks(self, source: Source) -> Hooks:
        return source.hooks(self.sending.name, self._token, LEASE_SECONDS)

    def _waits(self, why: str) -> None:
        if self.health.fail(why):
            self._say(f"warning: {self.sending.title} waits: {why}")

    def _serve(self, source: Source, carrier: Carrier) -> None:
        """Send for as long as the lease is ours.

        Raises:
            Taken: somebody else sends, or this one is to end.
            redis.RedisError, HeadwaterError: as ``Walk.step``.
        """
        sending, tail = self.sending, source.tail()
        delivery = Delivery(sending, self._hooks(source), tail, carrier, self.health, self._say, self._stop)
        walk, anew = self._begun(delivery, tail)  # anew: whether everything is being told
        while not self._stop.is_set():
            try:
                found = self._next(walk, delivery)
            except Moving:  # a promotion: the same walk begins anew
                self._stop.wait(PAUSE_SECONDS)
                delivery.word()
                continue
            reset = next((one for one in found if one.name == "reset"), None)
            anew = anew or reset is not None
            if reset is not None and not sending.documents:
                delivery.begin(walk.cursor, reset.value["why"])
            shown = [one for one in found if anew or one.name != "ready"]
            anew = anew and not any(one.name == "ready" for one in found)
            self._deliver(delivery, shown)
            if walk.live and not self._stop.is_set():
                self._afresh = False
                delivery.passed(walk.cursor.text())
                delivery.word()
                at = walk.cursor
                tail.wait(Standing(at.generation, at.mark), at.place, BLOCK_MS)

    def _begun(self, delivery: Delivery, tail: Follows) -> tuple[Walk, bool]:
        """From where all was taken, unless that was chosen otherwise; where no documents are sent and the receiver has
        not been told yet from where on changes count, from there: he is told now.
        """
        sending, view = self.sending, self.sending.place.view
        otherwise, at = delivery.otherwise, parse_cursor(delivery.cursor or "")
        if otherwise and not sending.documents and delivery.begins is None and at is not None:
            delivery.begin(at, CHOSEN)
        cursor = None if self._afresh or otherwise else delivery.cursor
        if delivery.begins is not None and not sending.documents:
            at, why = delivery.begins
            self._deliver(delivery, [reset_of(why), ready(at, view)])
            cursor = at.text()
        why = CHOSEN if otherwise else BEGUN
        return Walk(tail, view, sending.sees, cursor, documents=sending.documents, why=why), cursor is None

    def _next(self, walk: Walk, delivery: Delivery) -> list[Told]:
        """The next step's events, and those of the ones behind it up to where the batch ends that was begun: pages
        begin at what was taken, with one change, and began elsewhere then. They are what that batch had, and a page.
        """
        found, end = walk.step(), parse_cursor(delivery.begun or "")
        while found and end is not None and walk.cursor.precedes(end):
            before = walk.cursor
            found += walk.step()
            if walk.cursor == before:  # the stream is gone, or ends before
                break
        return found

    def _deliver(self, delivery: Delivery, events: Sequence[Told]) -> None:
        while events and not self._stop.is_set():
            batch = cut(events, self.sending.batch, delivery.begun)
            delivery.send(batch)
            delivery.word()
            events = events[len(batch.events) :]
