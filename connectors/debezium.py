"""The Debezium connector's configuration: a pure function of the pipeline and the catalogue.

Every value is text, as Kafka Connect stores it, so that a difference between what is wanted and what runs is a
difference between two dictionaries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import SecretStr

from cdc.catalogue import Catalogue
from cdc.masking import looks_secret, mask_text
from cdc.pipeline import Pipeline
from cdc.sql_names import quoted_table
from cdc.types import null_when_unchanged
from connectors import outbox
from connectors.names import Names
from connectors.session_settings import DRIVER_OPTIONS, driver_options
from connectors.tables.facts import TableFacts
from connectors.timeline_gate import gate

CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
# The same, without what it asks of the broker while nothing happens: deploy/connect/PostgresConnector.java.
QUIET_CONNECTOR = "headwater.connect.PostgresConnector"
RESELECTOR = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
# The same text in less time, and of an event only what is read: deploy/connect/RowJsonConverter.java.
ROW_CONVERTER = "headwater.connect.RowJsonConverter"
# Apicurio's, with what it lacks: deploy/connect/RowAvroConverter.java.
AVRO_CONVERTER = "headwater.connect.RowAvroConverter"

# Rows are queued between Postgres and Kafka. Counted alone, 32,768 rows of 10 MB would kill the worker.
QUEUE_ROWS, QUEUE_BYTES, BATCH_ROWS = 32_768, 64 * 2**20, 8_192
# Kafka's default of a producer's memory: what needs no more is not named, so that no connector is changed for it.
PRODUCER_BYTES = 32 * 2**20
# How long Debezium sleeps when it finds nothing: added to every idle commit's way. Its default is 500 ms.
POLL_MS = 10
# The slot is told this often how far Kafka has come: who waits for a write of his own waits for that, too
# (docs/decisions/write-tokens.md). A crash re-reads at most this much.
STATUS_MS = 100
# How soon a signal is seen. Debezium's default of 5 s is what a user who adds a table would wait.
SIGNAL_POLL_MS = 1_000
# Rows whose large values the re-selection remembers; each may be megabytes, and the worker's heap is 1 GB.
CACHED_ROWS = 2_000
# Rows per chunk of an incremental snapshot: each chunk writes two watermark rows and is held in memory. Who has a
# snapshot fetch fewer rows, for their size, has fewer in a chunk; but not fewer than the least: a chunk waits for its
# watermarks to come back through the log, tens of milliseconds at best, and all tables are read in chunks of one size.
# Ten million rows are 39,000 chunks of 256: half an hour of waiting at 50 ms each. One by one it would be six days.
CHUNK_ROWS, LEAST_CHUNK_ROWS = 8_192, 256
# How many rows of a table are held in memory while it is read.
READING_OPTIONS = ("snapshot.fetch.size", "incremental.snapshot.chunk.size")

# Fields of an event that nothing of ours reads: the newest state of a row is all that a compacted topic is about.
UNREAD = ("before", "transaction", "ts_us", "ts_ns")

# An option of ours among the connector's, which Connect keeps: the cluster that its offsets belong to.
SYSTEM_IDENTIFIER = "headwater.system.identifier"

# Standbys get a copy of the slot. Debezium leaves it out before Postgres 17, which does not have that.
FAILOVER = "slot.failover"

HIDDEN = "(secret)"
# A word of libpq's for the authorities that the system trusts. Java's driver would look for a file of that name; with
# this class it asks Java's own, and looks whether the name is right (verify-full) all the same.
SYSTEM_ROOTS, JAVAS_OWN_ROOTS = "system", "org.postgresql.ssl.DefaultJavaSSLFactory"


def connector_name(pipeline: Pipeline) -> str:
    """The connector's name in Kafka Connect; with exactly-once on, also part of its transactional id."""
    return f"headwater-{pipeline.name}"


