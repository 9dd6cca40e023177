"""One view in one generation of one sink."""

from __future__ import annotations

from typing import NamedTuple

from cdc.pipeline import IcebergSink, Pipeline
from truth.expected import Form


class Place(NamedTuple):
    """A generation of a sink, as it was defined.

    Attributes:
        pipeline: with the sink's part and views as the generation was made of.
        sink: its name.
        generation: its number.
        token: of the newest lease, which writes need.
    """

    pipeline: Pipeline
    sink: str
    generation: int
    token: int = 0

    @property
    def warehouse(self) -> bool:
        """Whether it keeps tables, not documents."""
        return isinstance(self.pipeline.sinks[self.sink], IcebergSink)

    @property
    def form(self) -> Form:
        """How it holds a view."""
        return "columns" if self.warehouse else "document"
