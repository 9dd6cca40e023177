"""The way in: ``source``, ``kafka`` and ``connect`` of the pipeline file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from cdc.masking import reveal
from cdc.pipeline.fields import (
    BROKERS,
    HTTP,
    ONE_TABLE,
    SLOT,
    TOPIC,
    EventType,
    Number,
    Options,
    Part,
    Table,
    Text,
    Whole,
    entry,
)


class Registry(Part):
    """The schema registry of Avro records: without its schemas no record can be read."""

    url: str = entry(
        description="Address of its Confluent API; Apicurio has it at /apis/ccompat/v7.",
        example="${HEADWATER_REGISTRY:-http://127.0.0.1:8080/apis/ccompat/v7}",
        pattern=HTTP,
    )
    connect_url: str = entry(
        "",
        "Address at which the Connect workers find Apicurio's own API, when it is another one than here.",
        shown_default="`url` with /apis/registry/v2",
        example="http://registry:8080/apis/registry/v2",
        pattern=HTTP,
    )
    user: Text | None = entry(None, "User, if it asks for one (Basic).", example="${REGISTRY_USER:-}")
    password: SecretStr | None = entry(None, "Its password.", example="${REGISTRY_PASSWORD:-}", shown_default="none")
    ca_certs: Text | None = entry(
        None,
        "PEM file with the authorities that sign its certificate (https); at one path on all machines of Spark.",
        example="certs/registry-ca.pem",
        shown_default="the public ones",
    )

    def client(self) -> dict[str, str]:
        """Plain settings of a client, with the password: never for printing."""
        out = {"url": self.url.rstrip("/")}
        if self.ca_certs:
            out["ca_certs"] = self.ca_certs
        if self.user is not None and self.password is not None:
            out |= {"user": self.user, "password": self.password.get_secret_value()}
        return out

    def writer_url(self) -> str:
        """Where Connect's converter finds the registry."""
        return self.connect_url or re.sub(r"/apis/ccompat/v\d+/?$", "", self.url) + "/apis/registry/v2"


class Outbox(Part):
    """A table into which the application writes events in its own transactions; each goes to its type's topic."""

    table: Annotated[str, Field(pattern=ONE_TABLE)] = entry(
        description="The table, as schema.table; it must be one of `source.tables`.", example="public.outbox"
    )
    id: Text = entry("id", "Its column with the event's id: the primary key.")
    aggregate_type: Text = entry("aggregatetype", "Its column with the type of what the event is about: `order`.")
    aggregate_id: Text = entry(
        "aggregateid", "Its column with the id of what the event is about; events with the same one stay in order."
    )
    types: Annotated[tuple[EventType, ...], Field(strict=False)] = entry(
        description="The aggregate types; each has a topic `<prefix>-events.<type>`. Events of another type go to "
        "`<prefix>-events`.",
        example=["order", "customer"],
        min_length=1,
        max_length=1000,
    )
    keep_days: Whole | None = entry(
        None,
        "How long an event stays in its topic.",
        unit="days",
        shown_default="for ever",
        example=3650,
        ge=1,
        le=36500,
    )
    message_prefix: Text | None = entry(
        None,
        "Messages of `pg_logical_emit_message` with this prefix are events too: JSON objects of the table's columns.",
        shown_default="none are",
        example="outbox",
    )


class Source(Part):
    """The Postgres database whose changes are captured."""

    host: Text = entry(
        "127.0.0.1", "Server of the database.", example="${HEADWATER_POSTGRES_HOST:-127.0.0.1}", active=True
    )
    port: Whole = entry(5432, "Its port.", example="${HEADWATER_POSTGRES_PORT:-5432}", active=True, ge=1, le=65535)
    database: Text = entry(description="Name of the database.", example="shop")
    user: Text = entry(
        description="Role that replicates and reads the tables (LOGIN REPLICATION and SELECT); it owns nothing.",
        example="headwater",
    )
    password: SecretStr = entry(
        SecretStr(""),
        "Its password. Empty: trust or peer authentication.",
        example="${HEADWATER_SOURCE_PASSWORD}",
        active=True,
        shown_default="none",
    )
    setup_user: Text | None = entry(
        None,
        "Role that owns the tables. `check`, `plan`, `apply`, `drop`, `preview`, `verify`, `resnapshot` and "
        "`recapture` use it, and `run`, to follow tables that are altered.",
        example="shop_owner",
        active=True,
        shown_default="`user`",
    )
    setup_password: SecretStr | None = entry(
        None,
        "Its password. `run` needs it as well.",
        example="${HEADWATER_SETUP_PASSWORD}",
        active=True,
        shown_default="none",
    )
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = entry(
        "prefer", "Encryption of the connections, as in libpq; verify-full on any network that is not yours."
    )
    sslrootcert: Text | None = entry(
        None,
        "PEM file with the authorities that sign the server's certificate, for verify-ca and verify-full; it lies at "
        "one path here and on the Connect workers, or connect.options have `database.sslrootcert` for them. `system`: "
        "those that the system trusts, and on the workers Java.",
        shown_default="~/.postgresql/root.crt",
        example="certs/postgres-ca.pem",
    )
    tables: Annotated[tuple[Table, ...], Field(strict=False)] = entry(
        description="Tables to capture, each as schema.table; schema.* for all tables that a schema has at `apply`.",
        example=["public.customers", "public.orders"],
        min_length=1,
        max_length=2000,
    )
    slot: str = entry(
        "",
        "Replication slot. One pipeline, one slot: it keeps WAL until this pipeline has read it.",
        shown_default="`headwater_<name>`",
        example="headwater_shop",
        pattern=SLOT,
    )
    publication: str = entry(
        "",
        "Publication that names the tables; `apply` creates and alters it.",
        shown_default="`headwater_<name>`",
        example="headwater_shop",
        pattern=SLOT,
    )
    schema_: str = entry(
        "headwater",
        "Schema in the source database for Headwater's own heartbeat and signal tables.",
        alias="schema",
        pattern=SLOT,
    )
    heartbeat_seconds: Number = entry(
        5.0,
        "How often the heartbeat row is written. It moves the slot while the captured tables are idle; without it "
        "the WAL of every other table piles up.",
        unit="seconds",
        gt=0,
        le=3600,
    )
    format: Literal["json", "avro"] = entry(
        "json",
        "Encoding of the records in Kafka that `apply` asks of the connector. Avro is smaller and needs `registry`; "
        "keys stay JSON in both. It may be changed: with a `registry`, records of both are read.",
    )
    registry: Registry | None = entry(None, "The schema registry; needed for Avro.")
    outbox: Outbox | None = entry(
        None, "A table of events; no table of `source.tables` is one if it is left out.", alternative=True
    )
    snapshot_fetch_size: Whole = entry(
        10240,
        "Rows that the connector reads at a time, in a snapshot and (8,192 at the most, 256 at the least) where a "
        "table is read again: its memory against round trips. Fewer make reading again slower, of all tables: each "
        "time waits for the log. `check` says which number fits large rows.",
        unit="rows",
        ge=1,
        le=1_000_000,
    )

    @property
    def address(self) -> str:
        """Server and port, for messages."""
        return f"{self.host}:{self.port}"

    def reader(self) -> dict[str, str] | None:
        """Plain settings of ``cdc.log.registry.encoding_of``: None when no record can be Avro."""
        return None if self.registry is None else self.registry.client()