def connector_config(
    pipeline: Pipeline,
    catalogue: Catalogue,
    facts: Collection[TableFacts] = (),
    plugins: Collection[str] = (),
    server_version: int = 0,
) -> dict[str, str]:
    """What ``PUT /connectors/{name}/config`` should hold.

    Args:
        pipeline: the loaded file.
        catalogue: the captured tables.
        facts: of those tables: generated columns are left out, for a snapshot would read them and streaming would not;
            tables without a primary key have theirs named.
        plugins: classes that the worker has: where our own converter and connector are among them, they are taken.
        server_version: of Postgres, as libpq tells it; its sessions are set to what that one knows.

    Returns:
        The configuration with secrets in it; show it only through ``redact``.
    """
    config = {
        "connector.class": QUIET_CONNECTOR if QUIET_CONNECTOR in plugins else CONNECTOR_CLASS,
        "tasks.max": "1",
        "errors.tolerance": "none",  # a record that cannot be converted must stop the task, not be skipped
        **_source(pipeline, catalogue, facts),
        **_values(),
        **_converters(pipeline, plugins),
        **_snapshots(pipeline),
        **_producer(pipeline),
    }
    if pipeline.policy.toast == "reselect":
        config |= _reselect(catalogue)
    if catalogue.system_identifier:
        config[SYSTEM_IDENTIFIER] = str(catalogue.system_identifier)
    config |= {key: _text(value) for key, value in pipeline.connect.options.items()}
    # The one option that a user's own stands beside: who needs another setting needs ours all the same.
    config[DRIVER_OPTIONS] = driver_options(server_version, _text(pipeline.connect.options.get(DRIVER_OPTIONS, "")))
    return config | outbox.router(pipeline, catalogue, config.get("transforms", ""))


def _text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source(pipeline: Pipeline, catalogue: Catalogue, facts: Collection[TableFacts]) -> dict[str, str]:
    source, names = pipeline.source, Names.of(pipeline)
    # Without any key there is nothing to name: the check of keys refuses such a table, and once is enough.
    keyless = [t for f in facts if not f.has_primary_key and (t := catalogue.tables[f.name]).primary_key]
    config = {
        "topic.prefix": pipeline.kafka.topic_prefix,
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.dbname": source.database,
        "database.user": source.user,
        "database.password": source.password.get_secret_value() if source.password else "",
        "database.sslmode": source.sslmode,
        # Sessions for SQL ask whether the timeline is the one that is followed, before that of the stream begins.
        "database.initial.statements": gate(names),
        "plugin.name": "pgoutput",
        "slot.name": source.slot,
        FAILOVER: "true",
        "publication.name": source.publication,
        # Debezium's own ALTER PUBLICATION is broken for filtered ones, and needs the tables' owner: we do it.
        "publication.autocreate.mode": "disabled",
        # The marker's row is read by the snapshot and never changes: it keeps the snapshot's position in Kafka. First,
        # for tables are read in this order, and the engine waits for it. The heartbeat's row is sent too: what Debezium
        # filters out moves its offset, and with it the slot, only at its own next heartbeat, seconds later.
        "table.include.list": pattern(
            [names.qualified(names.marker), names.qualified(names.heartbeat), *sorted(catalogue.tables)]
        ),
        "heartbeat.interval.ms": str(int(source.heartbeat_seconds * 1000)),
        "heartbeat.action.query": heartbeat_query(names),
        "topic.heartbeat.prefix": "__debezium-heartbeat",
        "poll.interval.ms": str(POLL_MS),
        "status.update.interval.ms": str(STATUS_MS),
        "max.queue.size": str(QUEUE_ROWS),
        "max.queue.size.in.bytes": str(QUEUE_BYTES),
        "max.batch.size": str(BATCH_ROWS),
    }
    if source.sslrootcert == SYSTEM_ROOTS:
        config["database.sslfactory"] = JAVAS_OWN_ROOTS
    elif source.sslrootcert:
        config["database.sslrootcert"] = source.sslrootcert
    case = _case(catalogue)
    if generated := sorted((f"{fact.name}.{column}", fact.name) for fact in facts for column in fact.generated):
        config["column.exclude.list"] = ",".join(case[table] + pattern([column]) for column, table in generated)
    if keyless:
        config["message.key.columns"] = ";".join(
            f"{case[t.qualified]}{pattern([t.qualified])}:{_key_columns(t.primary_key)}" for t in keyless
        )
    return config


def _case(catalogue: Catalogue) -> dict[str, str]:
    """What begins a pattern of each captured table. Debezium ignores case, and would leave out a column, or change the
    key, of a table whose name differs in nothing else. Nothing where there is none: another configuration starts the
    connector's task again."""
    spelt = Counter(table.lower() for table in catalogue.tables)
    return {table: "(?-i)" if spelt[table.lower()] > 1 else "" for table in catalogue.tables}


