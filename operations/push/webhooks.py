"""All that a pipeline that runs sends by itself: webhooks and topics of the file, while their sinks run here."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType

from cdc.errors import HeadwaterError
from cdc.journal import telling
from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import Outlet, outlets
from cdc.pipeline.push import Webhook
from cdc.pipeline.queries import MatchPush
from cdc.repeating import Repeating
from cdc.saying import Say
from operations.push.carrier import Destination
from operations.push.delivery import Sending
from operations.push.events import Changes
from operations.push.health import write_note
from operations.push.lens import Lens
from operations.push.posting import Address
from operations.push.source import place_of
from operations.push.webhook import Sender
from operations.push.writing import topic_of

LOOK_SECONDS = 1.0
# `run` ends within two seconds, whatever a receiver does.
STOP_SECONDS = 1.5


def destination_of(pipeline: Pipeline, outlet: Outlet) -> Destination:
    """Where a webhook's or a topic's events go.

    Args:
        pipeline: the loaded file.
        outlet: one of its webhooks and topics.
    """
    part: Webhook | MatchPush
    part = pipeline.push[outlet.name] if outlet.sends == "changes" else pipeline.queries[outlet.view].push[outlet.name]
    if isinstance(part, MatchPush) and part.topic is not None:
        return topic_of(pipeline, part.topic)
    assert part.url is not None and part.secret is not None  # a checked file has both
    return Address(part.url.get_secret_value(), part.secret.get_secret_value())


def webhook_of(pipeline: Pipeline, outlet: Outlet) -> Sending:
    """A webhook of ``push``, ready to be sent.

    Raises:
        ConfigError: its sink keeps no changes of that view (terminal).
    """
    part = pipeline.push[outlet.name]
    lens = Lens.of(part.chosen)
    return Sending(
        pipeline=pipeline.name,
        name=outlet.name,
        title=f"webhook {outlet.name}",
        place=place_of(pipeline, outlet.view, outlet.sink),
        to=destination_of(pipeline, outlet),
        sees=Changes(lens),
        about=part.chosen,
        batch=part.batch,
        documents=part.start == "snapshot",
        letters=pipeline.policy.dead_letters.values,
    )


class Webhooks:
    """A context manager: while it lasts, what the file says now is sent. Threads of its own; without webhooks, none.

    Args:
        now: the pipeline, and the sinks that run here.
        say: told of what is news.
        others: makes those that are not of ``push``; without it, there are none of them.
    """

    def __init__(
        self,
        now: Callable[[], tuple[Pipeline, Collection[str]]],
        say: Say,
        others: Callable[[Pipeline, Outlet], Sending] | None = None,
    ) -> None:
        self._now, self._say, self._others = now, say, others
        self._token = secrets.token_hex(8)
        self._senders: dict[str, Sender] = {}
        self._refused: dict[str, str] = {}
        self._following = Repeating("webhooks", self._look, LOOK_SECONDS, at_once=True)

    def __enter__(self) -> Webhooks:
        self._following.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._following.stop()
        senders = list(self._senders.values())
        for sender in senders:
            sender.stop()
        until = time.monotonic() + STOP_SECONDS
        self._following.join(STOP_SECONDS)
        for sender in senders:
            sender.join(max(until - time.monotonic(), 0.0))

    def _look(self) -> None:
        pipeline, sinks = self._now()
        self._follow(pipeline, sinks)
        for name, sender in self._senders.items():
            with suppress(OSError, HeadwaterError):  # a full disk: it is written again
                write_note(pipeline, name, sender.health)

    def _follow(self, pipeline: Pipeline, sinks: Collection[str]) -> None:
        """End what is no more wanted, or wanted otherwise; begin what is."""
        wanted = {}
        for outlet in outlets(pipeline):
            made_by = webhook_of if outlet.sends == "changes" else self._others
            if outlet.sink in sinks and made_by is not None:
                with suppress(HeadwaterError):  # its sink is being made anew
                    wanted[outlet.name] = made_by(pipeline, outlet)
        for name, sender in list(self._senders.items()):
            if wanted.get(name) != sender.sending:
                sender.stop()
            if sender.ended:  # not before: all of this process have one token, so the lease does not part them
                del self._senders[name]
        for name, sending in wanted.items():
            if name not in self._senders and not self._following.stopping:
                say = telling(self._say, pipeline=pipeline.name, sink=sending.place.sink)
                self._senders[name] = Sender(sending, self._token, say)
                self._senders[name].start()
