"""Sinks of the pipeline file that are search servers: Elasticsearch and what was forked from it."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import SecretStr

from cdc.pipeline.fields import (
    HTTP,
    INDEX,
    INDEX_PREFIX,
    SIGNER,
    FieldMapping,
    JsonObject,
    Number,
    Text,
    Whole,
    entry,
)
from cdc.pipeline.sink import FENCE, GIVE_UP, SinkPart


class SearchSink(SinkPart):
    """Documents in a search server: an index a view, behind an alias."""

    type: str = entry(description="Kind of sink.", content=True)
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
        content=True,
        pattern=INDEX,
    )
    index_prefix: str = entry(
        "",
        "What the name of each view's index begins with, so that pipelines can share a server. Not with `index`.",
        shown_default='""',
        example="shop-",
        alternative=True,
        content=True,
        pattern=INDEX_PREFIX,
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

    def index_of(self, view: str) -> str:
        """The alias under which a view's documents are found.

        Args:
            view: its name, or that of a table that is kept whole.
        """
        # Elasticsearch allows lower case only; a table may have been named otherwise.
        return self.index or f"{self.index_prefix}{view.lower()}"

    def can_name(self, view: str) -> bool:
        """An index is called as few tables are not: a name may begin with an underscore, an index may not."""
        return re.fullmatch(INDEX, self.index_of(view)) is not None


class ElasticsearchSink(SearchSink):
    """Documents in Elasticsearch 8 or 9: an index a view, behind an alias."""

    type: Literal["elasticsearch"] = entry(description="Kind of sink.", content=True)

    @property
    def kept(self) -> str:
        """Its indices."""
        return "its Elasticsearch indices"


class OpenSearchSink(SearchSink):
    """Documents in OpenSearch 3: an index a view, behind an alias."""

    type: Literal["opensearch"] = entry(description="Kind of sink.", content=True)
    url: str = entry(
        description="Address of the server.", example="${HEADWATER_OPENSEARCH:-http://127.0.0.1:9200}", pattern=HTTP
    )
    signer: str | None = entry(
        None,
        "What signs each request, instead of user or api_key: module:function, called once without arguments; what it "
        "returns has `sign(method, url, body, headers)`, as opensearch-py's AWSV4Signer has for SigV4.",
        example="our_aws:signer",
        alternative=True,
        shown_default="none",
        pattern=SIGNER,
    )

    @property
    def kept(self) -> str:
        """Its indices."""
        return "its OpenSearch indices"