class Kafka(Part):
    """The log: one compacted topic a table."""

    bootstrap: str = entry(
        description="Brokers, as host:port,host:port.", example="${HEADWATER_KAFKA:-127.0.0.1:9092}", pattern=BROKERS
    )
    topic_prefix: str = entry(
        "",
        "First part of every topic's name: `<prefix>.<schema>.<table>`.",
        shown_default="`<name>`",
        example="shop",
        pattern=TOPIC,
    )
    partitions: Whole = entry(
        2,
        "Partitions of a new topic: the most tasks that read a table at once. Later `apply`s do not change it: "
        "another count sends keys to other partitions.",
        unit="partitions",
        ge=1,
        le=1000,
    )
    replication_factor: Whole = entry(
        1,
        "Copies of each partition of a new topic; 3 in production. `check` names topics that have fewer.",
        unit="copies",
        ge=1,
        le=10,
    )
    tombstone_retention_hours: Number = entry(
        168.0,
        "How long a delete stays in the log after compaction (delete.retention.ms): a consumer that is away "
        "longer can miss deletes and must be rebuilt.",
        unit="hours",
        gt=0,
        le=87_600,
    )
    segment_hours: Number = entry(
        24.0,
        "When a topic's segment is closed (segment.ms): compaction never cleans the open one.",
        unit="hours",
        gt=0,
        le=8_760,
    )
    compaction_lag_hours: Number = entry(
        1.0,
        "How long a record stays in the log whatever comes after it (min.compaction.lag.ms): a flow that was killed in "
        "the middle of a batch finds that batch again.",
        unit="hours",
        ge=0,
        le=8_760,
    )
    max_message_bytes: Whole = entry(
        10_485_760,
        "Largest record: a row as JSON, before and after. A larger one stops the connector, it is never skipped. Above "
        "16 MiB the connector's producer gets twice as much memory.",
        unit="bytes",
        ge=1024,
        le=90 << 20,  # librdkafka takes no answer above 100,000,000 bytes, and brokers no request above 104,857,600
    )
    options: Options = entry(
        {},
        "More options of the Kafka clients, like security.protocol and sasl.password (as ${VARIABLE}).",
        example={"security.protocol": "PLAINTEXT"},
    )

    def options_plain(self) -> dict[str, str]:
        """``options`` with secrets as they are: for clients, never for printing."""
        plain: dict[str, str] = reveal(self.options)
        return plain

    def client(self) -> dict[str, str]:
        """Settings of a librdkafka client, with secrets."""
        # Brokers make a topic that somebody names, unless he says no: with their own settings, which lose rows after a
        # week, and also just after it was deleted, by the question whether it is gone. We create topics by that name.
        own = {"bootstrap.servers": self.bootstrap, "allow.auto.create.topics": "false"}
        return {**own, **self.options_plain()}


class Connect(Part):
    """The Kafka Connect workers that run Debezium."""

    url: str = entry(
        description="Their REST address.", example="${HEADWATER_CONNECT:-http://127.0.0.1:8083}", pattern=HTTP
    )
    user: Text | None = entry(None, "User of the REST address, if it asks for one.", example="headwater")
    password: SecretStr | None = entry(None, "Its password.", example="${CONNECT_PASSWORD:-}", shown_default="none")
    ca_certs: Text | None = entry(
        None,
        "PEM file with the authorities that sign the worker's certificate (https).",
        example="certs/connect-ca.pem",
        shown_default="the public ones",
    )
    options: Options = entry(
        {},
        "More settings of the Debezium connector; they win over Headwater's own.",
        example={"max.batch.size": 4096},
    )
