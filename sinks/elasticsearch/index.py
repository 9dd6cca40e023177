"""Making an index ready: created with mapping and settings in one step, checked when it is there already, then claimed
for this process's lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from elasticsearch import BadRequestError, Elasticsearch, NotFoundError

from cdc.errors import SinkRefused
from cdc.hands import Hands
from sinks.elasticsearch import fences, generations, mapping
from sinks.elasticsearch.client import no_copy, part_of, reason_of, translated
from sinks.elasticsearch.lease import Lease, token_of
from sinks.elasticsearch.owners import in_words, is_of_other, is_owner, made_by, owner, told, way_out
from sinks.elasticsearch.settings import PRODUCTS, Settings, Target

_log = logging.getLogger(__name__)

# The server makes an index in a quarter of a second, most of which it waits: fifty are not made one by one. The client
# keeps ten connections.
AT_ONCE = 8


def at_once(work: Callable[[Target], None], targets: Iterable[Target]) -> None:
    """Do something for several targets side by side; the first error is raised when all have ended."""
    hands = Hands(AT_ONCE, "setup")
    asked = [hands.submit(work, target) for target in targets]
    try:
        for one in asked:
            one.result()
    finally:
        for one in asked:
            one.cancel()  # what was not begun when one has failed
        hands.close()


class Indices:
    """Setup of one sink's indices. All of it is safe to repeat."""

    def __init__(self, client: Elasticsearch, settings: Settings, lease: Lease) -> None:
        self._client, self._settings, self._lease = client, settings, lease

    def setup(self) -> None:
        """Server check, then every target.

        Raises:
            SinkUnavailable: transient. SinkRefused: an index, alias or mapping is in the way.
        """
        with translated(self._settings.who, "setup"):
            self._check_server()
            at_once(self._setup_target, self._settings.targets.values())

    def _check_server(self) -> None:
        """One that was tried, read from the nodes, because ``GET /`` is missing in Elasticsearch's minimal
        distribution."""
        nodes = part_of(self._client.nodes.info(metric="http", filter_path="nodes.*.version"), "nodes")
        name, majors = self._settings.product
        versions = {str(node["version"]) for node in nodes.values()}
        wrong = {version for version in versions if version.partition(".")[0] not in majors}
        if wrong:
            others = [kind for kind in PRODUCTS if kind != self._settings.kind]
            raise SinkRefused(
                f"{self._settings.who} runs version {', '.join(sorted(wrong))}",
                means="in a version that was not tried, versions of documents could be lost",
                fix=f"use {name} {' or '.join(majors)}; or another `type`: {', '.join(others)}",
            )

    def _setup_target(self, target: Target) -> None:
        readers = generations.seen(self._client, target)
        if not readers:
            self._check_free(target)
        self._lease.check(target)
        wanted = mapping.index_settings(self._settings.index_settings)
        # Only the first generation shows itself, and only as it is made: a later one is built beside it and waits to be
        # promoted. Where an alias is gone, the first may be one that readers have left; who has the register sets it.
        alias: dict[str, Any] = {} if readers or target.generation > 1 else {target.index: {}}
        marks = mapping.mappings(fences.PROPERTIES, self._owner(target))
        self._ensure(target, target.fences, {}, _fence_settings(wanted), marks)
        routed = target.routing is not None
        documents = mapping.mappings(target.properties, self._owner(target), routed=routed)
        self._ensure(target, target.concrete, alias, wanted, documents)
        self._lease.claim(target)

    def _check_free(self, target: Target) -> None:
        """The readers' name must not be that of an index."""
        if self._client.indices.exists(index=target.index):
            raise SinkRefused(
                f"{self._settings.who}: {target.index!r} is an index, but this sink needs that name for an alias",
                means=f"the documents live in {target.concrete!r}; readers use the alias, so that a rebuilt index can "
                "take over without them noticing",
                fix=f"choose another `index:` or `index_prefix:`, or remove or rename the index {target.index!r}",
            )

    def _ensure(
        self, target: Target, name: str, aliases: dict[str, Any], settings: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        if not self._client.indices.exists(index=name):
            try:
                said = {key: value for key, value in settings.items() if value is not None}
                self._client.indices.create(index=name, aliases=aliases, settings=said, mappings=wanted)
                return self._check_whole(name)
            except BadRequestError as error:
                if "resource_already_exists_exception" not in reason_of(error):
                    raise self._not_made(name, reason_of(error), wanted["properties"]) from error
        self._check_owner(target, name)
        self._update_mapping(target, name, wanted)
        self._update_settings(name, settings)

    def _check_whole(self, name: str) -> None:
        """Of what an index template leaves out of documents, some servers let what we say win, others add both up: the
        server is asked by setting it once more. Where something is left out, the index goes again: it is new, nobody
        has its alias for writing yet, and it could not be changed."""
        try:
            self._client.indices.put_mapping(index=name, source=mapping.WHOLE)
        except BadRequestError as error:
            self._client.indices.delete(index=name)
            raise SinkRefused(
                f"{self._settings.who}: an index template of the server's leaves parts of documents out of index "
                f"{name}: {reason_of(error)}",
                means="they could not be read again, nor compared with Postgres; the index was not kept",
                fix="take `_source` out of the template (GET _index_template), or give this sink another "
                "`index_prefix:` (or `index:`) that it does not match",
            ) from error

    def _owner(self, target: Target) -> dict[str, Any]:
        return owner(self._settings, view=target.view, generation=target.generation)

    def _check_owner(self, target: Target, name: str) -> None:
        """What another pipeline, sink or view made must not be written, or dropped, by both."""
        ours, theirs = self._owner(target), made_by(self._client, name)
        if not is_owner(ours, theirs):
            raise SinkRefused(
                f"{self._settings.who}: index {name} exists, but was made by {in_words(ours, theirs)}, "
                f"not for view {target.view!r}",
                fix=way_out(ours, theirs)
                if is_of_other(ours, theirs)
                else "give this sink another `index_prefix:` (or `index:`), or rename the view; delete that index only "
                "if nobody keeps it any more",
            )

    def _update_mapping(self, target: Target, name: str, wanted: dict[str, Any]) -> None:
        """Add new fields; the server itself judges what can't be changed, and names the field."""
        try:
            self._client.indices.put_mapping(index=name, dynamic=wanted["dynamic"], properties=wanted["properties"])
        except BadRequestError as error:
            if room := mapping.more_room(reason_of(error), wanted["properties"]):
                raise self._full(target, name, reason_of(error), room) from error
            raise SinkRefused(
                f"{self._settings.who}: the mapping of {name} differs from what view {target.view!r} needs: "
                f"{reason_of(error)}",
                means="a field's type can't be changed in an index that exists; nothing was changed",
                fix=f"`headwater rebuild FILE {self._settings.name} --auto` makes another index beside this one, which"
                " readers see once it equals Postgres",
            ) from error

    def _not_made(self, name: str, reason: str, wanted: dict[str, Any]) -> SinkRefused:
        wrong = (
            "correct `mapping:`, `settings:` or the view in the pipeline file, or the server's index template that is"
        )
        wrong += " in the way"
        room = mapping.more_room(reason, wanted)
        return SinkRefused(
            f"{self._settings.who}: index {name} could not be created: {reason}",
            # The saved file alone mends nothing. One that has written stays as it was defined.
            fix=f"{self._raised(room) if room else wrong}; then `headwater apply FILE`, which `run` follows; where "
            f"`headwater plan FILE` still asks, `headwater rebuild FILE {self._settings.name} --auto`",
        )

    def _full(self, target: Target, name: str, reason: str, room: str) -> SinkRefused:
        """A rebuild alone would be refused as well. The index's own setting is not ours to change: a generation stays
        as it was defined."""
        return SinkRefused(
            f"{self._settings.who}: index {name} has no room for the fields of view {target.view!r}: {reason}",
            means="nothing was changed, and nothing is written to it until there is room",
            fix=f"{self._raised(room)}, then `headwater apply FILE`: `run` builds another index beside this one; where "
            f"no `run` is left, `headwater rebuild FILE {self._settings.name} --auto`. At once: give {name} the same "
            f"`{room}` (PUT {name}/_settings), too, and start `headwater run FILE` again",
        )

    def _raised(self, room: str) -> str:
        return f"set `settings: {{{room}}}` of sink {self._settings.name} in the pipeline file"

    def _update_settings(self, name: str, wanted: dict[str, Any]) -> None:
        actual = part_of(self._client.indices.get_settings(index=name, flat_settings=True), name, "settings")
        changes = mapping.changed_settings(wanted, actual)
        if not changes:
            return
        try:
            self._client.indices.put_settings(index=name, settings=changes)
        except BadRequestError as error:
            raise SinkRefused(
                f"{self._settings.who}: settings of {name} can't be changed: {reason_of(error)}",
                means="some settings (shards, analysis) are fixed when an index is created; nothing was changed",
                fix="set them back in the pipeline file, or delete the index and load the sink afresh",
            ) from error

    def promote(self, target: Target, old: int) -> None:
        """Move the readers' alias to this generation in one call.

        Raises:
            SinkUnavailable: transient. SinkRefused: the index is not there or not ours, or readers see a generation
                other than ``old``.
        """
        with translated(self._settings.who, "promote"):
            if not self._client.indices.exists(index=target.concrete):
                raise SinkRefused(
                    f"{self._settings.who}: there is no index {target.concrete} to promote",
                    means="readers see what they saw before",
                    fix="`headwater rebuild FILE SINK` builds a new generation",
                )
            self._check_owner(target, target.concrete)
            self._refuse_readers_of_others(target)
            self._client.indices.refresh(index=target.concrete)  # readers must find all that was written
            generations.promote(self._client, self._settings.who, target, old)

    def _refuse_readers_of_others(self, target: Target) -> None:
        """Readers of another pipeline, or another sink, would see our documents from one moment to the next."""
        for index in generations.seen(self._client, target):
            if is_of_other(self._owner(target), theirs := made_by(self._client, index)):
                raise SinkRefused(
                    f"{self._settings.who}: readers of {target.index} see {index}, which"
                    f" {in_words(self._owner(target), theirs)} has made",
                    means="they see what they saw before; nothing was changed",
                    fix="choose another `index:` or `index_prefix:`; or `headwater drop` what the other has made first",
                )

    def living(self, target: Target) -> int | None:
        """The generation that readers see; None if there is none."""
        with translated(self._settings.who, "look-up of the alias"):
            return max(generations.seen(self._client, target).values(), default=0) or None

    def there(self, target: Target) -> bool:
        """Whether both of a generation's indices exist. Those that another pipeline or sink made do not
        count: where their readers look is no news of ours."""
        with translated(self._settings.who, "look-up of the index"):
            return all(self._is_there(target, name) for name in (target.concrete, target.fences))

    def _is_there(self, target: Target, name: str) -> bool:
        if not self._client.indices.exists(index=name):
            return False
        return not is_of_other(self._owner(target), made_by(self._client, name))

    def size(self, target: Target) -> int:
        """Bytes of a generation's documents, replicas included; 0 if they are not there."""
        try:
            found = self._client.indices.stats(index=target.concrete, metric="store").body
        except NotFoundError:
            return 0
        if target.concrete not in found["indices"]:
            raise no_copy(target.concrete)
        return int(found["_all"]["total"]["store"]["size_in_bytes"])

    def drop(self, target: Target) -> None:
        """Remove one generation's indices, and their aliases with them; what another pipeline or sink has made
        stays: one that was refused for it has made nothing there, and must be droppable.

        An empty index in the place of a write alias goes too.

        Raises:
            SinkUnavailable: transient. SinkRefused: an index of that name was made for another view.
        """
        with translated(self._settings.who, "drop"):
            for name in (target.concrete, target.fences, target.percolator):
                if not self._client.indices.exists(index=name):
                    continue
                if is_of_other(self._owner(target), theirs := made_by(self._client, name)):
                    who = in_words(self._owner(target), theirs)
                    _log.warning("%s: index %s was made by %s, and stays", self._settings.who, name, who)
                    continue
                self._check_owner(target, name)
                self._client.indices.delete(index=name, ignore_unavailable=True)
            for name in (*self._strays(target.concrete), *self._strays(target.fences)):
                self._client.indices.delete(index=name, ignore_unavailable=True)

    def _strays(self, index: str) -> list[str]:
        """What deletes have made in the place of a write alias that was gone (before ``bulk.GUARD``): named like one,
        without a word of whose it is, and empty."""
        stem = f"{index}_w"
        found = self._client.indices.get(index=f"{stem}*", expand_wildcards="all").body
        named = [name for name, said in found.items() if token_of(name, stem) is not None]
        unmarked = [name for name in named if told(found[name].get("mappings") or {}) is None]
        return [name for name in unmarked if not part_of(self._client.count(index=name), "count")]

    def bulk_load(self, target: Target, on: bool) -> None:
        """Turn refresh off for a load from nothing, and back on (with one refresh) after it. ``setup`` heals a crash
        in between, because the interval is one of its settings."""
        interval = mapping.index_settings(self._settings.index_settings)["index.refresh_interval"]
        with translated(self._settings.who, "bulk load"):
            self._client.indices.put_settings(
                index=target.concrete, settings={"index.refresh_interval": "-1" if on else interval}
            )
            if not on:
                self._client.indices.refresh(index=target.concrete)


def _fence_settings(wanted: dict[str, Any]) -> dict[str, Any]:
    """Fences are read by id only: no need to refresh often, never shown to ``flights*`` patterns."""
    keep = ("index.number_of_replicas", "index.auto_expand_replicas")
    return {key: wanted[key] for key in keep if key in wanted} | {
        "index.number_of_shards": 1,
        "index.refresh_interval": "30s",
        "index.hidden": True,
        "index.gc_deletes": mapping.GC_DELETES,
        **mapping.NO_PIPELINES,
    }
