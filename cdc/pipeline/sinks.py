"""``sinks`` of the pipeline file: where views are kept."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from cdc.pipeline.fields import (
    HTTP,
    INDEX,
    NAMESPACE,
    PREFIX,
    REDIS,
    AllOrTables,
    FieldMapping,
    Flag,
    JsonObject,
    Name,
    Number,
    Part,
    Text,
    Whole,
    entry,
)

GIVE_UP = (
    "How long a write is tried again before the failure shows in `status`; the flow then starts again from where it "
    "was, for ever."
)
FENCE = (
    "How long a deleted key's version is remembered, so that a replay can't bring it back: as long as "
    "kafka.tombstone_retention_hours."
)


class SinkPart(Part):
    """What every sink is told: one of view, views and tables."""

    view: Name | None = entry(None, "The view to keep; or `views`, or `tables`.", example="customer", active=True)
    views: Annotated[tuple[Name, ...], Field(strict=False)] = entry(
        (), "Several views.", example=["customer"], alternative=True, max_length=2000
    )
    tables: AllOrTables = entry(
        None, "`all` or a list of tables: each is kept whole, under its own name.", example="all", alternative=True
    )

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of its views; empty when it keeps tables."""
        return (self.view,) if self.view else self.views

    @property
    def trigger_ms(self) -> int | None:
        """Time between batches where it is not the engine's, in milliseconds."""
        return None

    @property
    def form(self) -> Literal["document", "columns"]:
        """How a row of a view is kept: as a JSON document, or as a row of a table."""
        return "document"

    @property
    def kept(self) -> str:
        """What it keeps, in words."""
        return "its documents"


class ElasticsearchSink(SinkPart):
    """Documents in Elasticsearch: an index a view, behind an alias."""

    type: Literal["elasticsearch"] = entry(description="Kind of sink.", content=True)
    url: str = entry(
        description="Address of the server.", example="${HEADWATER_ELASTICSEARCH:-http://127.0.0.1:9200}", pattern=HTTP
    )
    user: Text | None = entry(None, "User, when the server asks for one; or `api_key`.", example="headwater")
    password: SecretStr | None = entry(
        None, "Its password.", example="${ELASTICSEARCH_PASSWORD:-}", shown_default="none"
    )
    api_key: SecretStr | None = entry(
        None,
        "API key instead of user and password.",
        example="${ELASTICSEARCH_API_KEY}",
        alternative=True,
        shown_default="none",
    )
    index: str | None = entry(
        None,
        "The alias under which the documents are found. Only with one view.",
        shown_default="the view's name",
        example="customers",
        pattern=INDEX,
    )
    routing: Text | None = entry(
        None,
        "Column of the primary key of every view's root by whose value documents are placed among the shards, so that "
        "a search that names it asks one shard. The key must have others.",
        shown_default="the document's id",
        example="customer_id",
        content=True,
    )
    mapping: FieldMapping = entry(
        {},
        "Mapping of fields (analysers, geo_point ...) in place of the one that is derived from the column's type.",
        example={"email": {"type": "keyword"}},
        content=True,
    )
    settings: JsonObject = entry(
        {}, "Settings of the index: shards, replicas, analysis ...", example={"number_of_shards": 1}, content=True
    )
    ca_certs: Text | None = entry(
        None,
        "PEM file with the authorities that sign the server's certificate (https).",
        example="certs/elasticsearch-ca.pem",
        shown_default="the system's",
    )
    bulk_bytes: Whole = entry(
        5 << 20,
        "Size of a bulk request; the server refuses more than its http.max_content_length (100 MB).",
        unit="bytes",
        ge=1024,
        le=90 << 20,
    )
    bulk_count: Whole = entry(2000, "Most documents of a bulk request.", unit="documents", ge=1, le=100_000)
    bulk_workers: Whole = entry(3, "Bulk requests that a task has under way at once.", unit="requests", ge=1, le=32)
    request_timeout_seconds: Number = entry(
        60.0, "How long a request may take before it is sent again.", unit="seconds", gt=0, le=3600
    )
    give_up_seconds: Number = entry(30.0, GIVE_UP, unit="seconds", gt=0, le=86_400)
    fence_seconds: Whole = entry(604_800, FENCE, unit="seconds", ge=1, le=10 * 365 * 86400)

    @property
    def kept(self) -> str:
        """Its indices."""
        return "its Elasticsearch indices"


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
        "How long a table can be read as it was: all snapshots for an hour, then one of each hour; tagged ones stay.",
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

    @property
    def form(self) -> Literal["document", "columns"]:
        """As a row of a table."""
        return "columns"

    @property
    def kept(self) -> str:
        """Its tables."""
        return f"its Iceberg tables in namespace {self.namespace}"


Sink = Annotated[ElasticsearchSink | RedisSink | IcebergSink, Field(discriminator="type")]
SINKS: dict[str, type[SinkPart]] = {
    "elasticsearch": ElasticsearchSink,
    "redis": RedisSink,
    "iceberg": IcebergSink,
}
