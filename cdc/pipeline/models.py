"""The pipeline file as one typed, frozen object."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator

from cdc.errors import PipelineFileError
from cdc.pipeline.fields import (
    MASTER,
    MEMORY,
    PIPELINE_NAME,
    MebiBytes,
    Name,
    Number,
    Part,
    PlainOptions,
    Size,
    Text,
    Whole,
    entry,
)
from cdc.pipeline.push import Webhook, checked_address
from cdc.pipeline.queries import Queries
from cdc.pipeline.rowstore import RowStore
from cdc.pipeline.sinks import Sink
from cdc.pipeline.source import Connect, Kafka, Source
from cdc.pipeline.views import JOINS, STATEFUL, View

# How the topic of dead letters is called behind the prefix: no table's, which has a dot.
DEAD_LETTERS = "dead-letters"

Path = tuple[str | int, ...]


class Place(NamedTuple):
    """A place in a pipeline file; as text ``file:line:column``, or nothing for a pipeline that is from no file."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.file else ""


class DeadLetters(Part):
    """What is kept of what no sink would take."""

    keep_days: Whole = entry(
        30, "How long a letter is kept, with its document; `apply` sets it.", unit="days", ge=1, le=3650
    )
    values: bool = entry(
        True,
        "Whether letters hold what rows hold: the document, and the words of a server, which quote it. `false`: only "
        "keys, names of fields and the kind of error.",
    )


class Alert(Part):
    """Whom `headwater run` tells when something is bad for a while, and once more when it is well again."""

    webhook: SecretStr = entry(
        description="Address (http or https) that is sent a POST with JSON. It often holds a secret, so it is never "
        "printed.",
        example="${ALERT_WEBHOOK:-https://chat.example.org/hook}",
    )
    after_seconds: Number = entry(
        60.0,
        "For how long a sink, or the source, must be failed, stopped, stalled, retrying or behind.",
        unit="seconds",
        ge=0,
        le=86_400,
    )

    @field_validator("webhook")
    @classmethod
    def _address(cls, value: SecretStr) -> SecretStr:
        return checked_address(value)


class Policy(Part):
    """What to do when the source does what can't simply be followed."""

    truncate: Literal["refuse", "propagate"] = entry(
        "refuse",
        "TRUNCATE of a captured table: `refuse` makes it fail in the source (a trigger), `propagate` deletes "
        "the rows everywhere.",
    )
    toast: Literal["reselect", "full", "allow"] = entry(
        "full",
        "Large values that an UPDATE did not touch are not in the log. `full` sets REPLICA IDENTITY FULL on tables "
        "that may have them (more WAL, nothing lost); `reselect` reads them again from the source, which can miss a "
        "change that commits at that moment; `allow` sends such records to the dead letters.",
    )
    schema_: Literal["evolve", "pause", "ignore"] = entry(
        "evolve",
        "ALTER TABLE of a captured table: `evolve` brings every sink to the new columns while it runs, `pause` stops "
        "the flows concerned until `headwater apply`, `ignore` leaves the views as they are as long as nothing is "
        "touched that they use, and then does as `pause`.",
        alias="schema",
    )
    wal_budget: Size = entry(
        10 << 30,
        "WAL that the slot may make Postgres keep. `check`, `status` and `run` warn from 50 % of it on and raise the "
        "alarm from 80 % on; the server's `max_slot_wal_keep_size` counts instead where it is less.",
        example="10GiB",
        shown_default="10GiB",
        active=True,
    )
    wal_at_limit: Literal["alert", "release"] = entry(
        "alert",
        "What `run` does when the slot keeps more than that: `alert` goes on raising the alarm; `release` drops the "
        "slot, so that the database's disk does not fill, and stops: then every table must be read again "
        "(`headwater resnapshot FILE --all`).",
    )
    replication_slot_max_lag_mb: MebiBytes | None = entry(
        None, "The old name of `wal_budget`, which it excludes.", unit="MiB", example=10240, alternative=True
    )

    dead_letters: DeadLetters = entry(
        DeadLetters(), "What no sink would take: how long it is kept, and what of it.", shown_default="see below"
    )

    traces: bool = entry(
        False,
        "Whether each batch is a span of OpenTelemetry, with links to the spans that wrote its records (`traceparent` "
        "in their headers). Needs `headwater[otel]`.",
    )
    alert: Alert | None = entry(None, "Whom to tell when something is bad; nobody if it is left out.")

    @property
    def wal_bytes(self) -> int:
        """The budget of WAL, under whichever of its names the file gives it."""
        old = self.replication_slot_max_lag_mb
        return self.wal_budget if old is None else old << 20


