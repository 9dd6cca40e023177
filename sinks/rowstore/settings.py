"""Where a row store is, as plain data that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StoreSettings:
    """Where the row store is; times in seconds.

    Attributes:
        namespace: see ``sinks.rowstore.key_names``.
        title: what the namespace stands for, in words.
        fade_seconds: how long marks of deleted rows and documents are kept: longer than any replay.
        token: of the runner's lease; 0 for whoever only looks, or writes what anybody may (versions).
        away_seconds: see ``sinks.awake``; 0 where workers live and die with this process.
    """

    url: str = field(repr=False)
    namespace: str
    title: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    cluster: bool = False
    ca_certs: str | None = None
    fade_seconds: int = 7 * 86400
    request_timeout_seconds: float = 30.0
    give_up_seconds: float | None = None
    away_seconds: float = 0.0
    token: int = 0
