"""What a repair is to do, what it has done, and why it would not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.keys import shown
from cdc.view import View
from connectors.database.visibility import Visible
from operations.holding import Holding
from operations.opened import Opened
from operations.records.newest import Newest
from operations.verify.buckets import Keys
from operations.verify.comparison import NAMED, unmarked
from operations.verify.looks import next_number
from sinks.contract import Sink
from spark.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Reasons kept, unless somebody asks for each of his keys; a report names fewer.
REASONS = 1_000


@dataclass
class Refused:
    """Keys that could not be repaired, and why.

    Attributes:
        default: why a key still differs of which nothing is known.
        limit: how many reasons are kept; None for all, where a key without one is taken for done.
    """

    default: str
    limit: int | None = REASONS
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, why: str) -> None:
        """Remember a reason, while there are not too many."""
        if self.limit is None or len(self.reasons) < self.limit:
            self.reasons[key] = why

    def explained(self, left: Keys) -> list[dict[str, str]]:
        """The first keys of those that still differ, with why."""
        page = next(left.pages(NAMED), {})
        keys = [unmarked(key)[1] for key in page]
        return [{"key": shown(key), "why": self.reasons.get(key, self.default)} for key in keys]


@dataclass(frozen=True)
class Repair:
    """What repairing a view of a generation needs.

    Attributes:
        build: the generation.
        flow: the view's flow, which is not started here; plain views share one.
        holding: the view, and what the sink holds of it.
        session: Spark's; may be missing where neither Spark SQL nor a table is concerned.
        refused: told what can't be repaired.
        seen: what was seen by which keys were called different; None if nobody was to look. What is newer, or could not
            be seen yet, is moving, and is left alone.
    """

    build: Opened
    flow: Flow
    holding: Holding
    session: SparkSession | None
    refused: Refused
    seen: Visible | None = None

    def still(self, kinds: Mapping[str, str], newest: Mapping[str, Newest]) -> dict[str, str]:
        """Those of some keys whose newest record could be seen by whoever called them different.

        Args:
            kinds: key -> how it differs.
            newest: their newest records.

        Raises:
            SourceUnavailable: no answer (transient).
            RegistryError: the schema registry can't be asked.
        """
        if self.seen is None or not newest:
            return dict(kinds)
        decoders, end = self.flow.spec.decoders(), next_number(self.build.pipeline)
        records = {key: found.record for key, found in newest.items()}
        by = {key: decoders[record.topic].told(record.value)[1] for key, record in records.items()}
        return {key: kind for key, kind in kinds.items() if self.seen.has(by.get(key), end)}

    @property
    def view(self) -> View:
        """The view, as Spark has analysed it."""
        return self.flow.spec.views[self.holding.view.name]

    @property
    def spark(self) -> SparkSession:
        """The session, where one is needed."""
        assert self.session is not None, "what Spark computes was to be made without it"
        return self.session

    @property
    def sink(self) -> Sink:
        """The sink that documents are written to."""
        target = self.holding.target
        assert isinstance(target, Sink), "documents are repaired in sinks that take them"
        return target
