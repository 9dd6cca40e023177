"""Which sinks need a new generation, why, and about how long it takes: a part of ``headwater plan``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cdc.errors import HeadwaterError, SourceError
from cdc.pipeline import Pipeline
from connectors.postgres import connect
from connectors.tables.catalogue import read_catalogue
from connectors.tables.partitions import estimated_rows
from operations.generations.size import size_of
from operations.opened import peek
from operations.state.folder import register_of
from spark.disk.made_of import outdated
from spark.disk.register import Register
from spark.disk.state import Generation

# Documents a second of a sink that was never rebuilt here; a joined view on two cores, measured 2026-11.
ASSUMED_RATE = 5_000.0
MIB = 2**20
# In a generation's folder, once one process has filled it: with how many records, in how many seconds.
FILLED = "filled.json"


def needed(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Sinks whose living generation was made of something else than the file says now.

    Returns:
        for each: ``sink``, ``generation`` (the living one), ``because`` (what differs), ``gone_back_from``,
        ``documents`` (about how many, None if Postgres does not tell), ``minutes``, and what the living one takes:
        ``bytes``, ``row_store_bytes``.
    """
    found = []
    for name in pipeline.sinks:
        register = register_of(pipeline, name)
        number = register.living()
        generation = register.generation(number)
        because = outdated(pipeline, generation)
        if because and generation.started:  # else `run` takes the file as it is now
            one = {"sink": name, "generation": number, "because": because}
            found.append({**one, "gone_back_from": gone_back_from(pipeline, register), **cost(pipeline, name)})
    return found


def gone_back_from(pipeline: Pipeline, register: Register) -> int | None:
    """The generation that readers were taken back from, where it is what the file asks for still; else None.

    A person has done that, who has seen what the file makes. `run` builds no other one of it unasked. An older
    generation that is what the file asks for was replaced: a file that was set back is a wish like each other one.
    """
    if not outdated(pipeline, register.generation()):
        return None
    newer = [one.number for one in register.previous() if one.number > register.living()]
    kept = [register.generation(number) for number in newer]
    return next((one.number for one in reversed(kept) if one.started and not outdated(pipeline, one)), None)


def asked(pipeline: Pipeline, register: Register) -> Sequence[str]:
    """In what the file differs from what readers see, in words, as far as `run` builds the next generation for it."""
    living = register.generation()
    because = outdated(pipeline, living) if living.started else []
    return because if gone_back_from(pipeline, register) is None else []


def cost(pipeline: Pipeline, sink: str) -> dict[str, Any]:
    """What a new generation beside the living one costs: ``documents``, ``minutes``, ``bytes``, ``row_store_bytes``."""
    register = register_of(pipeline, sink)
    number, documents = register.living(), _documents(pipeline, sink)
    minutes = None if documents is None else round(documents / _rate(pipeline, sink, number) / 60, 1)
    return {"documents": documents, "minutes": minutes, **_size(pipeline, register.generation(number))}


def line(one: dict[str, Any], file: str, who: str = "") -> str:
    """``~ sink search: new generation needed, because …, about N documents, T minutes``.

    Args:
        one: of ``needed``.
        file: the pipeline file, for the command.
        who: makes it by itself, and when; empty if a person has to.
    """
    reasons = ", ".join(one["because"][:5]) + (" …" if len(one["because"]) > 5 else "")
    much = "" if one["documents"] is None else f", about {one['documents']:,} documents, {one['minutes']:g} minutes"
    return f"sink {one['sink']}: new generation needed, because {reasons}{much}{room(one)}: " + (who or _way(one, file))


def _way(one: Mapping[str, Any], file: str) -> str:
    left = one["gone_back_from"]
    return f"`headwater rebuild {file} {one['sink']}`" if left is None else taken_back(one["sink"], left, file)


def taken_back(sink: str, left: int, file: str) -> str:
    """Of what ``gone_back_from`` names, and what to do."""
    way = f"`headwater promote {file} {sink} --generation {left}` shows it again"
    more = f"`headwater rebuild {file} {sink}` makes another one"
    why = f"readers were taken back from generation {left}, which is what the file asks for"
    return f"{why}: put the file back; or {way}, {more}"


def room(one: Mapping[str, Any]) -> str:
    """``, 12.0 MiB beside the living one, 3.0 MiB in the row store``; empty where nothing is known."""
    there = f", {one['bytes'] / MIB:,.1f} MiB beside the living one" if one["bytes"] else ""
    return there + (f", {one['row_store_bytes'] / MIB:,.1f} MiB in the row store" if one["row_store_bytes"] else "")


def _size(pipeline: Pipeline, generation: Generation) -> dict[str, int | None]:
    try:
        with connect(pipeline.source) as connection:
            catalogue = read_catalogue(connection, pipeline.source.tables)
        return size_of(peek(pipeline, catalogue, generation))
    except HeadwaterError:
        return {"bytes": None, "row_store_bytes": None}


def _documents(pipeline: Pipeline, sink: str) -> int | None:
    part = pipeline.sinks[sink]
    try:
        with connect(pipeline.source) as connection:
            known = read_catalogue(connection, pipeline.source.tables).tables
            roots = [pipeline.views[name].root for name in part.view_names]
            tables = [t for t in known if t in roots or t.rpartition(".")[2] in roots]
            if not roots:
                tables = list(known) if part.tables == "all" else list(part.tables or ())
            return sum(estimated_rows(connection, tables).values())
    except SourceError:
        return None


def _rate(pipeline: Pipeline, sink: str, number: int) -> float:
    records, seconds = read_filled(register_of(pipeline, sink).generation(number)) or (0, 0.0)
    return records / seconds if records and seconds else ASSUMED_RATE


def read_filled(generation: Generation) -> tuple[int, float] | None:
    """With how many records a generation was filled, and in how many seconds; None if nobody has noted it."""
    try:
        filled = json.loads((generation.folder / FILLED).read_text())
    except FileNotFoundError:
        return None
    return int(filled["records"]), float(filled["seconds"])
