"""Batches to one webhook while the lease on it is ours: each until it is taken or refused; then the place is noted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from operations.push.cursor import parse_cursor
from operations.push.envelope import Batch
from operations.push.health import Health
from operations.push.lens import Lens
from operations.push.posting import Posting
from operations.push.signing import message_id
from operations.push.source import Place
from operations.push.verdict import Verdict, verdict
from sinks.redis.hooks import Hooks
from sinks.redis.tail import Standing, Tail

# How often who is silent says that it is there, and how far behind it is.
WORD_SECONDS = 5.0
# A letter holds its events up to here, and no batch but one of a single large document has more.
LETTER_BYTES = 1 << 20


class Taken(Exception):
    """Another process holds the lease."""


@dataclass(frozen=True)
class Webhook:
    """What a file says of one, and where its view's changes are.

    Attributes:
        pipeline, name: whose it is, and its own name.
        place: the view, and the sink that keeps its changes.
        url, secret: as in the file.
        lens: what is sent.
        batch: most events of a POST.
        documents: whether everything that is there is sent first.
        letters: whether what is refused is kept with its events.
    """

    pipeline: str
    name: str
    place: Place
    url: str = field(repr=False)
    secret: str = field(repr=False)
    lens: Lens
    batch: int
    documents: bool
    letters: bool


class Delivery:
    """Sends batches for as long as the lease is held.

    Args:
        webhook: what is sent where.
        hooks: what is kept of it in Redis.
        tail: counts what is behind.
        posting: to its address.
        health: how it goes.
        say: told when it fails, when it is well again, and of what is refused.
        stop: ends all waiting.

    Attributes:
        cursor: up to where all was taken; None: nothing yet.
        begun: where the batch ended that was under way when somebody stopped; None for none.

    Raises:
        Taken: somebody else sends.
        redis.RedisError: the server does not answer.
    """

    def __init__(
        self,
        webhook: Webhook,
        hooks: Hooks,
        tail: Tail,
        posting: Posting,
        health: Health,
        say: Callable[[str], Any],
        stop: threading.Event,
    ) -> None:
        self._webhook, self._hooks, self._tail, self._posting = webhook, hooks, tail, posting
        self._health, self._say, self._stop = health, say, stop
        self._hold()
        kept = hooks.kept()
        self.cursor, self.begun = kept.get("cursor"), kept.get("sending")
        health.take_over(kept)
        self._spoke = 0.0
        # Of batches that nobody can go on from: each walk through the documents has ids of its own.
        self._walk, self._count = message_id(webhook.name, str(time.time_ns())), 0

    def send(self, batch: Batch) -> None:
        """Until it is taken or refused, or until ``stop``.

        Raises:
            Taken: the lease was lost; whether the batch was taken is not known.
            redis.RedisError: the server does not answer; the same.
        """
        self._count += 1
        about = self._walk + str(self._count) if batch.cursor is None else self.cursor or ""
        webhook = self._webhook
        message, body = batch.message(webhook.pipeline, webhook.name, webhook.lens.filter, about), batch.body
        attempt = 0
        while not self._stop.is_set():
            self._hold({"sending": batch.cursor})
            answered = self._posting.post(message, body)
            found = verdict(*answered, attempt=attempt)
            if found.done != "again":
                self._settled(batch, found, message, body)
                return
            attempt += 1
            self._fails(found.why)
            self._pause(found.seconds)

    def passed(self, cursor: str) -> None:
        """Nothing of what lies before this place is to be sent.

        Raises:
            Taken, redis.RedisError: as ``send``.
        """
        if cursor != self.cursor:
            self._hold({"cursor": cursor, "sending": None})
            self.cursor, self.begun = cursor, None
        if self._health.well():
            self._say(f"webhook {self._webhook.name} goes on")
        self._health.lag_entries = 0

    def word(self) -> None:
        """Now and then: the lease is made longer, and what is behind is counted.

        Raises:
            Taken, redis.RedisError: as ``send``.
        """
        if time.monotonic() - self._spoke < WORD_SECONDS:
            return
        self._hold()
        self._spoke = time.monotonic()
        at = parse_cursor(self.cursor or "")
        self._health.lag_entries = None if at is None else self._tail.behind(Standing(at.generation, at.mark), at.place)

    def _settled(self, batch: Batch, found: Verdict, message: str, body: bytes) -> None:
        """Note that a batch is over; a refused one is put aside in the same step."""
        health, taken = self._health, found.done == "delivered"
        fields: dict[str, Any] = {"sending": None, "failing_since": None}
        if batch.cursor is not None:
            fields["cursor"] = batch.cursor
        if taken:
            health.delivered_at, health.events = time.time(), health.events + len(batch.events)
            fields |= {"delivered_at": f"{health.delivered_at:.3f}", "events": health.events}
        self._hold(fields, None if taken else self._letter(batch, found, message, body))
        if batch.cursor is not None:
            self.cursor = batch.cursor
        self.begun = None
        news = health.well()
        if not taken:
            health.letters += 1
            self._say(f"warning: webhook {self._webhook.name} refused {message}: {found.why}; it is a letter now")
        elif news:
            self._say(f"webhook {self._webhook.name} takes events again")

    def _letter(self, batch: Batch, found: Verdict, message: str, body: bytes) -> dict[str, Any]:
        kept = body if self._webhook.letters and len(body) <= LETTER_BYTES else b""
        return {
            "id": message,
            "why": found.why,
            "at": f"{time.time():.3f}",
            "events": len(batch.events),
            "cursor": batch.cursor or "",
            "body": kept,
        }

    def _fails(self, why: str) -> None:
        if self._health.fail(why):
            self._say(f"warning: webhook {self._webhook.name}: {why}; it is tried again")
            self._hold({"failing_since": f"{self._health.failing_since:.3f}"})

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, WORD_SECONDS)):
            self.word()

    def _hold(self, fields: dict[str, Any] | None = None, letter: dict[str, Any] | None = None) -> None:
        if not self._hooks.hold(fields, letter):
            raise Taken
