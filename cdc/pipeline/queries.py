"""``queries`` of the pipeline file: views on whose changes searches stand."""

from __future__ import annotations

from cdc.pipeline.fields import Name, Part, Whole, entry


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
