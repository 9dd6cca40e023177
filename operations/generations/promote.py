"""Switching readers from one generation to another, and removing one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cdc.errors import Behind, HeadwaterError, SinkRefused, StateError
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.generations.carrying import Carrying, carry_left
from operations.generations.level import failed_flow, level
from operations.generations.retire import retire
from operations.state.folder import chosen_sinks, register_of
from operations.state.pausing import refuse_paused
from sinks.configure import plain_config
from sinks.contract import Target
from sinks.factory import open_target
from spark.disk.made_of import as_defined, outdated
from spark.disk.promotion import Promotion
from spark.disk.register import Register, Registered
from spark.disk.state import Generation

# How long a generation may take to come as far as the one that readers see; writers of both go on meanwhile.
LEVEL_SECONDS = 30.0
# One that has come as far within this is as far as the other one, for readers; so often it is tried.
LEVEL_MOMENT, LEVEL_TRIES = 0.5, 5


def candidate(pipeline: Pipeline, sink: str, number: int | None, *stages: str) -> Registered:
    """The generation that is meant: the one of that number, else the newest in one of ``stages``.

    Raises:
        StateError: there is none, or it is in another stage; or the next one, which is meant, is still being filled.
    """
    chosen_sinks(pipeline, [sink])
    register = register_of(pipeline, sink)
    found = [entry for entry in register.entries() if entry.stage in stages]
    if stages == ("previous",):
        found = register.previous()
    if number is not None:
        entry = register.get(number)
        if entry.stage not in stages:
            raise StateError(
                f"sink {sink}: generation {number} is {entry.stage}",
                means=f"it would have to be {' or '.join(stages)}",
                fix="`headwater generations FILE` shows all of them",
            )
        return entry
    if not found:
        raise StateError(
            f"sink {sink} has no generation that is {' or '.join(stages)}",
            fix=f"`headwater rebuild FILE {sink}` makes one; `headwater generations FILE` shows all",
        )
    if "living" in stages and found[-1].stage != "ready":
        _refuse_filling(register, found[-1].number)
    return found[-1]


def _refuse_filling(register: Register, number: int) -> None:
    """Who promotes while the next generation is filled means that one; that readers see the living one already, or one
    of before, which he has gone back from, is no answer to him.

    Raises:
        StateError: that is so.
    """
    filling = [entry.number for entry in register.entries() if entry.stage == "filling" and entry.number > number]
    if filling and register.promotion() is None:
        raise StateError(
            f"sink {register.sink}: generation {filling[-1]} is still being filled",
            means=f"readers go on seeing generation {register.living()}; nothing was changed",
            fix="`headwater generations FILE` says `ready` once it can be promoted",
        )


def promote(pipeline: Pipeline, sink: str, number: int, say: Say, *, behind_too: bool = False) -> dict[str, Any]:
    """Make readers see a generation; run again after an interruption, it finishes.

    Before that it must have applied what readers see now: who was told that a write is visible must not miss it later.
    The target is switched first, the register after it. One that was cut on its way to another generation is taken back
    by promoting the living one.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        number: of a generation that is complete. If the one of before was never filled, that is removed.
        say: told what happens, a line each.
        behind_too: even if it lacks something that readers see now.

    Returns:
        the shape of ``--json``.

    Raises:
        Behind: it does, for longer than a moment (transient); readers see what they saw.
        SinkUnavailable: the target's server does not answer (transient). SinkRefused: it refuses.
        StateError: the generation is being removed, or the sink is paused, or was meanwhile.
    """
    refuse_paused(pipeline, [sink], "readers see what they saw before")
    carry_left(pipeline, sink)
    register = register_of(pipeline, sink)
    old, begun = register.living(), register.promotion()
    if old == number:
        if begun is None or begun.origin == begun.number:
            return _already(pipeline, sink, number, say)
        old = begun.origin if begun.number == number else begun.number
    if not behind_too and register.generation(old).started:
        _refuse_stateless(pipeline, sink, number)
    views, defined = register.generation(number).views(), as_defined(pipeline, register.generation(number))
    part, started, queries = defined.sinks[sink], time.monotonic(), Carrying(pipeline, sink, number)
    # Opened before anything is waited for: what the living generation applies from then until readers are led away is
    # what they may see go back.
    opened = open_target(plain_config(defined, sink, number, views))
    try:
        shown, before = _Shown(pipeline, sink, part, old, begun), {view: opened.living(view) for view in views}
        queries.over()
        register.begin_promotion(number, old)
        if begun is not None and begun.moving and begun.number != number:
            # Writers of both generations may wait for what was cut: neither would ever come as far as the other.
            for view in views:
                opened.settle(view)
        if not behind_too and not (begun is not None and begun.moving and begun.number == number):
            _level(pipeline, register, old, number, begun, say)
        _refuse_pause(pipeline, register, number, begun)
        _lead(opened, register, number, shown, before)
    finally:
        opened.close()
    back = register.get(number).stage == "previous"
    register.promote(number)
    queries.rest(say)
    seconds = time.monotonic() - started
    unfilled = _untouched(pipeline, sink, register.generation(old), views)
    if unfilled:
        _remove(pipeline, sink, old, say)
    stays, way = (None, "") if unfilled else _staying(pipeline, register, old, back=back and number < old)
    say(f"sink {sink}: readers see generation {number}{way}")
    if back and (differs := outdated(pipeline, register.generation(number))):
        say(f"sink {sink}: the file asks for something else still ({', '.join(differs[:3])}): {_PUT_BACK}")
    return {**_promoted(pipeline, sink, number, stays, views), "seconds": round(seconds, 3)}


def _refuse_pause(pipeline: Pipeline, register: Register, number: int, begun: Promotion | None) -> None:
    """Of a pause that was made while one generation came as far as the other: nobody is moved then.

    Raises:
        StateError: the sink is paused (terminal).
    """
    try:
        refuse_paused(pipeline, [register.sink], _seen(begun))
    except StateError:
        if begun is None or not begun.moving:  # as of one that is refused for being behind
            register.give_up_promotion(number, unmoved=True)
        raise


def _lead(opened: Target, register: Register, number: int, shown: _Shown, before: Mapping[str, int | None]) -> None:
    """Lead readers to a generation, view by view.

    Args:
        opened: the generation's target.
        register: the sink's generations.
        number: the generation.
        shown: from where they may be taken.
        before: view -> the generation that they saw before anything was begun.

    Raises:
        StateError: somebody else has given the promotion up, or begun another one, or paused the sink: then it is one
            that was cut. SinkRefused: the target refuses.
    """
    register.move_readers(number)
    try:
        for view in before:
            register.refuse_other(number)
            # Of a large cache one view takes a minute, and a pause has no lease of ours to wait for.
            refuse_paused(shown.pipeline, [register.sink], f"readers may see generation {number} in some views already")
            opened.promote(view, shown.expected(view, opened.living(view)))
            _refuse_late(register, number)
    except SinkRefused:
        # Nobody was moved: what never began must neither be ended by `run` later nor keep `retire` from its work.
        if not shown.moving and {view: opened.living(view) for view in before} == before:
            register.give_up_promotion(number)
        raise


def _refuse_late(register: Register, number: int) -> None:
    """Of a process that slept between its look and a view: others have ended the promotion, and taken readers back.

    Then they see this view at one generation and the rest at another, so a way back is noted: `run` goes it.

    Raises:
        StateError: that is so, or another promotion is under way.
    """
    try:
        register.refuse_other(number)
    except StateError:
        living = register.living()
        if living == number:  # ended by somebody else, as it was meant
            return
        if register.promotion() is None:
            register.begin_promotion(living, number)
            register.move_readers(living)
        raise


def _already(pipeline: Pipeline, sink: str, number: int, say: Say) -> dict[str, Any]:
    """Readers see it; the promotion may have been cut before its last step."""
    register = register_of(pipeline, sink)
    views = register.generation(number).views()
    say(f"sink {sink}: readers see generation {number} already")
    for left in register.previous():
        if _untouched(pipeline, sink, register.generation(left.number), views):
            _remove(pipeline, sink, left.number, say)
    return {**_promoted(pipeline, sink, number, number, views), "seconds": 0.0}


def _staying(pipeline: Pipeline, register: Register, old: int, *, back: bool) -> tuple[int | None, str]:
    """The generation that `rollback` would go back to, and what is said of the one that readers have left.

    After a rollback another one would lead forward again: whoever has just gone back does not look for that there.
    """
    unseen = register.get(old).stage == "ready"  # they were only on their way to it
    stays = f"generation {old} stays{' ready' if unseen else ''}"
    way = f"`headwater promote {pipeline.file or 'FILE'} {register.sink} --generation {old}` shows it"
    if unseen:
        return None, f" ({stays}: {way})"
    return old, f" ({stays}: {way} again)" if back else f" ({stays}, for `headwater rollback`)"


def _untouched(pipeline: Pipeline, sink: str, generation: Generation, others: Sequence[str]) -> bool:
    """Whether nobody has ever taken up a generation; the state folder alone does not know, for it may be a new one.

    Nobody has noted its views then: they are taken for those of the generation that came after it.
    """
    if generation.started or generation.views():
        return False
    target = open_target(plain_config(as_defined(pipeline, generation), sink, generation.number, others))
    try:
        return all(target.claimed(view) is None for view in others)
    except HeadwaterError:  # nobody knows
        return False
    finally:
        target.close()


def _remove(pipeline: Pipeline, sink: str, number: int, say: Say) -> None:
    """Remove a generation that nobody has begun: `run` would fill it from offset 0, to go back to what never was."""
    try:
        retire(pipeline, sink, number, say)
    except HeadwaterError as error:
        way = f"`headwater retire FILE {sink} --generation {number} --yes` does it"
        say(f"sink {sink}: generation {number}, which was never filled, could not be removed ({error.what}): {way}")


def _refuse_stateless(pipeline: Pipeline, sink: str, number: int) -> None:
    """One whose state was lost (generations/found.py) is kept up to date by nobody, and never will be."""
    if not register_of(pipeline, sink).generation(number).started:
        raise StateError(
            f"sink {sink}: nothing is known of how far generation {number} is",
            means="it was never begun, or its state was lost: readers would see what nobody keeps up to date",
            fix=f"`headwater retire {pipeline.file or 'FILE'} {sink} --generation {number}` removes it",
        )


def _level(pipeline: Pipeline, register: Register, old: int, number: int, begun: Promotion | None, say: Say) -> None:
    """Wait until a generation has come as far as the one that readers see; it may be a batch or two behind."""
    if not register.generation(old).started:
        return
    lacks = level(pipeline, register, old, number, 0.0)
    failed = failed_flow(register.generation(number)) if lacks else None
    # Nobody makes up for what it lacks: half a minute of waiting would end in the same words.
    nobody = not any(register.generation(one).lease.busy() for one in (old, number))
    if lacks and failed is None and not nobody:
        say(f"generation {number} comes as far as generation {old}: {lacks}")
        lacks = _caught_up(pipeline, register, old, number)
    if lacks:
        if begun is None or not begun.moving:  # else readers are in the middle of it, and the register must say so
            register.give_up_promotion(number, unmoved=True)
        run = f"`headwater run {pipeline.file or 'FILE'}`"
        mend = f"no process keeps it up to date: start {run}" if nobody else f"{run} keeps it up to date"
        way = _mend(register.sink, number) if failed else f"{mend}, try again"
        raise Behind(
            f"generation {number} lacks what readers of generation {old} see: {lacks}{f'; {failed}' if failed else ''}",
            means=_seen(begun),
            fix=f"{way}; with --force readers get what it has",
        )


def _seen(begun: Promotion | None) -> str:
    """What readers see after a promotion that was refused."""
    if begun is None or not begun.moving:
        return "readers see what they saw before; nothing was changed"
    either = f"generation {begun.origin} or {begun.number}"
    return f"readers see {either}, as since the promotion that was cut; promoting either of them ends it"


def _caught_up(pipeline: Pipeline, register: Register, old: int, number: int) -> str | None:
    """Wait until a generation has what the other one had a moment ago; in words what it lacks still, or None.

    The other one goes on: one that was waited for ten seconds lacks what came in these ten, and readers would see a
    document as it was before. So it is waited for again, and less each time, unless it is never quick.
    """
    until = time.monotonic() + LEVEL_SECONDS
    for _ in range(LEVEL_TRIES):
        began = time.monotonic()
        lacks = level(pipeline, register, old, number, max(0.0, until - began))
        if lacks or time.monotonic() - began < LEVEL_MOMENT:
            return lacks
    return None


def _mend(sink: str, number: int) -> str:
    return (
        "do what it says, or what `headwater status FILE` does; if it can't go on, "
        f"`headwater retire FILE {sink} --generation {number}`, then `headwater rebuild FILE {sink} --auto`"
    )


class _Shown:
    """Which generation a view's readers may be taken from. A view that the living generation does not have, or has at
    another place, is still shown by the one that had it last; a promotion that was cut has left views at both ends."""

    def __init__(self, pipeline: Pipeline, sink: str, part: Any, old: int, begun: Promotion | None) -> None:
        register = register_of(pipeline, sink)
        self.pipeline, self.old = pipeline, old
        self.moving = begun is not None and begun.moving
        self.ends = {old} | ({begun.number, begun.origin} if begun else set())
        self.ours = {entry.number for entry in register.entries()}
        before = as_defined(pipeline, register.generation(old)).sinks[sink]
        same_place = all(getattr(before, name, None) == getattr(part, name, None) for name in _PLACE)
        self.kept = set(register.generation(old).views()) if same_place else set[str]()

    def expected(self, view: str, seen: int | None) -> int:
        """What to tell the target as what readers see now: somebody else's promotion is refused there."""
        known = seen in self.ends or (view not in self.kept and seen in self.ours)
        return seen if known and seen is not None else self.old


# Of a file that asks for another generation than readers see now.
_PUT_BACK = "put it back; the sink's next generation, for whatever it is made, is made by the file"
# What says where readers of a sink look.
_PLACE = ("url", "index", "index_prefix", "key_prefix", "catalog_uri", "namespace")


def _promoted(pipeline: Pipeline, sink: str, number: int, old: int | None, views: list[str]) -> dict[str, Any]:
    differs = outdated(pipeline, register_of(pipeline, sink).generation(number))
    one = {"pipeline": pipeline.name, "sink": sink, "generation": number, "previous": old, "views": views}
    return {**one, "differs_from_file": differs}
