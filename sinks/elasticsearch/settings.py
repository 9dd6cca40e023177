"""A search sink's settings and names, from plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from cdc.errors import ConfigError
from cdc.index_names import concrete_index, fences_index, percolator_index, queries_index, writing_alias
from cdc.keys import is_stray, split_id, stray_id, stray_name
from sinks.elasticsearch.opensearch import field_types
from sinks.fields import MAX_TOKEN, Fields

# What Elasticsearch itself allows as an index name, less the leading dot (reserved for the server's own).
INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")


class Product(NamedTuple):
    """A kind of server: its name, and the major versions that were tried."""

    name: str
    majors: tuple[str, ...]


PRODUCTS = {"elasticsearch": Product("Elasticsearch", ("8", "9")), "opensearch": Product("OpenSearch", ("3",))}


class Address(NamedTuple):
    """A document's id, and the routing that says which shard has it: of the same id each shard may have one."""

    id: str
    routing: str | None


@dataclass(frozen=True)
class Target:
    """Where one view lives.

    Attributes:
        view: view name, the ``target`` of ``write``.
        index: the alias that readers use.
        generation: which build of the view; the real index is ``<index>_g<generation>``.
        properties: the mapping's ``properties``, defaults from the table's types with the user's overrides merged in.
        token: of the lease under which this process writes.
        routing: which of the key's columns places a document among the shards, and how many columns the key has; None
            when the whole id does.
    """

    view: str
    index: str
    generation: int
    properties: Mapping[str, Any]
    token: int = 0
    routing: tuple[int, int] | None = None

    def address(self, key: str) -> Address:
        """Where a document is found: under which id, and by which routing (see docs/decisions/routing.md)."""
        if is_stray(key):
            return Address(*orjson.loads(stray_name(key)))
        if self.routing is None:
            return Address(key, None)
        at, columns = self.routing
        parts = split_id(key, columns)
        # To Elasticsearch an empty routing is none. An id with other parts is none of ours.
        return Address(key, (parts[at] or None) if len(parts) == columns else None)

    def key(self, identity: str, routing: str | None) -> str:
        """The inverse of ``address``: what somebody has put where no document of ours can be has a stray key."""
        if self.address(identity).routing == routing:
            return identity
        return stray_id(orjson.dumps((identity, routing)))

    @property
    def concrete(self) -> str:
        """The real index."""
        return concrete_index(self.index, self.generation)

    @property
    def writer(self) -> str:
        """The hidden alias that writes go through: with ``require_alias`` a deleted index is an error, whereas a write
        to a missing concrete index would silently create one without our mapping. It ends with the lease's token: who
        takes over removes the older one, and with it the way in for a process that was thought dead."""
        return writing_alias(self.concrete, self.token)

    @property
    def fences(self) -> str:
        """The hidden index that remembers deletes."""
        return fences_index(self.concrete)

    @property
    def queries(self) -> str:
        """The hidden index of the view's registered queries (standing/queries.py); no generation's."""
        return queries_index(self.index)

    @property
    def percolator(self) -> str:
        """The hidden index in which they judge this generation's documents (standing/percolator.py)."""
        return percolator_index(self.concrete)

    @property
    def fence_writer(self) -> str:
        """The hidden write alias of ``fences``."""
        return writing_alias(self.fences, self.token)


@dataclass(frozen=True)
class Settings:
    """Everything the sink needs. Sizes in bytes, times in seconds; ``purge_seconds`` is the pause between two purges of
    old fences while it writes; ``pipeline`` names whose the sink is, empty if nobody says."""

    kind: str
    name: str
    url: str = field(repr=False)
    targets: Mapping[str, Target]
    index_settings: Mapping[str, Any]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    signer: str | None = None
    ca_certs: str | None = None
    bulk_bytes: int = 5 << 20
    bulk_count: int = 2000
    bulk_workers: int = 3
    max_document_bytes: int = 50 << 20
    request_timeout_seconds: float = 60.0
    give_up_seconds: float | None = None
    fence_seconds: int = 7 * 86400
    purge_seconds: float = 3600.0
    pipeline: str = ""

    @property
    def product(self) -> Product:
        """What the server is to be."""
        return PRODUCTS[self.kind]

    @property
    def who(self) -> str:
        """How errors name this sink; credentials inside the URL are left out."""
        parts = urlsplit(self.url)
        return f"sink {self.name!r} ({self.product.name} at {parts.scheme}://{parts.hostname}:{parts.port or 9200})"


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Check and convert the plain-data configuration.

    Raises:
        ConfigError: an unknown key, a value out of bounds, a name that the server would refuse.
    """
    fields = Fields(f"sink {config.get('name', '?')!r}", config)
    kind = fields.text("type")
    name, url, token = fields.text("name"), fields.text("url"), fields.number("token", 0, 0, MAX_TOKEN)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"{fields.who}: url must look like http://host:9200 or https://host:9200")
    targets = fields.mapping("targets").items()
    settings = Settings(
        kind=kind,
        name=name,
        url=url,
        targets={view: _target(fields.who, kind, view, spec, token) for view, spec in targets},
        index_settings=fields.mapping("settings"),
        user=fields.optional("user"),
        password=fields.optional("password"),
        api_key=fields.optional("api_key"),
        signer=fields.optional("signer"),
        ca_certs=fields.optional("ca_certs"),
        # Over ~15 MB a bulk gains nothing and begins to trip the server's indexing-pressure limit on small heaps.
        bulk_bytes=fields.number("bulk_bytes", 5 << 20, 1 << 10, 90 << 20),
        bulk_count=fields.number("bulk_count", 2000, 1, 100_000),
        bulk_workers=fields.number("bulk_workers", 3, 1, 32),
        # The server's http.max_content_length is 100 MB, and a body over it ends in a broken connection, which looks
        # exactly like an outage: so one too large document would hold the batch for ever.
        max_document_bytes=fields.number("max_document_bytes", 50 << 20, 1 << 10, 95 << 20),
        request_timeout_seconds=fields.seconds("request_timeout_seconds", 60.0, 3600) or 60.0,
        give_up_seconds=fields.seconds("give_up_seconds", None, 86400 * 30),
        fence_seconds=fields.number("fence_seconds", 7 * 86400, 1, 86400 * 3650),
        purge_seconds=fields.seconds("purge_seconds", 3600.0, 86400 * 30) or 3600.0,
        pipeline=fields.optional("pipeline") or "",
    )
    fields.done()
    if not settings.targets:
        raise ConfigError(f"{fields.who}: no view to write")
    return settings


def _target(who: str, kind: str, view: str, spec: Any, token: int) -> Target:
    fields = Fields(f"{who}, view {view!r}", spec if isinstance(spec, Mapping) else {})
    index = fields.text("index", view)
    if not INDEX_NAME.fullmatch(index):
        raise ConfigError(
            f"{fields.who}: {index!r} can't be an index name",
            fix="use up to 200 lower-case letters, digits, '_', '-' and '.', beginning with a letter or digit",
        )
    routed = fields.mapping("routing")
    routing = (int(routed["at"]), int(routed["of"])) if routed else None
    generation = fields.number("generation", 1, 1, 10**6)
    properties = fields.mapping("properties")
    if kind == "opensearch":
        properties = field_types(properties)
    target = Target(view, index, generation, properties, token, routing)
    fields.done()
    return target
