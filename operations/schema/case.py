"""What a changed table means for one view of one generation."""

from __future__ import annotations

from dataclasses import dataclass, field

from operations.schema.decide import Decision
from operations.schema.mapped import Fields


@dataclass(frozen=True)
class Case:
    """One view of one generation, and what a changed table means for it.

    Attributes:
        sink: whose.
        generation: which one.
        living: it is the one that readers see.
        view: the view's name.
        table: the changed one.
        decision: what the change means.
        whole: what everything means that the generation has not followed so far: more than the last change, where it
            goes on with the table as it was before others.
        mapped: the fields that the view's index has afterwards, if the generation follows.
    """

    sink: str
    generation: int
    living: bool
    view: str
    table: str
    decision: Decision
    whole: Decision
    mapped: Fields = field(default_factory=dict)