def _key_columns(names: Iterable[str]) -> str:
    """Columns of a key, each a regular expression of its own. By number, and not behind a backslash: Debezium splits
    the option at commas, colons and semicolons wherever they stand, and refuses blanks in it."""
    return ",".join(re.sub(r"[^\w\x80-\U0010ffff]", lambda sign: f"\\x{ord(sign[0]):02x}", name) for name in names)


def _converters(pipeline: Pipeline, plugins: Collection[str]) -> dict[str, str]:
    """How records are written. Keys are JSON always: an id in them would change their bytes with their schema."""
    own = ROW_CONVERTER in plugins
    config = {
        f"{side}.{name}": value
        for side in ("key", "value")
        for name, value in (
            ("converter", ROW_CONVERTER if own else JSON_CONVERTER),
            ("converter.schemas.enable", "false"),
            # Else a column's DEFAULT is written where the row has NULL.
            ("converter.replace.null.with.default", "false"),
        )
    }
    registry = pipeline.source.registry
    if pipeline.source.format == "json" or registry is None:
        return config | _slim(wanted=not own)
    avro = {
        "url": registry.writer_url(),
        "auto-register": "true",
        "as-confluent": "true",
        "use-id": "contentId",
        "id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        "headers.enabled": "false",
        # A schema in one piece, not one that refers to others: that is what Confluent's API tells readers.
        "serializer.dereference-schema": "true",
    }
    config = {name: value for name, value in config.items() if not name.startswith("value.")}
    config |= {"value.converter": AVRO_CONVERTER, "schema.name.adjustment.mode": "avro"}
    config |= {f"value.converter.apicurio.registry.{name}": value for name, value in avro.items()}
    if registry.user is not None and registry.password is not None:
        config["value.converter.apicurio.auth.username"] = registry.user
        config["value.converter.apicurio.auth.password"] = registry.password.get_secret_value()
    return config | _slim(wanted=True)


def _slim(*, wanted: bool) -> dict[str, str]:
    """Leave out what nobody reads, as our own converter does: the row as it was, which REPLICA IDENTITY FULL brings, is
    a third of a record, and every process on its way pays for its bytes. Described in any case: `connect.options` may
    name it among transformations of a user's own."""
    settings = {
        "type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "exclude": ",".join(UNREAD),
        "replace.null.with.default": "false",
    }
    described = {f"transforms.slim.{name}": value for name, value in settings.items()}
    return {"transforms": "slim", **described} if wanted else described


def _values() -> dict[str, str]:
    return {
        "decimal.handling.mode": "string",  # the digits Postgres holds; a JSON number would become a float
        # Not isostring: it makes 00:00:00 of the time 24:00:00. Microseconds keep it, and infinite dates as sentinels.
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        # Not base64: an unchanged large bytea would arrive as null. The JSON converter makes base64 of bytes anyway.
        "binary.handling.mode": "bytes",
        "hstore.handling.mode": "json",
        "include.unknown.datatypes": "true",  # or columns of ranges, composites, pg_lsn are silently absent
        "tombstones.on.delete": "true",  # without them compaction keeps deleted rows for ever
        # A TRUNCATE event has no key, and a compacted topic refuses it: the task would die. See policy.truncate.
        "skipped.operations": "t",
        "provide.transaction.metadata": "false",
    }


def _snapshots(pipeline: Pipeline) -> dict[str, str]:
    names = Names.of(pipeline)
    return {
        "snapshot.mode": "initial",
        "snapshot.fetch.size": str(pipeline.source.snapshot_fetch_size),
        "signal.enabled.channels": "source,kafka",
        "signal.data.collection": names.qualified(names.signal),
        "signal.poll.interval.ms": str(SIGNAL_POLL_MS),
        "signal.kafka.topic": pipeline.signal_topic,
        "signal.kafka.groupId": signal_group(pipeline),
        "signal.kafka.bootstrap.servers": pipeline.kafka.bootstrap,
        "incremental.snapshot.chunk.size": str(_chunk(pipeline.source.snapshot_fetch_size)),
        # Chunks are bounded by keys that Debezium holds as text, whatever their type (timestamptz, inet, bit …): the
        # server must take them for that type, or it says that there is no such operator, and the table is skipped.
        "driver.stringtype": "unspecified",
        # A chunk's statement that the server keeps is planned for the table's columns as they were: after an ALTER the
        # first reading again failed ("cached plan must not change result type").
        "driver.prepareThreshold": "0",
        # Watermark rows are deleted again, or the signal table grows by two rows a chunk for ever.
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": pipeline.notification_topic,
    }


