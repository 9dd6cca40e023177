"""Batches that a webhook or a topic has refused: which there are, sent again, forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from cdc.letters.cause import Cause
from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import Outlet, outlets
from operations.push.carrier import Carrier
from operations.push.envelope import batch_of
from operations.push.source import TROUBLES, Source, kept_views, place_of, told
from operations.push.verdict import Verdict
from operations.push.webhooks import destination_of
from sinks.redis.stream.hooks import Refused

# How often a batch is sent again whose receiver is not well; then it and all others to him stay letters.
ATTEMPTS = 3
# What `Retry-After` may ask of somebody who waits at a terminal.
MOST_SECONDS = 10.0


@dataclass(frozen=True)
class WantedLetters:
    """A choice; what is empty leaves nothing out.

    Attributes:
        hooks: names of webhooks and topics.
        ids: of batches.
        cause: a regular expression that is found in the reason.
        since: epoch seconds; older ones are left out.
    """

    hooks: Sequence[str] = ()
    ids: Sequence[str] = ()
    cause: str | None = None
    since: float | None = None
    _cause: Cause | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ConfigError for a cause that is no regular expression that is taken (terminal)."""
        if self.cause is not None:
            object.__setattr__(self, "_cause", Cause(self.cause))

    def __call__(self, letter: Refused) -> bool:
        """Whether a letter is meant."""
        return (
            (not self.hooks or letter.hook in self.hooks)
            and (not self.ids or letter.id in self.ids)
            and (self._cause is None or self._cause.found_in(letter.why))
            and (self.since is None or letter.at >= self.since)
        )


class _NoLease:
    """Of who sends by hand: neither a webhook nor a topic asks for one."""

    def hold(self, fields: Mapping[str, Any] | None = None) -> None:
        return

    def kept(self) -> Mapping[str, str]:
        return {}


def list_letters(pipeline: Pipeline, wanted: WantedLetters, *, values: bool = False) -> dict[str, Any]:
    """What was refused and stands; the shape of ``headwater letters FILE webhooks list --json``.

    Args:
        pipeline: the loaded file.
        wanted: which.
        values: also their events, which have what rows hold.

    Raises:
        HeadwaterError: a server does not answer, or refuses.
    """
    found = [
        _shown(pipeline, source, one, values=values) for source, letters in _found(pipeline, wanted) for one in letters
    ]
    return {"pipeline": pipeline.name, "at": time.time(), "standing": len(found), "letters": found}


def drop_refused(
    pipeline: Pipeline,
    wanted: WantedLetters,
    *,
    dry_run: bool = False,
    ask: Callable[[dict[str, Any]], None] = lambda _report: None,
) -> dict[str, Any]:
    """Forget them; the shape of ``headwater letters FILE webhooks drop --json``.

    Args:
        pipeline: the loaded file.
        wanted: which.
        dry_run: only tell how many.
        ask: called with the report before anything is forgotten; only what it names is forgotten. Raises where that is
            not to be.

    Raises:
        HeadwaterError: a server does not answer, or refuses; the same again goes on.
    """
    # Their places alone: a question may stand for long, and bodies are large.
    found = [(source.place, [one.place for one in letters]) for source, letters in _found(pipeline, wanted)]
    standing = sum(len(places) for _, places in found)
    report: dict[str, Any] = {"pipeline": pipeline.name, "at": time.time(), "standing": standing, "dropped": 0}
    if not dry_run:
        ask(report)
        for place, places in found:
            with closing(Source(place)) as source:
                report["dropped"] += _forgotten(source, places)
    return report


def send_letters(pipeline: Pipeline, wanted: WantedLetters) -> dict[str, Any]:
    """Send them again, with the ids that they had, the oldest first; what is taken is forgotten.

    Killed behind an answer, it sends that one again the next time: its id says so. Another refusal leaves the letter.

    Args:
        pipeline: the loaded file.
        wanted: which.

    Returns:
        The shape of ``headwater letters FILE webhooks send --json``.

    Raises:
        HeadwaterError: Redis does not answer, or refuses; the same again goes on.
    """
    asked, taken, why = 0, 0, list[dict[str, Any]]()
    carriers = _Carriers(pipeline)
    try:
        for source, letters in _found(pipeline, wanted):
            for one in letters:
                asked += 1
                reason = carriers.send(one)
                if reason is None:
                    taken += 1
                    _forgotten(source, [one.place])
                else:
                    why.append({"webhook": one.hook, "id": one.id, "why": reason})
    finally:
        carriers.close()
    report = {"pipeline": pipeline.name, "at": time.time(), "asked": asked, "taken": taken}
    return {**report, "left": len(why), "why": why}


class _Carriers:
    """To where letters go, opened once for each name."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._known = {one.name: one for one in outlets(pipeline) if one.sends != "queries"}
        self._open: dict[str, Carrier] = {}
        self._away: dict[str, str] = {}

    def send(self, letter: Refused) -> str | None:
        """Send one; why it is left, None when it was taken."""
        outlet = self._known.get(letter.hook)
        if outlet is None:
            return "the pipeline file has no webhook or topic of this name any more"
        if not letter.body:
            return "its events were not kept: they were too large, or policy.dead_letters.values is false"
        if letter.hook in self._away:
            return self._away[letter.hook]
        found = self._sent(outlet, letter)
        if found.done == "again":
            self._away[letter.hook] = found.why
        return None if found.done == "delivered" else found.why

    def _sent(self, outlet: Outlet, letter: Refused) -> Verdict:
        batch, found = batch_of(letter.body), Verdict("again")
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(min(found.seconds, MOST_SECONDS))
            found = self._to(outlet).carry(batch, letter.id, attempt, _NoLease())
            if found.done != "again":
                break
        return found

    def close(self) -> None:
        for carrier in self._open.values():
            carrier.close()

    def _to(self, outlet: Outlet) -> Carrier:
        if outlet.name not in self._open:
            self._open[outlet.name] = destination_of(self._pipeline, outlet).open()
        return self._open[outlet.name]


def _found(pipeline: Pipeline, wanted: WantedLetters) -> Iterator[tuple[Source, list[Refused]]]:
    """Of each view whose changes are kept: those that are meant, also of names that the file has no more."""
    for sink, view in kept_views(pipeline):
        place = place_of(pipeline, view, sink)
        source = Source(place)
        try:
            try:
                found = [one for one in source.letters() if wanted(one)]
            except TROUBLES as error:
                raise told(error, place) from error
            if found:
                yield source, found  # what goes wrong with whoever is given them is not raised here
        finally:
            source.close()


def _forgotten(source: Source, places: Sequence[bytes]) -> int:
    """Forget letters by their places; how many there were.

    Raises:
        HeadwaterError: Redis does not answer, or refuses.
    """
    try:
        return source.drop_letters(places)
    except TROUBLES as error:
        raise told(error, source.place) from error


def _shown(pipeline: Pipeline, source: Source, letter: Refused, *, values: bool) -> dict[str, Any]:
    known = {one.name: one for one in outlets(pipeline)}.get(letter.hook)
    shown: dict[str, Any] = {
        "webhook": letter.hook,
        "to": None if known is None else known.to,
        "view": source.place.view,
        "sink": source.place.sink,
        "id": letter.id,
        "at": letter.at,
        "why": letter.why,
        "events": letter.events,
        "bytes": len(letter.body),
    }
    if values:
        body = batch_of(letter.body).events if letter.body else []
        shown["body"] = [{"event": one.name, "data": one.value, "cursor": one.cursor} for one in body]
    return shown
