"""The pipeline file as typed, frozen objects. (LEAD's stopgap: the PIPELINE helper may replace this whole package.)"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

NAME = r"^[a-z][a-z0-9_]{0,39}$"
Name = Annotated[str, Field(pattern=NAME)]


class Part(BaseModel):
    """Every part of the file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Source(Part):
    host: str = "127.0.0.1"
    port: int = Field(5432, ge=1, le=65535)
    database: str
    user: str
    password: SecretStr = SecretStr("")
    setup_user: str | None = None
    setup_password: SecretStr | None = None
    sslmode: str = "prefer"
    tables: tuple[str, ...] = Field(min_length=1)
    slot: str = ""
    publication: str = ""
    schema_: str = Field("headwater", alias="schema")
    heartbeat_seconds: float = Field(5, gt=0)
    format: Literal["json"] = "json"
    snapshot_fetch_size: int = Field(10240, ge=1)


class Kafka(Part):
    bootstrap: str
    topic_prefix: str = ""
    partitions: int = Field(2, ge=1)
    replication_factor: int = Field(1, ge=1)
    tombstone_retention_hours: float = Field(168, gt=0)
    segment_hours: float = Field(24, gt=0)
    max_message_bytes: int = Field(10485760, ge=1024)
    options: Mapping[str, SecretStr | str] = Field(default_factory=dict)

    def options_plain(self) -> dict[str, str]:
        return {k: v.get_secret_value() if isinstance(v, SecretStr) else v for k, v in self.options.items()}

    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.options_plain()}


class Connect(Part):
    url: str
    user: str | None = None
    password: SecretStr | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)


class View(Part):
    root: str
    key: tuple[str, ...] = ()
    columns: tuple[str | dict[str, str], ...] = ()
    fields: Mapping[str, str] = Field(default_factory=dict)
    where: str | None = None


class SinkBase(Part):
    view: str | None = None
    views: tuple[str, ...] = ()
    tables: Literal["all"] | tuple[str, ...] | None = None


class ElasticsearchSink(SinkBase):
    type: Literal["elasticsearch"]
    url: str
    user: str | None = None
    password: SecretStr | None = None
    api_key: SecretStr | None = None
    index: str | None = None
    mapping: Mapping[str, Any] = Field(default_factory=dict)
    settings: Mapping[str, Any] = Field(default_factory=dict)
    bulk_bytes: int = 5 << 20
    bulk_workers: int = 3
    request_timeout_seconds: float = 60


class RedisSink(SinkBase):
    type: Literal["redis"]
    url: str
    key_prefix: str = ""
    ttl_seconds: int | None = None
    fence_seconds: int = 604800


class IcebergSink(SinkBase):
    type: Literal["iceberg"]
    catalog_uri: str
    warehouse: str
    namespace: str
    trigger_seconds: float = 5


Sink = Annotated[ElasticsearchSink | RedisSink | IcebergSink, Field(discriminator="type")]


class Policy(Part):
    truncate: Literal["refuse", "propagate"] = "refuse"
    toast: Literal["reselect", "full", "allow"] = "reselect"
    schema_change: Literal["continue", "stop"] = "continue"
    replication_slot_max_lag_mb: int = 10240


class Engine(Part):
    state_dir: str = ".headwater/state"
    master: str = "local[4]"
    driver_memory: str = "1g"
    jars: str = ""
    trigger_ms: int = 0
    max_offsets_per_trigger: int = 200000
    spark_conf: Mapping[str, str] = Field(default_factory=dict)


class Pipeline(Part):
    version: Literal[1]
    name: Name
    source: Source
    kafka: Kafka
    connect: Connect
    views: Mapping[str, View] = Field(default_factory=dict)
    sinks: Mapping[str, Sink] = Field(min_length=1)
    policy: Policy = Policy()
    engine: Engine = Engine()

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            raw = {**raw, "source": dict(raw.get("source") or {}), "kafka": dict(raw.get("kafka") or {})}
            raw["source"].setdefault("slot", f"headwater_{raw['name']}")
            raw["source"].setdefault("publication", f"headwater_{raw['name']}")
            raw["kafka"].setdefault("topic_prefix", raw["name"])
        return raw

    def topic(self, table: str) -> str:
        return f"{self.kafka.topic_prefix}.{table}"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.kafka.topic_prefix}.dead-letters"

    @property
    def signal_topic(self) -> str:
        return f"{self.kafka.topic_prefix}-signal"

    @property
    def heartbeat_topic(self) -> str:
        return f"__debezium-heartbeat.{self.kafka.topic_prefix}"

    def spec_hash(self, sink: str) -> str:
        part = self.sinks[sink].model_dump(
            mode="json",
            include={"type", "view", "views", "tables", "index", "mapping", "settings", "key_prefix", "namespace"},
        )
        text = json.dumps([part, {n: v.model_dump(mode="json") for n, v in self.views.items()}], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
