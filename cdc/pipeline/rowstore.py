"""``row_store`` of the pipeline file: where joined views keep the rows that their documents are made of."""

from __future__ import annotations

from pydantic import SecretStr

from cdc.pipeline.fields import REDIS, Flag, Part, Text, entry


class RowStore(Part):
    """Where joined views keep the rows of their tables: a Redis server that never evicts (see docs/views.md)."""

    url: str = entry(
        description="Address of the server, with its database: redis://host:port/db. It must not evict keys, and "
        "losing it means rebuilding the sinks.",
        example="${HEADWATER_REDIS_STORE:-redis://127.0.0.1:6379/0}",
        pattern=REDIS,
    )
    cluster: Flag = entry(False, "Whether the server is a Redis Cluster; the database in `url` must then be 0.")
    user: Text | None = entry(
        None, "ACL user, instead of one in `url`.", example="headwater", shown_default="the one in `url`"
    )
    password: SecretStr | None = entry(
        None, "Password, instead of one in `url`.", example="${REDIS_PASSWORD:-}", shown_default="the one in `url`"
    )
    ca_certs: Text | None = entry(
        None,
        "PEM file with the authorities that sign the server's certificate (rediss://).",
        example="certs/redis-ca.pem",
        shown_default="the system's",
    )