class Engine(Part):
    """Spark, which reads the log and writes the sinks."""

    state_dir: Text = entry(
        ".headwater/state",
        "Folder for checkpoints and status files. Losing it means rebuilding the sinks.",
    )
    master: str = entry("local[4]", "Spark master: local[N] with N threads, or a cluster's address.", pattern=MASTER)
    driver_memory: str = entry("1g", "Heap of the driver (with local[N] of everything).", pattern=MEMORY)
    jars: str = entry(
        "",
        "Folder with the pinned jars of Spark's connectors.",
        shown_default="$HEADWATER_SPARK_JARS",
        example="${HEADWATER_SPARK_JARS:-}",
    )
    python_archive: str = entry(
        "",
        "For a cluster: the Python environment that its executors are sent, a file made by `headwater pack`. Empty: "
        "they have one at the path of this process's.",
        example="/srv/headwater/python.tar.gz",
    )
    trigger_ms: Whole = entry(
        0, "Least time between micro-batches; 0: one after the other.", unit="milliseconds", ge=0, le=3_600_000
    )
    max_offsets_per_trigger: Whole = entry(
        200_000,
        "Most records of a micro-batch: bounds memory and the work that a crash repeats.",
        unit="records",
        ge=1,
        le=100_000_000,
    )
    spark_conf: PlainOptions = entry(
        {},
        "More settings of Spark; they win over Headwater's own, and options of Java come behind those.",
        example={"spark.ui.enabled": False},
    )


