"""Where a view's changes are: which sink keeps them, and the connection to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cdc.errors import ConfigError, HeadwaterError, SinkUnavailable, UnknownName
from cdc.pipeline import Pipeline, RedisSink
from operations.generations.targets import views_of_file
from operations.push.cursor import Cursor
from operations.push.follows import Follows
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.redis.client import ERRORS, Client, connect, is_passing, reason_of
from sinks.redis.names import Names
from sinks.redis.read import Moving, NoChanges
from sinks.redis.settings import Settings, read_settings
from sinks.redis.stream.hooks import Hooks, Refused, drop_letters, read_letters
from sinks.redis.stream.tail import Tail
from spark.disk.made_of import as_defined


@dataclass(frozen=True)
class Place:
    """One view of one sink.

    Attributes:
        sink, view: their names.
        settings: how its server is reached; as the generation that readers see was made of.
        again: finds the same view's, which is another one once readers were led to other keys; None: nobody knows how.

    What is followed there are the changes; a place of something else reads that.
    """

    sink: str
    view: str
    settings: Settings
    again: Callable[[], Place] | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """Places of one key are the same, and are read once."""
        told = self.settings
        return self.sink, self.view, told.url, told.user, told.password, told.ca_certs, told.key_prefix

    def read(self, client: Client) -> Follows:
        """What reads it, over a connection."""
        return Tail(client, self.settings.key_prefix, self.view)


def place_of(pipeline: Pipeline, view: str, sink: str | None = None) -> Place:
    """Find the sink that keeps a view's changes.

    Args:
        pipeline: the loaded file.
        view: the view's name; of a sink that keeps tables, the table's.
        sink: which sink; may be left out where only one keeps them.

    Raises:
        UnknownName: no such sink, or it has no such view (terminal).
        ConfigError: the sink keeps no changes, or several do (terminal).
    """
    if sink is not None and sink not in pipeline.sinks:
        raise UnknownName(f"no sink {sink} in {pipeline.name}", fix=f"choose from {', '.join(pipeline.sinks)}")
    keeping = [name for name in ([sink] if sink else pipeline.sinks) if _keeps(pipeline, name)]
    if not keeping:
        what = f"sink {sink} keeps no changes" if sink else f"no sink of {pipeline.name} keeps changes"
        raise ConfigError(what, fix="give a redis sink `changes: {}` in the pipeline file, and let `run` start again")
    having = [name for name in keeping if view in _views(pipeline, name)]
    if not having:
        known = dict.fromkeys(one for name in keeping for one in _views(pipeline, name))
        raise UnknownName(f"no sink that keeps changes has a view {view}", fix=f"choose from {', '.join(known)}")
    if len(having) > 1:
        raise ConfigError(f"several sinks keep changes of {view}", fix=f"say which: {', '.join(having)}")
    again = partial(place_of, pipeline, view, sink)
    return Place(having[0], view, _settings(pipeline, having[0], view), again=again)


def kept_views(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Whose changes are kept: sinks and their views, in the order of the file."""
    return [(name, view) for name in pipeline.sinks if _keeps(pipeline, name) for view in _views(pipeline, name)]


def newest_but(place: Place, count: int) -> str | None:
    """A cursor that the newest ``count`` changes follow; None while none are kept.

    Raises:
        HeadwaterError: the server does not answer, or refuses.
    """
    source = Source(place)
    try:
        standing = source.tail().standing()
        if standing.mark is None:
            return None
        return Cursor(standing.generation, standing.mark, source.changes().newest(standing, count)).text()
    except NoChanges:
        return None
    except TROUBLES as error:
        raise told(error, place) from error
    finally:
        source.close()


def _keeps(pipeline: Pipeline, name: str) -> bool:
    part = pipeline.sinks[name]
    return isinstance(part, RedisSink) and part.changes is not None


def _views(pipeline: Pipeline, name: str) -> list[str]:
    """Of a whole schema's tables, those that were kept until now."""
    return sorted({*views_of_file(pipeline, name), *register_of(pipeline, name).generation().views()})


def _settings(pipeline: Pipeline, sink: str, view: str) -> Settings:
    generation = register_of(pipeline, sink).generation()
    defined = as_defined(pipeline, generation)
    return read_settings(plain_config(defined, sink, generation.number, [view]))


class Source:
    """A view's changes, with a connection of its own; connects at its first use.

    Args:
        place: what it reads.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._client: Any = None

    def tail(self) -> Follows:
        """What reads them.

        Raises:
            redis.RedisError: no answer.
        """
        if self._client is None:
            self._client = connect(self.place.settings)
        return self.place.read(self._client)

    def moved(self) -> bool:
        """Look for the place again; whether it is another one by now, which is read from then on."""
        found = None
        with suppress(HeadwaterError, OSError):  # a generation is being made, or removed: it is looked again
            found = self.place.again() if self.place.again is not None else None
        if found is None or found.key == self.place.key:
            return False
        self.close()
        self.place, self._client = found, None
        return True

    def changes(self) -> Tail:
        """What reads changes, and nothing else.

        Raises:
            redis.RedisError: no answer.
        """
        self.tail()
        return Tail(self._client, self.place.settings.key_prefix, self.place.view)

    def hooks(self, name: str, token: str, lease_seconds: float) -> Hooks:
        """What is kept of a webhook beside them; arguments as ``Hooks``.

        Raises:
            redis.RedisError: no answer.
        """
        self.tail()
        return Hooks(self._client, self._names, name, token, int(lease_seconds * 1000))

    def letters(self) -> list[Refused]:
        """What its webhooks and topics have refused, the oldest first.

        Raises:
            redis.RedisError: no answer.
        """
        self.tail()
        return read_letters(self._client, self._names)

    def drop_letters(self, places: Sequence[bytes]) -> int:
        """Forget some of them; how many there were. Idempotent.

        Raises:
            redis.RedisError: no answer.
        """
        self.tail()
        return drop_letters(self._client, self._names, places)

    @property
    def _names(self) -> Names:
        return Names(self.place.settings.key_prefix, self.place.view)

    def close(self) -> None:
        """Give the connections back. Idempotent."""
        if self._client is not None:
            self._client.close()


def told(error: Exception, place: Place) -> HeadwaterError:
    """What a server's error, or a promotion under way, means to a subscriber."""
    who = place.settings.who
    if isinstance(error, Moving):
        return SinkUnavailable(f"{who}: keys of {place.view} are being renamed by a promotion", fix="ask again")
    if is_passing(error):
        return SinkUnavailable(f"{who}: {reason_of(error)}", fix="ask again")
    return ConfigError(f"{who}: {reason_of(error)}", fix="check this sink's address, user and password")


TROUBLES = (*ERRORS, Moving)
