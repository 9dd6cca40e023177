"""What a promotion would do, told before anybody does it: from the state folder alone."""

from __future__ import annotations

from typing import Any

from cdc.errors import UnknownName
from cdc.pipeline import Pipeline
from operations.generations.level import level
from operations.generations.promote import candidate
from operations.state.folder import register_of
from operations.state.pausing import pause_of
from spark.disk.made_of import outdated
from spark.disk.register import Register

# How readers are led to another generation, by the kind of sink.
_ALIAS = "the alias of each view moves to the new index in one call"
_HOW = {
    "elasticsearch": _ALIAS,
    "opensearch": _ALIAS,
    "redis": "the pointer moves to the new keys, then the plain keys are renamed",
    "iceberg": "the tables change their names: in one transaction of a SQL catalogue, by two renames in a REST one",
}


def promotion_report(pipeline: Pipeline, sink: str, number: int) -> dict[str, Any]:
    """What ``promote`` of a generation would do now; the shape of ``GET /v1/sinks/NAME/promotions/NUMBER``.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        number: of a generation.

    Returns:
        ``from`` and ``to`` (numbers), ``verb`` (``rollback`` to one that readers have seen), ``views``, ``how`` (in
        words), ``added``, ``gone`` (views that readers get, or lose), ``lacks`` (what it lacks of what readers see
        now, in words; None for nothing), ``differs_from_file``, ``why`` (it was made), and ``refused``: why it would
        not be done, a line each.

    Raises:
        ConfigError: no such sink, or generation. StateError: it is in a stage that can't be promoted.
    """
    register = register_of(pipeline, sink)
    there = [entry.number for entry in register.entries()]
    if number not in there:  # whoever asks by an address is told that it leads nowhere
        fix = f"it has {', '.join(map(str, there))}: `headwater generations`"
        raise UnknownName(f"sink {sink} has no generation {number}", fix=fix)
    entry = candidate(pipeline, sink, number, "ready", "previous", "living")
    living = register.living()
    new, old = register.generation(number), register.generation(living)
    views, before = set(new.views()), set(old.views())
    lacks = level(pipeline, register, living, number, 0.0) if number != living and old.started else None
    return {
        "pipeline": pipeline.name,
        "sink": sink,
        "type": pipeline.sinks[sink].type,
        "verb": "rollback" if entry.stage == "previous" else "promote",
        "from": living,
        "to": number,
        "stage": entry.stage,
        "why": entry.why,
        "how": _HOW[pipeline.sinks[sink].type],
        "views": sorted(views),
        "added": sorted(views - before),
        "gone": sorted(before - views),
        "lacks": lacks,
        "differs_from_file": outdated(pipeline, new),
        "refused": _refusals(pipeline, register, number),
    }


def _refusals(pipeline: Pipeline, register: Register, number: int) -> list[str]:
    found = []
    pause = pause_of(pipeline, register.sink)
    if pause is not None:
        found.append(f"the sink is paused {pause.words}: resume it first")
    if number == register.living():
        found.append("readers see this generation already")
    refused = register.generation(number).refused()
    if refused:
        found.append(f"no process keeps it up to date: {refused}")
    return found
