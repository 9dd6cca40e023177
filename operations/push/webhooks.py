"""All webhooks of a pipeline that runs: those of the file, while their sinks run here."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType

from cdc.errors import HeadwaterError
from cdc.journal import telling
from cdc.pipeline import Pipeline
from cdc.pipeline.checks_push import sink_of
from operations.push.delivery import Webhook
from operations.push.health import write_note
from operations.push.lens import Lens
from operations.push.source import place_of
from operations.push.webhook import Sender

LOOK_SECONDS = 1.0
# `run` ends within two seconds, whatever a receiver does.
STOP_SECONDS = 1.5

Say = Callable[[str], None]


def webhook_of(pipeline: Pipeline, name: str) -> Webhook:
    """A webhook of a file, ready to be sent.

    Raises:
        ConfigError: its sink keeps no changes of that view (terminal).
    """
    part, sink = pipeline.push[name], sink_of(pipeline, name)
    return Webhook(
        pipeline=pipeline.name,
        name=name,
        place=place_of(pipeline, part.view, sink),
        url=part.url.get_secret_value(),
        secret=part.secret.get_secret_value(),
        lens=Lens.of(part.filter),
        batch=part.batch,
        documents=part.start == "snapshot",
        letters=pipeline.policy.dead_letters.values,
    )


class Webhooks:
    """A context manager: while it lasts, what the file says now is sent. Threads of its own; without webhooks, none.

    Args:
        now: the pipeline, and the sinks that run here.
        say: told of what is news.
    """

    def __init__(self, now: Callable[[], tuple[Pipeline, Collection[str]]], say: Say) -> None:
        self._now, self._say = now, say
        self._token = secrets.token_hex(8)
        self._senders: dict[str, Sender] = {}
        self._refused: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def __enter__(self) -> Webhooks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        senders = list(self._senders.values())
        for sender in senders:
            sender.stop()
        until = time.monotonic() + STOP_SECONDS
        self._thread.join(STOP_SECONDS)
        for sender in senders:
            sender.join(max(until - time.monotonic(), 0.0))

    def _run(self) -> None:
        while not self._stop.is_set():
            pipeline, sinks = self._now()
            self._follow(pipeline, sinks)
            for name, sender in self._senders.items():
                with suppress(OSError, HeadwaterError):  # a full disk: it is written again
                    write_note(pipeline, name, sender.health)
            self._stop.wait(LOOK_SECONDS)

    def _follow(self, pipeline: Pipeline, sinks: Collection[str]) -> None:
        """End what is no more wanted, or wanted otherwise; begin what is."""
        wanted = {}
        for name in pipeline.push:
            if sink_of(pipeline, name) in sinks:
                with suppress(HeadwaterError):  # its sink is being made anew
                    wanted[name] = webhook_of(pipeline, name)
        for name, sender in list(self._senders.items()):
            if wanted.get(name) != sender.webhook:
                sender.stop()
                del self._senders[name]
        for name, webhook in wanted.items():
            if name not in self._senders and not self._stop.is_set():
                say = telling(self._say, pipeline=pipeline.name, sink=webhook.place.sink)
                self._senders[name] = Sender(webhook, self._token, say)
                self._senders[name].start()
