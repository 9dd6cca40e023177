"""Brings the register to what the target shows, where the state folder was lost or is older than the sink.

What readers see is the living generation, whatever the register says, and stays for them until a new one is proven.
Numbers that the target knows are not given again: a fill would find somebody's documents in its way.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, closing
from dataclasses import dataclass

from cdc.errors import SinkUnavailable
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.generations.targets import views_of_file
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.contract import Target
from sinks.factory import open_target
from spark.disk.lease import STOP_IT
from spark.disk.made_of import as_defined
from spark.disk.register import Registered


@dataclass(frozen=True)
class Found:
    """What the register is to be told.

    Attributes:
        living: the generation that readers see.
        last: the highest number that was ever used, as far as can be seen.
        void: generations whose state here is not that of what stands in the target.
        left: generations that the target has and nobody knows of: to be retired.
    """

    living: int
    last: int
    void: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()


def judge(known: Collection[Registered], seen: int, there: Collection[int], started: Collection[int]) -> Found | None:
    """What is not as the register has it; None if all is. Pure.

    Args:
        known: the register's generations.
        seen: the one that readers see.
        there: others that the target has.
        started: those of the known that have state here.
    """
    stages = {entry.number: entry.stage for entry in known}
    living = next((number for number, stage in stages.items() if stage == "living"), None)
    left = frozenset(number for number in there if number not in stages and number != seen)
    if seen == living and not left:
        return None
    # What was being filled when the copy was made is complete by now, and would be begun or gone on with.
    void = {seen} if stages.get(seen) == "filling" else set[int]()
    if living is not None and living != seen and living not in started:
        void.add(living)  # a register that was lost says 1, of which nothing is known
    return Found(seen, max(*stages, *there, seen), frozenset(void), left)


def adopt(pipeline: Pipeline, sink: str, say: Say) -> None:
    """Look, and change the register where it is older than the target; nothing is changed in the target.

    A server that does not answer says nothing: whatever comes next waits for it, and looks again. Nothing is changed
    either if somebody else changes the register meanwhile.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        say: told what was found, a line each.

    Raises:
        StateError: a process runs one whose state here is not that of what stands in the target (terminal).
    """
    register = register_of(pipeline, sink)
    if register.promotion() is not None:
        return  # readers may see either end of it, and whoever has begun it ends it
    known, living = register.entries(), register.living()
    views = register.generation(living).views() or views_of_file(pipeline, sink)
    if not views:
        return
    try:
        shown, named = _looked(pipeline, sink, living, max(register.last(), living) + 1, views)
        seen = living if living in shown else max(shown, default=0)
        unknown = named.keys() - {entry.number for entry in known}
        there = {number for number in sorted(unknown) if _there(pipeline, sink, number, named[number])}
    except SinkUnavailable:
        return
    if not seen:
        return
    started = {entry.number for entry in known if register.generation(entry.number).started}
    found = judge(known, seen, there, started)
    if found is None:
        return
    with ExitStack() as held:
        void = [register.generation(number) for number in sorted(found.void)]
        for generation in void:
            generation.lock(STOP_IT)
            held.callback(generation.unlock)
        if not register.adopt(known, found.living, found.last, void, found.left):
            return
        for generation in void:
            generation.discard()
    if found.living != living:
        register.generation(found.living).note_views(views)
        say(f"sink {sink}: readers see generation {found.living}, of which this state folder did not know it")
    for number in sorted(found.left):
        say(
            f"sink {sink}: generation {number} is left of a state that is gone:"
            f" `headwater retire {pipeline.file or 'FILE'} {sink} --generation {number}`"
        )


def _looked(
    pipeline: Pipeline, sink: str, living: int, new: int, views: list[str]
) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
    """The generations that readers of these views see, and those that may be in the target: number -> views.

    Names are listed: to ask for one number after the other took the longer the more generations there ever were.
    """
    shown = dict[int, set[str]]()
    with closing(_opened(pipeline, sink, living, views)) as opened:
        for view in views:
            shown.setdefault(opened.living(view) or 0, set()).add(view)
    # As the file has it: what nobody knows of has no definition here.
    with closing(_opened(pipeline, sink, new, views)) as opened:
        named = opened.numbered(views)
    seen = {number: views for number, views in shown.items() if number}
    return shown, {number: named.get(number, set()) | seen.get(number, set()) for number in named.keys() | seen.keys()}


def _there(pipeline: Pipeline, sink: str, number: int, views: Collection[str]) -> bool:
    with closing(_opened(pipeline, sink, number, sorted(views))) as opened:
        return any(opened.there(view) for view in views)


def _opened(pipeline: Pipeline, sink: str, number: int, views: list[str]) -> Target:
    defined = as_defined(pipeline, register_of(pipeline, sink).generation(number))
    return open_target(plain_config(defined, sink, number, views))
