"""Where the rows come from and what carries them: source, kafka, connect, policy, engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from cdc.pipeline.base import Float, Int, Part, PlainOptions, ScalarOptions, Text, TextOptions, Url

# Postgres cuts longer identifiers off silently, so that two names could become one.
PG_NAME = r"^[^\x00\"]{1,63}$"
SLOT = r"^[a-z0-9_]{1,63}$"
TABLE = r"^[^.*\"\s][^.*\"]*\.(\*|[^*\"]+)$"
SCHEMA = r"^[a-z_][a-z0-9_]{0,62}$"
BOOTSTRAP = r"^[^\s,]+:[0-9]+(\s*,\s*[^\s,]+:[0-9]+)*$"
TOPIC_PREFIX = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"
HTTP = r"^https?://[^\s/]\S*$"
MEMORY = r"^[1-9][0-9]*[kmgt]b?$"
MASTER = r"^(local(\[(\*|[0-9]+)(,[0-9]+)?\])?|spark://\S+|yarn|k8s://\S+)$"

TableName = Annotated[str, Field(pattern=TABLE, max_length=200)]


class Source(Part):
    """The Postgres database whose rows are followed."""

    host: Text = Field("127.0.0.1", description="Host name or address of Postgres, as Kafka Connect reaches it too.")
    port: Int = Field(5432, ge=1, le=65535, description="TCP port of Postgres.")
    database: Text = Field(description="Name of the database.", examples=["flights"])
    user: Text = Field(
        description="Role with REPLICATION and SELECT; Debezium, preflight and verify log in with it.",
        examples=["headwater"],
    )
    password: SecretStr = Field(
        SecretStr(""), description="Its password. Use a variable.", examples=["${HEADWATER_SOURCE_PASSWORD}"]
    )
    setup_user: Text | None = Field(
        None,
        description="Role that owns the tables; only check, plan, apply and drop log in with it. Default: user.",
        examples=["flights_owner"],
    )
    setup_password: SecretStr | None = Field(
        None, description="Its password. Use a variable.", examples=["${HEADWATER_SETUP_PASSWORD}"]
    )
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = Field(
        "prefer", description="As in libpq: whether the connection is encrypted and the server's certificate checked."
    )
    tables: tuple[TableName, ...] = Field(
        min_length=1,
        max_length=10000,
        description="Tables to capture: schema.table, or schema.* for all of a schema; unquoted.",
        examples=[["public.flights", "public.airlines"]],
    )
    slot: str = Field("", pattern=SLOT, description="Replication slot. Default: headwater_<name>.")
    publication: str = Field("", pattern=PG_NAME, description="Publication. Default: headwater_<name>.")
    schema_: str = Field(
        "headwater",
        alias="schema",
        pattern=SCHEMA,
        description="Schema in the database for Headwater's own small tables (heartbeat, signals, marker).",
    )
    heartbeat_seconds: Float = Field(
        5,
        gt=0,
        le=3600,
        description="Seconds between heartbeats: they let the slot go on while the captured tables are quiet.",
    )
    format: Literal["json"] = Field("json", description="How records are written to the topics.")
    snapshot_fetch_size: Int = Field(
        10240, ge=1, le=1_000_000, description="Rows that the first snapshot reads in one round trip."
    )


class Kafka(Part):
    """The brokers, and the topics of the changelog."""

    bootstrap: str = Field(
        pattern=BOOTSTRAP,
        max_length=2000,
        description="Brokers to begin with: host:port, several with commas.",
        examples=["${HEADWATER_KAFKA:-127.0.0.1:15092}"],
    )
    topic_prefix: str = Field(
        "", pattern=TOPIC_PREFIX, description="First part of every topic's name. Default: the pipeline's name."
    )
    partitions: Int = Field(
        2, ge=1, le=10000, description="Partitions of each table's topic. Can't be changed once the topics exist."
    )
    replication_factor: Int = Field(1, ge=1, le=32, description="Copies of each topic; 3 in production.")
    tombstone_retention_hours: Float = Field(
        168,
        gt=0,
        le=87600,
        description="Hours that a delete stays in the topics (delete.retention.ms): a sink may be away this long.",
    )
    segment_hours: Float = Field(
        24, gt=0, le=8760, description="Hours until a segment is closed and may be compacted (segment.ms)."
    )
    max_message_bytes: Int = Field(
        10485760, ge=1024, le=1 << 30, description="Bytes that the largest row's record may have (max.message.bytes)."
    )
    options: TextOptions = Field(
        default_factory=dict,
        description="More settings of the Kafka client (librdkafka names), e.g. security.protocol, sasl.password.",
        examples=[{"security.protocol": "SASL_SSL", "sasl.password": "${KAFKA_PASSWORD:-}"}],
    )

    def options_plain(self) -> dict[str, str]:
        """The options with their secrets in the clear; never log them."""
        return {k: v.get_secret_value() if isinstance(v, SecretStr) else v for k, v in self.options.items()}

    def client(self) -> dict[str, str]:
        """Configuration of a librdkafka client, secrets in the clear."""
        return {"bootstrap.servers": self.bootstrap, **self.options_plain()}


class Connect(Part):
    """The Kafka Connect worker that runs Debezium."""

    url: Url = Field(
        pattern=HTTP,
        description="Address of its REST interface: http://host:8083.",
        examples=["${HEADWATER_CONNECT:-http://127.0.0.1:15083}"],
    )
    user: Text | None = Field(None, description="User for basic authentication.", examples=["connect"])
    password: SecretStr | None = Field(
        None, description="Password for basic authentication. Use a variable.", examples=["${CONNECT_PASSWORD:-}"]
    )
    options: ScalarOptions = Field(
        default_factory=dict,
        description="More settings of the Debezium connector, merged last.",
        examples=[{"max.batch.size": 4096}],
    )


class Policy(Part):
    """What to do when the source does something that a changelog can't simply follow."""

    truncate: Literal["refuse", "propagate"] = Field(
        "refuse", description="TRUNCATE of a captured table: refuse it in the database, or empty the sinks too."
    )
    toast: Literal["reselect", "full", "allow"] = Field(
        "reselect",
        description="Large values that an update did not change: read them again, set REPLICA IDENTITY FULL, or let "
        "such records go to the dead letters.",
    )
    schema_change: Literal["continue", "stop"] = Field(
        "continue", description="A new column: go on without it until the next apply and run, or stop."
    )
    replication_slot_max_lag_mb: Int = Field(
        10240, ge=1, le=1 << 30, description="MiB of log that the slot may hold back before check and status complain."
    )


