"""What every sink of the pipeline file is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cdc.pipeline.fields import AllOrTables, Name, Part, entry

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

    def can_name(self, view: str) -> bool:
        """Whether something of its can be called as a view is, or as a table that is kept whole.

        Args:
            view: the name.
        """
        return True

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