class Pipeline(Part):
    """A pipeline file: a source, views, sinks, policies."""

    version: Literal[1] = entry(description="Version of this file's format.", example=1)
    name: str = entry(
        description="Name of the pipeline: prefix of topics, slot, publication and state. Another name is another "
        "pipeline.",
        example="shop",
        pattern=PIPELINE_NAME,
    )
    source: Source = entry(description="The database.")
    kafka: Kafka = entry(description="The log.")
    connect: Connect = entry(description="The workers that run Debezium.")
    views: Mapping[Name, View] = entry(
        {}, "Documents, by name. None are needed for sinks that keep tables.", active=True
    )
    row_store: RowStore | None = entry(
        None,
        "Where joined views keep the rows of their tables; needed only when a view has refs, children or aggregates.",
        active=True,
    )
    sinks: Annotated[Mapping[Name, Sink], Field(min_length=1)] = entry(
        description="Where the views are kept, by name; each sink runs and fails alone."
    )
    push: Mapping[Name, Webhook] = entry({}, "Webhooks that are sent a view's changes, by name (docs/push.md).")
    queries: Mapping[Name, Queries] = entry(
        {}, "Views, by name, on whose changes standing queries are judged (docs/standing-queries.md)."
    )
    policy: Policy = entry(Policy(), "What to do when the source does what can't simply be followed.", active=True)
    engine: Engine = entry(Engine(), "Spark.", active=True)

    _file: str = PrivateAttr("")
    _places: dict[Path, tuple[int, int]] = PrivateAttr(default_factory=dict)
    _elsewhere: dict[Path, str] = PrivateAttr(default_factory=dict)
    _null_is_text: frozenset[str] = PrivateAttr(frozenset())

    @model_validator(mode="before")
    @classmethod
    def _named_defaults(cls, raw: Any) -> Any:
        name = raw.get("name") if isinstance(raw, Mapping) else None
        if not isinstance(name, str) or not re.fullmatch(PIPELINE_NAME, name):
            return raw
        filled = dict(raw)
        defaults = {
            "source": {"slot": f"headwater_{name}", "publication": f"headwater_{name}"},
            "kafka": {"topic_prefix": name},
        }
        for part, values in defaults.items():
            given = filled.get(part)
            if isinstance(given, Mapping):
                filled[part] = {**values, **{k: v for k, v in given.items() if v not in (None, "")}}
        return filled

    # -- names --------------------------------------------------------------------------------------------------------

    def captures(self, table: str) -> bool:
        """Whether the file has a table captured, by its name or with its whole schema.

        Args:
            table: ``schema.table``.
        """
        return not {table, f"{table.partition('.')[0]}.*"}.isdisjoint(self.source.tables)

    def topic(self, table: str) -> str:
        """The topic of a table.

        Args:
            table: ``schema.table``.
        """
        return f"{self.kafka.topic_prefix}.{table}"

    @property
    def dead_letter_topic(self) -> str:
        """Where records and documents go that no retry can land, with their reason."""
        return self.topic(DEAD_LETTERS)

    @property
    def signal_topic(self) -> str:
        """Where the connector is asked for incremental snapshots."""
        return f"{self.kafka.topic_prefix}-signal"

    @property
    def notification_topic(self) -> str:
        """Where Debezium tells how its snapshots go."""
        return f"{self.kafka.topic_prefix}-notifications"

    @property
    def events_topic(self) -> str:
        """Where an outbox's events go whose type has no topic of its own; the other topics' names begin with it."""
        return f"{self.kafka.topic_prefix}-events"

    @property
    def heartbeat_topic(self) -> str:
        """Debezium's own heartbeats."""
        return f"__debezium-heartbeat.{self.kafka.topic_prefix}"

    # -- places -------------------------------------------------------------------------------------------------------

    @property
    def file(self) -> str:
        """The file it was read from, as it was named; "" for none."""
        return self._file

    def read_from(self, file: str, places: Mapping[Path, tuple[int, int]]) -> None:
        """Remember where the parts stand; for ``load``."""
        self._file, self._places = file, dict(places)

    def locate(self, path: Path) -> Place:
        """Where a key or value stands in the file.

        Args:
            path: keys and indexes, like ``("views", "flight", "columns", 2)``; what is not in the file (a default)
                stands where the nearest part around it does.

        Returns:
            file, line and column (from 1); ``str()`` of it is ``file:line:column``.
        """
        for end in range(len(path), -1, -1):
            if path[:end] in self._places:
                return Place(self._file, *self._places[path[:end]])
        return Place(self._file, 1, 1)

    def read_elsewhere(self, title: str, paths: Iterable[Path]) -> None:
        """Remember that parts do not say what the file says: errors about them name ``title`` and no line of the file.

        Args:
            title: where they come from, in words.
            paths: of the parts.
        """
        self._elsewhere = {**self._elsewhere, **dict.fromkeys(paths, title)}

    def error_at(self, path: Path, what: str, fix: str = "", means: str = "") -> PipelineFileError:
        """An error that names file, line and column; for checks that need the source's catalogue.

        Args:
            path: as for ``locate``.
            what: what is wrong there.
            fix: the way out.
            means: what it means, if that is not obvious.
        """
        inside = next((title for end, title in self._elsewhere.items() if path[: len(end)] == end), "")
        named = ".".join(map(str, path))
        where = f"{inside}, {named}" if inside else str(self.locate(path)) or named
        return PipelineFileError(f"{where}: {what}", means=means, fix=fix)

    # -- ids ----------------------------------------------------------------------------------------------------------

    def null_is_text_in(self, views: Iterable[str]) -> None:
        """Remember whose windows were named before NULL had a sign of its own in their ids; for ``defined_as``."""
        self._null_is_text = frozenset(views)

    def null_is_text(self, view: str) -> bool:
        """Whether the ids of a view's windows have ``null`` for a group of NULL, as for one of that text."""
        return view in self._null_is_text

    # -- what it says -------------------------------------------------------------------------------------------------

    def spec_hash(self, sink: str) -> str:
        """A hash of what decides the content of a sink: its views, its mapping, settings and target, and the topics.

        Secrets, addresses and knobs of performance are not in it: they may change without a rebuild.

        Args:
            sink: its name.

        Returns:
            16 hex digits, the same on every machine and in every version that keeps the file's format.
        """
        part = self.sinks[sink]
        views = {name: content_of(self.views[name]) for name in part.view_names}
        tables = sorted(self.source.tables if part.tables == "all" else part.tables or ())
        content = content_of(part)
        spec = {
            "format": 1,
            "topic_prefix": self.kafka.topic_prefix,
            "index": content.pop("index", None) or "",
            "sink": content,
            "views": views,
            "tables": tables,
        }
        if events := self.event_types(sink):  # others keep the hash that they had
            spec["events"] = events
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def event_types(self, sink: str) -> list[str]:
        """The types whose topics a sink reads events from; none for a sink that may read none."""
        part, outbox = self.sinks[sink], self.source.outbox
        if outbox is None:
            return []
        named = [self.views[view].root for view in part.view_names] if part.tables is None else part.tables
        names = {outbox.table, outbox.table.partition(".")[2]}
        return sorted(outbox.types) if named == "all" or names.intersection(named) else []


# Keys that say nothing when they are empty: a file says what it said before there were any, and no sink is rebuilt.
_LATER = frozenset((*JOINS, "routing", "index_prefix", "events", *STATEFUL))


def content_names(part: Part) -> set[str]:
    """The keys that decide what a sink holds."""
    names = set()
    for name, info in type(part).model_fields.items():
        extra = info.json_schema_extra
        said = extra.get("x-headwater") if isinstance(extra, dict) else None
        if isinstance(said, dict) and said.get("content"):
            names.add(name)
    return names


def content_of(part: Part) -> dict[str, Any]:
    """The keys that decide what a sink holds, and their values; of nested parts all keys do."""
    dumped = part.model_dump(include=content_names(part))
    return {name: value for name, value in dumped.items() if value or name not in _LATER}
