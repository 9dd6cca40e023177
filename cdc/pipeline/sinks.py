"""``sinks`` of the pipeline file: where views are kept."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from cdc.pipeline.fields import HTTP, NAMESPACE, PREFIX, REDIS, Flag, Number, Part, Text, Whole, entry
from cdc.pipeline.search import ElasticsearchSink, OpenSearchSink
from cdc.pipeline.sink import FENCE, GIVE_UP, SinkPart


class Changes(Part):
    """Every change of a view's documents, kept in the server for who subscribes to them (docs/push.md)."""

    keep: Whole = entry(
        100_000,
        "About how many changes of each view are kept: who was away for longer is sent all documents again. Each takes "
        "the memory of two documents.",
        unit="changes",
        ge=100,
        le=10_000_000,
    )


class RedisSink(SinkPart):
    """JSON values in Redis under <key_prefix><view>:<id>."""

    type: Literal["redis"] = entry(description="Kind of sink.", content=True)
    url: str = entry(
        description="Address of the server, with its password and database: redis://:password@host:port/db.",
        example="${HEADWATER_REDIS_CACHE:-redis://127.0.0.1:6379/0}",
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
    key_prefix: str = entry(
        "", "What every key begins with.", shown_default='""', example="shop:", content=True, pattern=PREFIX
    )
    ttl_seconds: Whole | None = entry(
        None,
        "How long a value stays that is not written again.",
        unit="seconds",
        shown_default="for ever",
        example=86400,
        ge=1,
        le=10 * 365 * 86400,
        content=True,
    )
    on_loss: Literal["rebuild", "refuse"] = entry(
        "rebuild",
        "When the server has lost what readers saw (FLUSHALL, a restart without its data): `run` makes the sink again "
        "from offset 0 by itself, or its flows stay failed until somebody does.",
    )
    changes: Changes | None = entry(
        None,
        "Keep every change of the documents as well, so that applications can subscribe to them (docs/push.md). Not "
        "with cluster or ttl_seconds.",
        example={"keep": 100_000},
        alternative=True,
    )
    request_timeout_seconds: Number = entry(
        30.0, "How long an answer may take before the request is sent again.", unit="seconds", gt=0, le=3600
    )
    give_up_seconds: Number = entry(30.0, GIVE_UP, unit="seconds", gt=0, le=86_400)
    fence_seconds: Whole = entry(604_800, FENCE, unit="seconds", ge=1, le=10 * 365 * 86400)

    @property
    def kept(self) -> str:
        """Its keys."""
        return "its Redis keys"


class IcebergSink(SinkPart):
    """Tables in Apache Iceberg, the current rows of each view or table."""

    type: Literal["iceberg"] = entry(description="Kind of sink.", content=True)
    catalog_uri: Text = entry(
        description="The catalogue: the path of a SQLite file, a JDBC URL (jdbc:postgresql://host/db), or the address "
        "of a REST catalogue (https://host/path, what stands in front of /v1).",
        example=".headwater/warehouse/catalog.db",
    )
    warehouse: Text = entry(
        description="Where the tables' files are: a folder, or s3://bucket/path. A REST catalogue chooses the places "
        "of new tables itself; say here where that is.",
        example=".headwater/warehouse",
    )
    namespace: str = entry(
        description="Namespace of the tables in the catalogue.", example="shop", content=True, pattern=NAMESPACE
    )
    trigger_seconds: Number = entry(
        5.0,
        "Time between commits: each is a MERGE of seconds and makes files; fewer are cheaper to read.",
        unit="seconds",
        ge=0,
        le=86_400,
    )
    format_version: Literal[2, 3] = entry(
        3,
        "Iceberg's format, of tables that are made from now on: 3 keeps reads quick under many changes (deletion "
        "vectors, row lineage); 2 is for engines that do not read it yet.",
    )
    maintenance: Flag = entry(
        True,
        "Whether the tables are kept quick to read: small files put together, deleted rows left out, old snapshots and "
        "files of nobody removed, between two commits. Off for who has a service that does it.",
    )
    snapshot_days: Number = entry(
        1.0,
        "How long a table can be read as it was: all snapshots for an hour (of a table that changes more than 200 "
        "times an hour the newest 200, and those of two minutes), then one of each hour; tagged ones stay.",
        unit="days",
        ge=0,
        le=3650,
    )
    history: Flag = entry(
        False,
        "Whether every change is kept as well, in a table <table>_history for each table that a view is rooted in, "
        "from which `headwater as-of` reads all tables as of one commit.",
    )
    rest_warehouse: Text | None = entry(
        None, "What a REST catalogue calls its warehouse, if it has several.", example="prod", shown_default="its own"
    )
    token: SecretStr | None = entry(
        None, "Bearer token for a REST catalogue; or `credential`.", example="${ICEBERG_TOKEN:-}", shown_default="none"
    )
    credential: SecretStr | None = entry(
        None,
        "client:secret, for which a REST catalogue gives tokens (OAuth 2, client credentials).",
        example="${ICEBERG_CREDENTIAL}",
        alternative=True,
        shown_default="none",
    )
    oauth_uri: str | None = entry(
        None,
        "Where it gives them.",
        example="https://login.example.com/oauth2/token",
        shown_default="catalog_uri, and /v1/oauth/tokens",
        pattern=HTTP,
    )
    scope: Text | None = entry(None, "The scope that is asked for there.", example="catalog", shown_default="catalog")
    s3_endpoint: str | None = entry(
        None,
        "Address of a server of S3's protocol that is not AWS. The keys are AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY in the environment, never in this file.",
        example="http://127.0.0.1:9000",
        shown_default="$AWS_ENDPOINT_URL_S3, else AWS",
        pattern=HTTP,
    )
    s3_region: Text | None = entry(
        None, "Region of the bucket.", example="eu-central-1", shown_default="$AWS_REGION, else us-east-1"
    )
    s3_path_style: Flag | None = entry(
        None,
        "Whether the bucket stands in the path of an address instead of in its host's name.",
        example=True,
        shown_default="true with an s3_endpoint",
    )

    @property
    def trigger_ms(self) -> int | None:
        """Time between commits."""
        return int(self.trigger_seconds * 1000)

    def can_name(self, view: str) -> bool:
        """No engine should have to quote a table's name."""
        return re.fullmatch(NAMESPACE, view) is not None

    @property
    def form(self) -> Literal["document", "columns"]:
        """As a row of a table."""
        return "columns"

    @property
    def kept(self) -> str:
        """Its tables."""
        return f"its Iceberg tables in namespace {self.namespace}"


Sink = Annotated[ElasticsearchSink | OpenSearchSink | RedisSink | IcebergSink, Field(discriminator="type")]
SINKS: dict[str, type[SinkPart]] = {
    "elasticsearch": ElasticsearchSink,
    "opensearch": OpenSearchSink,
    "redis": RedisSink,
    "iceberg": IcebergSink,
}
