"""Where a view's standing queries are kept and judged, and where it is kept who matches them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from elasticsearch import Elasticsearch

from cdc.errors import SinkUnavailable, UnknownName
from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import saved_name
from operations.push.source import Place, place_of
from operations.standing.refusals import refusals
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.elasticsearch import generations
from sinks.elasticsearch.client import connect as connect_search
from sinks.elasticsearch.client import translated
from sinks.elasticsearch.settings import Settings, Target
from sinks.elasticsearch.settings import read_settings as read_search
from sinks.elasticsearch.standing.percolator import Percolator
from sinks.elasticsearch.standing.queries import QueryStore
from sinks.elasticsearch.standing.searched import Searched, has_percolator
from sinks.redis.client import Client, connect
from sinks.redis.names import Names
from sinks.redis.stream.hooks import Hooks
from sinks.redis.stream.match_tail import MatchTail
from sinks.redis.stream.matches import Matches
from sinks.redis.stream.tail import Tail
from spark.disk.made_of import as_defined


@dataclass(frozen=True)
class StandingPlace(Place):
    """One view's: ``Place`` is where its changes are, and the matches beside them.

    Attributes:
        search: how the search server is reached.
        target: the view's, of some generation.
        keep: about how many matches are kept.
    """

    search: Settings = field(kw_only=True)
    target: Target = field(kw_only=True)
    keep: int = field(kw_only=True, default=100_000)

    @property
    def key(self) -> tuple[Any, ...]:
        """As of a place of changes, and another one than that."""
        return (*super().key, "matches")

    def read(self, client: Client) -> MatchTail:
        """What reads the matches."""
        return MatchTail(client, self.settings.key_prefix, self.view)


def standing_place(pipeline: Pipeline, view: str) -> StandingPlace:
    """Find where a view's standing queries are.

    Raises:
        UnknownName: the file has no ``queries`` for this view (terminal).
        ConfigError: what it says does not fit (terminal).
    """
    part = pipeline.queries.get(view)
    if part is None:
        known = f"choose from {', '.join(pipeline.queries)}" if pipeline.queries else "add it to the pipeline file"
        raise UnknownName(f"no queries stand on view {view} of {pipeline.name}", fix=known)
    changes = place_of(pipeline, view, part.changes)
    generation = register_of(pipeline, part.search).generation()
    defined = as_defined(pipeline, generation)
    search = read_search(plain_config(defined, part.search, generation.number, [view]))
    return StandingPlace(
        changes.sink,
        view,
        changes.settings,
        again=partial(standing_place, pipeline, view),
        search=search,
        target=search.targets[view],
        keep=part.keep,
    )


class Searching:
    """The search server's side of a place, with a connection of its own.

    Args:
        place: which view's.
    """

    def __init__(self, place: StandingPlace) -> None:
        self._place = place
        self.client: Elasticsearch = connect_search(place.search)
        self.store = QueryStore(self.client, place.search, place.target)
        self._made_by: type[Percolator] | None = None

    def living(self) -> int:
        """The generation that readers see.

        Raises:
            SinkUnavailable: there is none yet, or the server does not answer (transient).
        """
        who, target = self._place.search.who, self._place.target
        with translated(who, "look-up of the alias"):
            found = max(generations.seen(self.client, target).values(), default=0)
        if not found:
            raise SinkUnavailable(
                f"{who}: there are no documents of view {target.view} yet, whose fields a query needs",
                fix="start `headwater run FILE` first",
            )
        return found

    def percolator(self, generation: int) -> Percolator:
        """The judge of a generation: the server's percolator, or what searches where it has none.

        Raises:
            SinkUnavailable: it does not answer (transient). SinkRefused: it refuses.
        """
        if self._made_by is None:
            with translated(self._place.search.who, "look for its percolator"):
                self._made_by = Percolator if has_percolator(self.client) else Searched
        return self._made_by(self.client, self._place.search, replace(self._place.target, generation=generation))

    def close(self) -> None:
        """Give connections back. Idempotent."""
        self.client.close()


class Caching:
    """The cache's side of a place, with a connection of its own.

    Args:
        place: which view's.
    """

    def __init__(self, place: StandingPlace) -> None:
        self._place = place
        self.client: Client = connect(place.settings)
        prefix = place.settings.key_prefix
        self.tail = Tail(self.client, prefix, place.view)
        self.matches = Matches(self.client, prefix, place.view, place.keep)

    def refusals(self, saved: str) -> dict[str, str]:
        """Documents of the view that has the queries which are none, and why.

        Args:
            saved: that view.

        Raises:
            redis.RedisError: the server does not answer.
        """
        where = Names(self._place.settings.key_prefix, saved)
        return refusals(Hooks(self.client, where, saved_name(self._place.view), "", 0).kept())

    def close(self) -> None:
        """Give connections back. Idempotent."""
        self.client.close()
