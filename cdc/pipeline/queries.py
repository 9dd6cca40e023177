"""``queries`` of the pipeline file: views on whose changes searches stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from cdc.pipeline.fields import NAME, QUERY, TOPIC, Name, Part, Whole, entry
from cdc.pipeline.push import checked_address, checked_secret

QueryNames = Annotated[tuple[Annotated[str, Field(pattern=QUERY)], ...], Field(strict=False, max_length=1_000)]


class MatchPush(Part):
    """Who is sent what enters, changes and leaves: an address, as of `push`, or a topic."""

    url: SecretStr | None = entry(
        None,
        "Address (http or https) that is sent a POST with a JSON list of events. It often holds a secret, so it is "
        "never printed.",
        example="${ORDERS_WEBHOOK:-https://app.example.org/matches}",
    )
    secret: SecretStr | None = entry(
        None,
        "What the receiver proves the signature with: as of a webhook of `push`.",
        example="${ORDERS_WEBHOOK_SECRET:-whsec_bm90IGEgc2VjcmV0LCBidXQgbG9uZyBlbm91Z2g=}",
    )
    topic: str | None = entry(
        None,
        "Instead of an address: a topic of the pipeline's brokers, which is made if it is not there. A record for each "
        "document, keyed by it.",
        example="order-matches",
        pattern=TOPIC,
    )
    queries: QueryNames = entry(
        (), "Only what these queries tell, by their names.", shown_default="all of the view's", example=["big"]
    )
    batch: Whole = entry(100, "Most events of one POST, or of one write.", unit="events", ge=1, le=500)
    start: Literal["snapshot", "now"] = entry(
        "snapshot", "What is sent first: who matches now, or only what comes.", alias="from"
    )

    @property
    def chosen(self) -> str:
        """What is sent of all: the queries' names. Equal ones choose the same."""
        return ",".join(sorted({*self.queries}))

    @field_validator("url")
    @classmethod
    def _address(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else checked_address(value)

    @field_validator("secret")
    @classmethod
    def _key(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else checked_secret(value)


class Saved(Part):
    """A view each of whose documents is a query: it is put, changed and removed as the document is."""

    view: Name = entry(
        description="The view, of the same redis sink. A document's key is its query's name.",
        example="saved_search",
        pattern=NAME,
    )
    query: str = entry(
        "query",
        "The field of its documents that has the query: JSON, or text that is some.",
        min_length=1,
    )


class Queries(Part):
    """Standing queries over one view, which the key names: searches that each version of a document is held against."""

    search: Name = entry(
        description="The elasticsearch or opensearch sink that has this view: its server keeps queries, and judges.",
        example="search",
    )
    changes: Name = entry(
        description="The redis sink with `changes` that has this view: its server tells of each version, and keeps who "
        "matches.",
        example="cache",
    )
    keep: Whole = entry(
        100_000,
        "About how many versions that concern a query are kept: who was away for longer is told anew who matches.",
        unit="versions",
        ge=100,
        le=10_000_000,
    )
    push: Mapping[Name, MatchPush] = entry({}, "Webhooks and topics that are sent the matches, by name.")
    saved: Saved | None = entry(
        None, "Where the queries come from, instead of from whoever puts them: documents of another view."
    )
