"""Batches to one destination while the lease on it is ours: each until it is taken or refused, which is then noted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from operations.push.carrier import Carrier, Destination
from operations.push.cursor import Cursor, parse_cursor
from operations.push.envelope import BODY_BYTES, Batch
from operations.push.follows import Follows, Sees
from operations.push.health import Health
from operations.push.signing import message_id
from operations.push.source import Place
from operations.push.verdict import Verdict
from sinks.redis.stream.hooks import Hooks
from sinks.redis.stream.tail import Standing

# How often who is silent says that it is there, and how far behind it is.
WORD_SECONDS = 5.0


class Taken(Exception):
    """Nothing may be sent from here: another process holds the lease, or this one is to end."""


@dataclass(frozen=True)
class Sending:
    """What is sent where, and where it is kept.

    Attributes:
        pipeline, name: whose it is, and its own name.
        title: what it is called in lines of the log.
        place: the view, and the sink that keeps its changes or matches.
        to: where it is sent.
        sees: what is sent.
        about: what tells its batches from those of another file's, and what was sent from what is to be: a filter, or
            names.
        batch: most events at once.
        documents: whether everything that is there is sent first.
        letters: whether what is refused is kept with its events.
        afresh: whether it is told everything that is there whenever somebody begins to send, and not only at first:
            where what it keeps may have been lost, or changed by others, meanwhile.
    """

    pipeline: str
    name: str
    title: str
    place: Place
    to: Destination
    sees: Sees
    about: str
    batch: int
    documents: bool
    letters: bool
    afresh: bool = False


class Delivery:
    """Sends batches for as long as the lease is held.

    Args:
        sending: what is sent where.
        hooks: what is kept of it in Redis.
        tail: counts what is behind.
        carrier: brings it there.
        health: how it goes.
        say: told when it fails, when it is well again, and of what is refused.
        stop: ends all waiting.

    Attributes:
        cursor: up to where all was taken; None: nothing yet, or nothing that holds since a ``reset``.
        begun: where the batch ended that was under way when somebody stopped; None for none.
        begins: of one without documents, as long as nobody has been told of it: where changes begin to count, and why
            they begin there.
        otherwise: whether what came before the cursor was chosen by another filter, or other names, than are sent now:
            of what was sent then nobody would ever be told that it left, and of what is to be seen only what changes.

    Raises:
        Taken: somebody else sends.
        redis.RedisError: the server does not answer.
    """

    def __init__(
        self,
        sending: Sending,
        hooks: Hooks,
        tail: Follows,
        carrier: Carrier,
        health: Health,
        say: Callable[[str], Any],
        stop: threading.Event,
    ) -> None:
        self._sending, self._hooks, self._tail, self._carrier = sending, hooks, tail, carrier
        self._health, self._say, self._stop = health, say, stop
        if not hooks.hold(take=True):
            raise Taken
        kept = hooks.kept()
        self.cursor, self.begun = kept.get("cursor"), kept.get("sending")
        begins, _, why = kept.get("begins", "").partition(" ")
        at = parse_cursor(begins)
        self.begins = None if at is None else (at, why)
        self._chosen = orjson.dumps(sending.about).decode()  # never empty, which would be none in Redis
        self.otherwise = self.cursor is not None and kept.get("chosen", self._chosen) != self._chosen
        if self.cursor is not None and "chosen" not in kept:  # an older Headwater's place: by what the file says now
            self._hold({"chosen": self._chosen})
        health.take_over(kept)
        self._spoke = 0.0
        # Of batches that nobody can go on from: each walk through the documents has ids of its own.
        self._walk, self._count = message_id(sending.name, str(time.time_ns())), 0

    def send(self, batch: Batch) -> None:
        """Until it is taken or refused, or until ``stop``.

        Raises:
            Taken: the lease was lost; whether the batch was taken is not known.
            redis.RedisError: the server does not answer; the same.
        """
        self._count += 1
        sending = self._sending
        if sending.documents and any(one.name == "reset" for one in batch.events):
            self._void()
        message = batch.message(sending.pipeline, sending.name, sending.about, self._behind(batch))
        attempt = 0
        while not self._stop.is_set():
            self._hold({"sending": batch.cursor})
            found = self._carrier.carry(batch, message, attempt, self)
            if found.done != "again":
                self._settled(batch, found, message)
                return
            attempt += 1
            self._fails(found.why)
            self._pause(found.seconds)

    def begin(self, at: Cursor, why: str) -> None:
        """Changes count from here, and no documents are sent: whoever goes on before that was taken begins here, too.

        Raises:
            Taken, redis.RedisError: as ``send``.
        """
        self._void({"begins": f"{at.text()} {why}"})
        self.begins = at, why

    def passed(self, cursor: str) -> None:
        """Nothing of what lies before this place is to be sent.

        Raises:
            Taken, redis.RedisError: as ``send``.
        """
        if cursor != self.cursor:
            self._hold({"sending": None, **self._at(cursor)})
            self.cursor, self.begun, self.begins = cursor, None, None
        if self._health.well():
            self._say(f"{self._sending.title} goes on")
        self._health.lag_entries = 0

    def word(self) -> None:
        """Now and then: the lease is made longer, and what is behind is counted: in the stream that is gone on with.

        Raises:
            Taken, redis.RedisError: as ``send``.
        """
        if time.monotonic() - self._spoke < WORD_SECONDS:
            return
        self._hold()
        self._spoke = time.monotonic()
        at, behind = self._counted(), None
        if at is not None and (standing := Standing(at.generation, at.mark)) == self._tail.standing():
            behind = self._tail.behind(standing, at.place)
        self._health.lag_entries = behind

    def hold(self, fields: Mapping[str, Any] | None = None) -> None:
        """See ``Lease``."""
        if self._stop.is_set():
            raise Taken
        self._hold(fields)

    def kept(self) -> Mapping[str, str]:
        """See ``Lease``."""
        return self._hooks.kept()

    def _counted(self) -> Cursor | None:
        """From where changes count that were not taken yet: without documents that is known before its ``reset`` is."""
        begins = None if self.begins is None or self._sending.documents else self.begins[0]
        return parse_cursor(self.cursor or "") or begins

    def _void(self, fields: Mapping[str, Any] | None = None) -> None:
        """From the place that was taken nobody goes on any more, which is noted before a ``reset`` is sent: the stream
        that it is of may come back (a rollback), and what follows it is too little for who was told to forget.
        """
        self._hold({"cursor": None, **(fields or {})})
        self.cursor = self._health.lag_entries = None

    def _at(self, cursor: str) -> dict[str, Any]:
        """Fields of a place up to which all was taken."""
        return {"cursor": cursor, "chosen": self._chosen, "begins": None}

    def _behind(self, batch: Batch) -> str:
        """What a batch comes behind, for its id: the same in each process that goes on there."""
        if batch.cursor is None or (self.cursor is None and self._sending.documents):
            return self._walk + str(self._count)  # nobody does: it begins anew
        begins = "" if self.begins is None else f"{self.begins[0].text()} {self.begins[1]}"
        return self.cursor or begins

    def _settled(self, batch: Batch, found: Verdict, message: str) -> None:
        """Note that a batch is over; a refused one is put aside in the same step."""
        health, taken = self._health, found.done == "delivered"
        fields: dict[str, Any] = {"sending": None, "failing_since": None}
        if batch.cursor is not None:
            fields |= self._at(batch.cursor)
        if taken:
            health.delivered_at, health.events = time.time(), (health.events or 0) + len(batch.events)
            fields |= {"delivered_at": f"{health.delivered_at:.3f}", "events": health.events}
        self._hold(fields, None if taken else self._letter(batch, found, message))
        if batch.cursor is not None:
            self.cursor, self.begins = batch.cursor, None
        self.begun = None
        news = health.well()
        if not taken:
            health.letters = (health.letters or 0) + 1
            self._say(f"warning: {self._sending.title} refused {message}: {found.why}; it is a letter now")
        elif news:
            self._say(f"{self._sending.title} takes events again")

    def _letter(self, batch: Batch, found: Verdict, message: str) -> dict[str, Any]:
        body = batch.body  # larger only where a single event is, or where it was begun before batches were measured
        kept = body if self._sending.letters and len(body) <= BODY_BYTES else b""
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
            self._say(f"warning: {self._sending.title}: {why}; it is tried again")
            self._hold({"failing_since": f"{self._health.failing_since:.3f}"})

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, WORD_SECONDS)):
            self.word()

    def _hold(self, fields: Mapping[str, Any] | None = None, letter: Mapping[str, Any] | None = None) -> None:
        if not self._hooks.hold(fields, letter):
            raise Taken
