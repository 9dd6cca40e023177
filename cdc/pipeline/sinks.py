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
    JsonObject,
    Name,
    Number,
    Part,
    Text,
    Whole,
    entry,
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
    mapping: FieldMapping = entry(
        {},
        "Mapping of fields (analysers, geo_point ...) in place of the one that is derived from the column's type.",
        example={"email": {"type": "keyword"}},
        content=True,
    )
    settings: JsonObject = entry(
        {}, "Settings of the index: shards, replicas, analysis ...", example={"number_of_shards": 1}, content=True
    )
    bulk_bytes: Whole = entry(
        5 << 20,
        "Size of a bulk request; the server refuses more than its http.max_content_length (100 MB).",
        unit="bytes",
        ge=1024,
        le=100 << 20,
    )
    bulk_workers: Whole = entry(3, "Bulk requests that a task has under way at once.", unit="requests", ge=1, le=64)
    request_timeout_seconds: Number = entry(
        60.0, "How long a request may take before it is sent again.", unit="seconds", gt=0, le=3600
    )


class RedisSink(SinkPart):
    """JSON values in Redis under <key_prefix><view>:<id>."""

    type: Literal["redis"] = entry(description="Kind of sink.", content=True)
    url: str = entry(
        description="Address of the server, with its password and database: redis://:password@host:port/db.",
        example="${HEADWATER_REDIS_CACHE:-redis://127.0.0.1:6379/0}",
        pattern=REDIS,
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
    fence_seconds: Whole = entry(
        604_800,
        "How long a deleted key's version is remembered, so that a replay can't bring it back: as long as "
        "kafka.tombstone_retention_hours.",
        unit="seconds",
        ge=1,
        le=10 * 365 * 86400,
    )


class IcebergSink(SinkPart):
    """Tables in Apache Iceberg, the current rows of each view or table."""

    type: Literal["iceberg"] = entry(description="Kind of sink.", content=True)
    catalog_uri: Text = entry(
        description="The catalogue: the path of a SQLite file, or a JDBC URL (jdbc:postgresql://host/db).",
        example=".headwater/warehouse/catalog.db",
    )
    warehouse: Text = entry(
        description="Where the tables' files are: a folder or a URI.", example=".headwater/warehouse"
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


Sink = Annotated[ElasticsearchSink | RedisSink | IcebergSink, Field(discriminator="type")]
SINKS: dict[str, type[SinkPart]] = {
    "elasticsearch": ElasticsearchSink,
    "redis": RedisSink,
    "iceberg": IcebergSink,
}
