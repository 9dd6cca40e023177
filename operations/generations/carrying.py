"""Standing queries go along when readers of a search sink are led to a generation that has another index."""

from __future__ import annotations

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline, SearchSink
from cdc.saying import Say
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.elasticsearch.standing.carrying import Carried, carry_queries
from spark.disk.made_of import as_defined


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
        living = register.living()
        before, after = (as_defined(pipeline, register.generation(one)) for one in (living, number))
        old, new = before.sinks[sink], after.sinks[sink]
        self._sink = sink
        self._known: Carried = {}
        self._configs = None
        if isinstance(old, SearchSink) and isinstance(new, SearchSink):
            both = set(register.generation(living).views()) & set(register.generation(number).views())
            if views := sorted(view for view in both if old.index_of(view) != new.index_of(view)):
                self._configs = plain_config(before, sink, living, views), plain_config(after, sink, number, views)

    def over(self) -> None:
        """Before readers are led; nothing happens where the place is the same.

        Raises:
            SinkUnavailable: the server does not answer (transient). SinkRefused: it refuses.
        """
        if self._configs is not None:
            self._known = carry_queries(*self._configs)

    def rest(self, say: Say) -> None:
        """Once they have been: from now on queries are registered at the new place.

        Args:
            say: told if it failed; readers are where they were to be.
        """
        try:
            if self._configs is not None:
                carry_queries(*self._configs, self._known)
        except HeadwaterError as error:
            so = "what was put or removed in these seconds is not"
            say(f"sink {self._sink}: the standing queries are at the new index, {so} ({error.what}): do it again")