def _chunk(fetched: int) -> int:
    return max(min(fetched, CHUNK_ROWS), LEAST_CHUNK_ROWS)


def rows_at_once(pipeline: Pipeline) -> int:
    """The most rows of a table that the connector holds while it reads one; 0 where `connect.options` have none."""
    config = _snapshots(pipeline) | {key: _text(value) for key, value in pipeline.connect.options.items()}
    return max(int(config[name]) if config[name].isdecimal() else 0 for name in READING_OPTIONS)


def _producer(pipeline: Pipeline) -> dict[str, str]:
    most = pipeline.kafka.max_message_bytes
    # A producer refuses what is larger than all of its memory, whatever a request may hold.
    memory = {"producer.override.buffer.memory": str(2 * most)} if 2 * most > PRODUCER_BYTES else {}
    return {
        "exactly.once.support": "required",
        # One Kafka transaction per poll: a commit in Postgres is visible at once, and a batch costs one transaction.
        "transaction.boundary": "poll",
        "producer.override.linger.ms": "0",
        "producer.override.batch.size": str(256 * 2**10),
        "producer.override.compression.type": "lz4",
        "producer.override.max.request.size": str(most),
        **memory,
    }


def _reselect(catalogue: Catalogue) -> dict[str, str]:
    """Ask the database again for large values that an update left out. Has holes: docs/decisions/toast.md."""
    config = {"post.processors": "reselector", **_reselector("reselector", unavailable=True)}
    silent = [
        f"{table.qualified}:{column.name}"
        for table in catalogue.tables.values()
        for column in table.columns
        if null_when_unchanged(column)
    ]
    if silent:  # columns whose unchanged value looks like a null: for these every null is asked for
        config |= {"post.processors": "reselector,nulls", **_reselector("nulls", unavailable=False)}
        config["nulls.reselect.columns.include.list"] = pattern(sorted(silent))
    return config


def _reselector(name: str, *, unavailable: bool) -> dict[str, str]:
    return {
        f"{name}.type": RESELECTOR,
        f"{name}.reselect.unavailable.values": str(unavailable).lower(),
        f"{name}.reselect.null.values": str(not unavailable).lower(),
        f"{name}.reselect.use.event.key": "true",  # also right for a table keyed by its replica identity's index
        # 'fail' would kill the connector whenever a row was deleted before its last update was read.
        f"{name}.reselect.error.handling.mode": "warn",
        # The query does not see a transaction that is still being made visible, and would bring back the value from
        # before it; the cache remembers the value that an earlier event of the same transaction brought.
        f"{name}.reselect.cache.enabled": "true",
        f"{name}.reselect.cache.max.size": str(CACHED_ROWS),
    }


def signal_topic_of_table(pipeline: Pipeline) -> str:
    """Topic that Debezium fills with the watermark rows of the signal table, whether one wants it or not."""
    names = Names.of(pipeline)
    return pipeline.topic(names.qualified(names.signal))


def beat_topic(pipeline: Pipeline) -> str:
    """Topic of the heartbeat's row: who touches that row moves the slot past what was committed before."""
    names = Names.of(pipeline)
    return pipeline.topic(names.qualified(names.heartbeat))


def marker_topic(pipeline: Pipeline) -> str:
    """Topic of the one record that carries the position of the initial snapshot."""
    names = Names.of(pipeline)
    return pipeline.topic(names.qualified(names.marker))


def signal_group(pipeline: Pipeline) -> str:
    """Consumer group with which Debezium remembers the signals it has read."""
    return f"headwater-{pipeline.name}-signal"


def heartbeat_query(names: Names) -> str:
    """One update of one row; identifiers are quoted as SQL quotes them."""
    table = quoted_table(names.schema, names.heartbeat)
    return f"UPDATE {table} SET beat = beat + 1, at = now() WHERE id = 1"  # noqa: S608 - quoted above


def pattern(names: Iterable[str]) -> str:
    """A comma-separated list of regular expressions that match exactly these names (Debezium anchors them itself)."""
    return ",".join(re.sub(r"([^A-Za-z0-9_])", r"\\\1", name) for name in names)


def redact(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration as it may be shown: what looks like a secret, or holds one, is hidden.

    References to a config provider (``${file:…}``) are no secrets and stay.
    """
    secrets = {value for key, value in config.items() if looks_secret(key) and not value.startswith("${")} - {""}
    return {key: HIDDEN if value in secrets else mask_text(value) for key, value in config.items()}
