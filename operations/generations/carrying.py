"""Standing queries go along when readers of a search sink are led to a generation that has another index.

<state_dir>/<pipeline>/<sink>/g<N>/carried.json     what was taken to it, until what was put meanwhile is there, too
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline, SearchSink
from cdc.saying import Say
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.elasticsearch.standing.carrying import Carried, carry_queries
from spark.disk.files import write_atomic
from spark.disk.made_of import as_defined
from spark.disk.notes import read_note
from spark.disk.register import Register

NOTE = "carried.json"


class Carrying:
    """What is registered at the place of the generation that readers see is taken to that of another one, twice: before
    they are led there, so that whoever judges there misses none; and what was put or removed meanwhile, behind it.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        number: of the generation to which they are led.

    Raises:
        StateError: what one of them was made of can't be read (terminal).
    """

    def __init__(self, pipeline: Pipeline, sink: str, number: int) -> None:
        register = register_of(pipeline, sink)
        self._sink, self._living = sink, register.living()
        self._note = register.generation(number).folder / NOTE
        self._known: Carried = {}
        self._configs = _places(pipeline, register, self._living, number)

    def over(self) -> None:
        """Before readers are led; nothing happens where the place is the same.

        Raises:
            SinkUnavailable: the server does not answer (transient). SinkRefused: it refuses. DiskFull: no room for the
                note (transient).
        """
        if self._configs is None:
            self._note.unlink(missing_ok=True)  # of another way here, which nobody has gone to its end
            return
        self._known = carry_queries(*self._configs)
        write_atomic(self._note, json.dumps({"from": self._living, "known": self._known}))

    def rest(self, say: Say) -> None:
        """Once they have been: from now on queries are registered at the new place.

        Args:
            say: told if it failed; readers are where they were to be, and ``carry_left`` makes up for it.
        """
        try:
            if self._configs is not None:
                carry_queries(*self._configs, self._known)
                self._note.unlink(missing_ok=True)
        except HeadwaterError as error:
            so = "what was put or removed in these seconds is not"
            say(f"sink {self._sink}: the standing queries are at the new index, {so} ({error.what}): do it again")


def carry_left(pipeline: Pipeline, sink: str) -> None:
    """Take along what a promotion that was cut behind its last step has left at the former place. Idempotent; without
    such a promotion no server is asked.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.

    Raises:
        SinkUnavailable: the server does not answer (transient). SinkRefused: it refuses.
        StateError: the note of it, or what a generation was made of, can't be read (terminal).
    """
    register = register_of(pipeline, sink)
    number = register.living()
    note = register.generation(number).folder / NOTE
    found = read_note(note, _told, f"remove it; then register what was put while generation {number} was promoted anew")
    if found is None:
        return
    origin, known = found
    if register.stage(origin) is not None and (configs := _places(pipeline, register, origin, number)) is not None:
        carry_queries(*configs, known)
    note.unlink(missing_ok=True)


def _told(note: Any) -> tuple[int, Carried]:
    known = {view: {name: int(at) for name, at in queries.items()} for view, queries in note["known"].items()}
    return int(note["from"]), known


def _places(
    pipeline: Pipeline, register: Register, origin: int, number: int
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Where the queries are of two generations, of the views whose place is another one; None if there is none."""
    before, after = (as_defined(pipeline, register.generation(one)) for one in (origin, number))
    old, new = before.sinks[register.sink], after.sinks[register.sink]
    if not (isinstance(old, SearchSink) and isinstance(new, SearchSink)):
        return None
    both = set(register.generation(origin).views()) & set(register.generation(number).views())
    views = sorted(view for view in both if old.index_of(view) != new.index_of(view))
    if not views:
        return None
    configs = [plain_config(made_of, register.sink, one, views) for made_of, one in ((before, origin), (after, number))]
    return configs[0], configs[1]