class Engine(Part):
    """Spark, which keeps the sinks in sync."""

    state_dir: Text = Field(
        ".headwater/state", description="Folder for checkpoints and status files; losing it means filling sinks again."
    )
    master: str = Field(
        "local[4]", pattern=MASTER, description="Spark master: local[<threads>], local[*], spark://host:port."
    )
    driver_memory: str = Field(
        "1g",
        pattern=MEMORY,
        description="Heap of the driver's JVM, with unit: 512m, 2g. It does the work in local mode.",
    )
    jars: str = Field(
        "",
        description="Folder with the pinned Spark jars. Default: the variable HEADWATER_SPARK_JARS.",
        max_length=4000,
    )
    trigger_ms: Int = Field(
        0, ge=0, le=86_400_000, description="Milliseconds between batches of Elasticsearch and Redis sinks; 0: at once."
    )
    max_offsets_per_trigger: Int = Field(
        200000, ge=1, le=1 << 31, description="Records that one batch may take; bounds memory and time of a batch."
    )
    spark_conf: PlainOptions = Field(
        default_factory=dict, description="More Spark settings.", examples=[{"spark.sql.shuffle.partitions": "4"}]
    )


def default_names(raw: dict[str, Any]) -> dict[str, Any]:
    """The file's content with the names that are made from the pipeline's own: slot, publication, topic prefix."""
    name = raw.get("name")
    if not isinstance(name, str):
        return raw
    out = dict(raw)
    named = {
        "source": {"slot": f"headwater_{name}", "publication": f"headwater_{name}"},
        "kafka": {"topic_prefix": name},
    }
    for part, defaults in named.items():
        given = out.get(part)
        if isinstance(given, dict):
            out[part] = defaults | {key: value for key, value in given.items() if value is not None}
    return out
