"""What a changed file asks of webhooks, topics and standing queries: the same threads follow it without a restart."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import Outlet, outlets, saved_name
from cdc.pipeline.push import Webhook
from cdc.pipeline.queries import MatchPush

# What comes first where what is sent is chosen otherwise: with documents, and without (`from: now`).
_AGAIN = {
    "changes": "its filter is another one, so it is sent `reset` and all documents of view {view} that pass it",
    "matches": "its queries are others, so it is sent `reset` and who matches them now",
}
_AGAIN_NOW = {
    "changes": "its filter is another one, so it is sent `reset` first, and no documents (`from: now`)",
    "matches": "its queries are others, so it is sent `reset` first, and not who matches now (`from: now`)",
}
# What comes first of one that begins. The place of one that has ended stays in Redis, under its name.
_UNLESS = ", unless one of that name was there before with the same "
_FIRST = {
    "changes": "all documents of view {view} are sent first" + _UNLESS + "filter",
    "matches": "who matches now is sent first" + _UNLESS + "queries",
    "queries": "all documents of view {view} are read first",
}
# Its place is kept under its name, whoever takes what is sent: with documents, and without.
_MOVED = "it goes on where the former {what} was; another name sends all first"
_MOVED_NOW = "it goes on where the former {what} was"


@dataclass(frozen=True)
class Sent:
    """One webhook, topic or view's standing queries that a process of `run` comes to treat otherwise.

    Attributes:
        change: what it does.
        title: what is called so, in words.
        name, view: of the webhook or topic, and what it follows; of standing queries both are their view's.
        more: what is to be known of it besides; "" for nothing.
        anew: of one that changes, whether it is sent `reset` first; of one that begins, whether it is sent, or reads,
            all that there is first.
    """

    change: Literal["begins", "ends", "changes"]
    title: str
    name: str
    view: str
    more: str = ""
    anew: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As ``plan --json`` shows it; no address and no secret is in it."""
        said = {"change": self.change, "title": self.title, "name": self.name, "view": self.view}
        return {**said, "anew": self.anew}

    def line(self) -> str:
        """The same for people."""
        said = f"run {self.change} {self.title}"
        if self.change == "changes":
            said = f"run goes on with {self.title} as the file has it then"
        return said + (f": {self.more}" if self.more else "")


@dataclass(frozen=True)
class _Wanted:
    title: str
    said: Any  # all that the file says of it
    first: str = ""
    chosen: str = ""  # by what all that it is sent is chosen
    again: str = ""  # what is done first where that has changed
    to: Any = None  # an address, or the name of a topic
    moved: str = ""  # where that alone has changed


def sends_between(old: Pipeline, new: Pipeline, only: Collection[str] = ()) -> tuple[Sent, ...]:
    """What begins, ends or changes of what is sent and judged. Pure.

    Args:
        old, new: checked files.
        only: the redis sinks that are looked at; none for all.
    """
    before, after = dict(_wanted(old, only)), dict(_wanted(new, only))
    ends = [Sent("ends", one.title, *key[1:3]) for key, one in before.items() if key not in after]
    begins = [
        Sent("begins", one.title, *key[1:3], one.first, anew=bool(one.first))
        for key, one in after.items()
        if key not in before
    ]
    both = [(key, before[key], one) for key, one in after.items() if key in before and before[key].said != one.said]
    changes = [Sent("changes", one.title, *key[1:3], *_otherwise(was, one)) for key, was, one in both]
    return (*ends, *begins, *changes)


def _otherwise(was: _Wanted, now: _Wanted) -> tuple[str, bool]:
    if now.chosen != was.chosen:
        return now.again, True
    return ("" if now.to == was.to else now.moved), False


def _wanted(pipeline: Pipeline, only: Collection[str]) -> Iterator[tuple[tuple[str, str, str, str], _Wanted]]:
    """All of a file: kind, name, view and sink tell one from another, as its place is kept with them."""
    for outlet in outlets(pipeline):
        if not only or outlet.sink in only:
            yield (outlet.sends, outlet.name, outlet.view, outlet.sink), _of(pipeline, outlet)
    for view, part in pipeline.queries.items():
        if not only or part.changes in only:
            said = part.model_copy(update={"push": {}, "saved": None})  # they are told by themselves
            yield ("standing", view, view, part.changes), _Wanted(f"standing queries of view {view}", said)


def _of(pipeline: Pipeline, outlet: Outlet) -> _Wanted:
    first = _FIRST[outlet.sends].format(view=outlet.view)
    if outlet.sends == "queries":
        view = next(one for one in pipeline.queries if saved_name(one) == outlet.name)
        return _Wanted(f"queries of view {view} from view {outlet.view}", pipeline.queries[view].saved, first)
    of: Mapping[str, Webhook | MatchPush] = pipeline.push
    if outlet.sends == "matches":
        of = pipeline.queries[outlet.view].push
    said = of[outlet.name]
    documents = said.start == "snapshot"
    again = (_AGAIN if documents else _AGAIN_NOW)[outlet.sends].format(view=outlet.view)
    topic = getattr(said, "topic", None)  # of matches alone
    moved = (_MOVED if documents else _MOVED_NOW).format(what="address" if topic is None else "topic")
    first = first if documents else ""
    return _Wanted(f"{outlet.to} {outlet.name}", said, first, said.chosen, again, topic or said.url, moved)
