"""The Redis sink's settings, from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cdc.errors import ConfigError
from sinks.fields import MAX_TOKEN, Fields

# A change holds two documents: more than this of a view is a log, and that is Kafka's.
MAX_KEPT = 10_000_000
SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True)
class Settings:
    """Everything the sink needs. Sizes in bytes, times in seconds.

    Attributes:
        targets: views that may be written, with the generation of each.
        key_prefix: put before ``<view>:<id>``.
        ttl_seconds: how long a value lives without being written again; None: for ever.
        fence_seconds: how long a delete's version is remembered; must outlive any replay, so by default as long as
            the topics keep tombstones.
        token: of the lease under which this process writes.
        owner: ``<pipeline>/<sink>``, as which it claims its keys.
        keep: about how many changes of each view are kept for subscribers; 0: none.
    """

    name: str
    url: str = field(repr=False)
    targets: Mapping[str, int]
    key_prefix: str = ""
    ttl_seconds: int | None = None
    fence_seconds: int = 7 * 86400
    cluster: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_certs: str | None = None
    pipeline_count: int = 1000
    pipeline_bytes: int = 8 << 20
    max_document_bytes: int = 64 << 20
    request_timeout_seconds: float = 30.0
    give_up_seconds: float | None = None
    token: int = 0
    owner: str = ""
    keep: int = 0

    @property
    def who(self) -> str:
        """How errors name this sink; credentials inside the URL are left out."""
        parts = urlsplit(self.url)
        where = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
        return f"sink {self.name!r} (Redis at {where})"


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Check and convert the plain-data configuration.

    Raises:
        ConfigError: an unknown key or a value out of bounds.
    """
    fields = Fields(f"sink {config.get('name', '?')!r}", config)
    fields.text("type")
    name, url = fields.text("name"), fields.text("url")
    if urlsplit(url).scheme not in SCHEMES:
        raise ConfigError(f"{fields.who}: url must look like redis://host:6379/0 or rediss://host:6379/0")
    settings = Settings(
        name=name,
        url=url,
        targets={view: _generation(fields.who, view, spec) for view, spec in fields.mapping("targets").items()},
        key_prefix=fields.text("key_prefix", ""),
        ttl_seconds=fields.number("ttl_seconds", 0, 0, 86400 * 3650) or None,
        fence_seconds=fields.number("fence_seconds", 7 * 86400, 1, 86400 * 3650),
        cluster=fields.flag("cluster"),
        user=fields.optional("user"),
        password=fields.optional("password"),
        ca_certs=fields.optional("ca_certs"),
        # One pipeline's answers are kept in the server's memory until it has read all of it.
        pipeline_count=fields.number("pipeline_count", 1000, 1, 100_000),
        pipeline_bytes=fields.number("pipeline_bytes", 8 << 20, 1 << 10, 256 << 20),
        # Over proto-max-bulk-len (512 MB) the server hangs up, which looks exactly like an outage.
        max_document_bytes=fields.number("max_document_bytes", 64 << 20, 1 << 10, 500 << 20),
        request_timeout_seconds=fields.seconds("request_timeout_seconds", 30.0, 3600) or 30.0,
        give_up_seconds=fields.seconds("give_up_seconds", None, 86400 * 30),
        token=fields.number("token", 0, 0, MAX_TOKEN),
        owner=fields.text("owner", name),
        keep=fields.number("keep", 0, 0, MAX_KEPT),
    )
    fields.done()
    _refuse_misfit(settings, fields.who)
    return settings


def _refuse_misfit(settings: Settings, who: str) -> None:
    """Refuse settings that are right each by itself, and together can't be.

    Raises:
        ConfigError: that is so.
    """
    if not settings.targets:
        raise ConfigError(f"{who}: no view to write")
    if "{" in settings.key_prefix or "}" in settings.key_prefix:
        raise ConfigError(
            f"{who}: key_prefix can't contain braces",
            means="in Redis Cluster they choose the slot, and a value must share one with its version",
        )
    if settings.keep and (settings.cluster or settings.ttl_seconds):
        # Another slot can't be written in the same step, and nobody is told when a value ends by itself.
        raise ConfigError(f"{who}: changes are not kept in a cluster, nor of values with a ttl")
    braced = next((view for view in settings.targets if "{" in view or "}" in view), None)
    if settings.cluster and braced is not None:
        raise ConfigError(
            f"{who}: the view {braced!r} has braces in its name",
            means="in Redis Cluster they choose the slot, and a value must share one with its version",
            fix="keep the table by a view of another name",
        )


def _generation(who: str, view: str, spec: Any) -> int:
    fields = Fields(f"{who}, view {view!r}", spec if isinstance(spec, Mapping) else {})
    generation = fields.number("generation", 1, 1, 10**6)
    fields.done()
    return generation
