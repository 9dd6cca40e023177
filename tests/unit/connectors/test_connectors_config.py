"""The connector's configuration is a pure function; secrets never show."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from pydantic import ValidationError

from cdc.catalogue import Column, Table
from cdc.errors import ConfigError
from cdc.log.letters import MORE_BYTES, letters_config
from cdc.resolve.names import keyed
from connectors.debezium import (
    AVRO_CONVERTER,
    QUIET_CONNECTOR,
    ROW_CONVERTER,
    connector_config,
    pattern,
    redact,
)
from connectors.names import Names
from connectors.preflight import primary_keys, toast
from connectors.preflight.model import Level
from connectors.preflight.primary_keys import key_findings
from connectors.preflight.tables import kind_findings
from connectors.survey import said_of
from connectors.tables.foreign_keys import read_foreign_keys
from connectors.timeline_gate import gate
from tests.support.connector_cases import SECRET, catalogue, fact, pipeline


def test_configuration_as_a_whole() -> None:
    """A change here is a change to every running connector: make it on purpose."""
    assert connector_config(pipeline(), catalogue()) == {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "errors.tolerance": "none",
        "topic.prefix": "flights",
        "database.hostname": "db.example",
        "database.port": "5433",
        "database.dbname": "flights",
        "database.user": "headwater",
        "database.password": SECRET,
        "database.sslmode": "prefer",
        "database.initial.statements": gate(Names("headwater", "flights")),
        "plugin.name": "pgoutput",
        "slot.name": "headwater_flights",
        "slot.failover": "true",
        "publication.name": "headwater_flights",
        "publication.autocreate.mode": "disabled",
        "table.include.list": r"headwater\.snapshot_flights,headwater\.heartbeat_flights,public\.flights",
        "heartbeat.interval.ms": "5000",
        "heartbeat.action.query": (
            'UPDATE "headwater"."heartbeat_flights" SET beat = beat + 1, at = now() WHERE id = 1'
        ),
        "topic.heartbeat.prefix": "__debezium-heartbeat",
        "poll.interval.ms": "10",
        "status.update.interval.ms": "100",
        "max.queue.size": "32768",
        "max.queue.size.in.bytes": "67108864",
        "max.batch.size": "8192",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "key.converter.replace.null.with.default": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "value.converter.replace.null.with.default": "false",
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "bytes",
        "hstore.handling.mode": "json",
        "include.unknown.datatypes": "true",
        "tombstones.on.delete": "true",
        "skipped.operations": "t",
        "provide.transaction.metadata": "false",
        "snapshot.mode": "initial",
        "snapshot.fetch.size": "10240",
        "signal.enabled.channels": "source,kafka",
        "signal.data.collection": "headwater.signal_flights",
        "signal.poll.interval.ms": "1000",
        "signal.kafka.topic": "flights-signal",
        "signal.kafka.groupId": "headwater-flights-signal",
        "signal.kafka.bootstrap.servers": "127.0.0.1:9092",
        "incremental.snapshot.chunk.size": "8192",
        "driver.options": (
            "-c IntervalStyle=postgres -c bytea_output=hex -c idle_in_transaction_session_timeout=0 -c lock_timeout=0"
            " -c statement_timeout=0 -c synchronous_commit=local -c default_transaction_read_only=off"
        ),
        "driver.stringtype": "unspecified",
        "driver.prepareThreshold": "0",
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "flights-notifications",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "producer.override.linger.ms": "0",
        "producer.override.batch.size": "262144",
        "producer.override.compression.type": "lz4",
        "producer.override.max.request.size": "10485760",
        "transforms": "slim",
        "transforms.slim.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.slim.exclude": "before,transaction,ts_us,ts_ns",
        "transforms.slim.replace.null.with.default": "false",
    }


def test_sessions_are_set_to_what_the_server_knows_and_a_users_own_stands_beside() -> None:
    """An unknown setting would refuse the login; a user's option took the place of ours, without a word."""
    old, newer, newest = (
        connector_config(pipeline(), catalogue(), server_version=version)["driver.options"]
        for version in (130000, 140000, 170000)
    )
    assert newer == f"{old} -c idle_session_timeout=0"
    assert newest == f"{newer} -c transaction_timeout=0"
    own = pipeline(connect={"options": {"driver.options": "-c work_mem=64MB"}})
    assert connector_config(own, catalogue(), server_version=130000)["driver.options"] == f"{old} -c work_mem=64MB"


def test_a_producer_has_memory_for_the_largest_record() -> None:
    """Above 32 MiB it refused the record, for its memory, and the way out was said to be a larger limit."""
    memory, mib = "producer.override.buffer.memory", 2**20
    configs = [connector_config(pipeline(kafka={"max_message_bytes": n * mib}), catalogue()) for n in (10, 16, 17, 90)]
    assert [config.get(memory) for config in configs] == [None, None, str(34 * mib), str(180 * mib)]


def test_the_largest_record_that_a_file_may_ask_for_is_one_that_clients_take() -> None:
    most = 90 * 2**20
    with pytest.raises(ValidationError, match="max_message_bytes"):
        pipeline(kafka={"max_message_bytes": most + 1})
    settings = letters_config(pipeline(kafka={"max_message_bytes": most}))["client"]
    Producer(settings | {"log_level": 0})  # which refuses what is out of its range
    assert most + MORE_BYTES < 100_000_000, "librdkafka's receive.message.max.bytes"


def test_a_worker_with_our_converter_writes_with_it() -> None:
    """It leaves out itself what nobody reads; with Avro it writes the keys alone."""
    plugins = {ROW_CONVERTER, "org.apache.kafka.connect.json.JsonConverter"}
    plain, config = connector_config(pipeline(), catalogue()), connector_config(pipeline(), catalogue(), (), plugins)
    assert {name for name in plain if config.get(name) != plain[name]} == {
        "key.converter",
        "value.converter",
        "transforms",
    }
    assert config["key.converter"] == config["value.converter"] == ROW_CONVERTER
    registry = {"url": "http://registry:8080/apis/ccompat/v7/"}
    avro = connector_config(pipeline(source={"format": "avro", "registry": registry}), catalogue(), plugins=plugins)
    assert (avro["key.converter"], avro["value.converter"]) == (ROW_CONVERTER, AVRO_CONVERTER)
    assert avro["transforms"] == "slim"


def test_our_connector_where_the_worker_has_it() -> None:
    """It stands on Debezium's: nothing else of the configuration changes."""
    plain, config = (connector_config(pipeline(), catalogue(), (), plugins) for plugins in ((), {QUIET_CONNECTOR}))
    assert config == plain | {"connector.class": QUIET_CONNECTOR}


def test_options_of_the_file_win() -> None:
    options = {"exactly.once.support": "requested", "poll.interval.ms": 50, "database.tcpKeepAlive": True}
    config = connector_config(pipeline(connect={"options": options}), catalogue())
    assert config["exactly.once.support"] == "requested"
    assert config["poll.interval.ms"] == "50"
    assert config["database.tcpKeepAlive"] == "true"


def test_reselect_asks_for_nulls_only_where_a_null_may_be_an_unchanged_value() -> None:
    columns = (
        Column("id", "integer", "int4"),
        Column("t", "text", "text"),
        Column("n", "numeric[]", "numeric", array=True),
    )
    table = Table("public", "flights", columns, ("id",))
    config = connector_config(pipeline(policy={"toast": "reselect"}), catalogue(table))
    assert config["post.processors"] == "reselector,nulls"
    assert config["nulls.reselect.columns.include.list"] == r"public\.flights\:n"
    assert (config["reselector.reselect.unavailable.values"], config["reselector.reselect.null.values"]) == (
        "true",
        "false",
    )
    assert (config["nulls.reselect.unavailable.values"], config["nulls.reselect.null.values"]) == ("false", "true")
    assert config["reselector.reselect.cache.enabled"] == "true"
    assert "post.processors" not in connector_config(pipeline(policy={"toast": "allow"}), catalogue(table))


def test_table_keyed_by_its_replica_identity_names_its_key() -> None:
    columns = (Column("a", "integer", "int4"), Column("b", "text", "text"))
    keyed = Table("public", "log", columns, ("b", "a"), replica_identity="index")
    config = connector_config(pipeline(), catalogue(keyed), [fact(name="public.log", has_primary_key=False)])
    assert config["message.key.columns"] == r"public\.log:b,a"


def test_each_column_of_a_key_is_itself_and_no_pattern() -> None:
    """Debezium takes each for a regular expression, and splits the option at commas, colons and semicolons."""
    names = ("tenant", "no$", "a.b", "größe", "q(1)", "x,y:z;1", "order id")
    keyed = Table("public", "log", tuple(Column(name, "integer", "int4") for name in names), names, "index")
    config = connector_config(pipeline(), catalogue(keyed), [fact(name="public.log", has_primary_key=False)])
    table, _, columns = config["message.key.columns"].partition(":")
    assert (table, columns.split(",")[:2], columns.split(",")[3]) == (r"public\.log", ["tenant", r"no\x24"], "größe")
    found = [next(name for name in (*names, "a_b") if re.fullmatch(one, name)) for one in columns.split(",")]
    assert found == list(names)
    assert not re.search(r"[:;\s]", columns)


def test_a_table_whose_name_differs_in_case_only_keeps_its_columns_and_its_key() -> None:
    """Debezium's patterns ignore case. Without such a table they stay as they are, or every connector would restart."""
    columns = (Column("id", "integer", "int4"), Column("b", "text", "text"))
    log, twin = Table("public", "log", columns, ("b",)), Table("public", "Log", columns, ("id",))
    facts = [fact(name="public.log", has_primary_key=False, generated=("total", "sum"))]
    alone = connector_config(pipeline(), catalogue(log), facts)
    assert alone["message.key.columns"] == r"public\.log:b"
    assert alone["column.exclude.list"] == r"public\.log\.sum,public\.log\.total"
    both = connector_config(pipeline(), catalogue(log, twin), [*facts, fact(name="public.Log")])
    assert both["message.key.columns"] == r"(?-i)public\.log:b"
    assert both["column.exclude.list"] == r"(?-i)public\.log\.sum,(?-i)public\.log\.total"
    assert "(?-i)" not in both["table.include.list"]


def test_a_table_without_any_key_is_the_check_of_keys_business_alone() -> None:
    table = Table("public", "log", (Column("a", "text", "text"),), ())
    keyless = fact(name="public.log", has_primary_key=False, unique_keys=0)
    assert "message.key.columns" not in connector_config(pipeline(), catalogue(table), [keyless])
    assert [finding.message for finding in key_findings(table, keyless)] == [
        "public.log has no primary key: updates and deletes could not be matched with rows"
    ]
    [late] = key_findings(table, replace(keyless, has_primary_key=True))
    assert "has a primary key that is DEFERRABLE" in late.message and "without DEFERRABLE" in late.fix
    for facts, said in ((keyless, 0), (replace(keyless, unique_keys=2), 1)):
        site = SimpleNamespace(pipeline=pipeline(), facts={"public.log": facts}, catalogue=catalogue(table))
        assert len(list(toast.run(site))) == said  # type: ignore[arg-type]


def test_a_key_with_a_timetz_is_refused() -> None:
    """Two rows of one moment in two zones have one key in the log, and would be one document."""
    opens = Column("opens", "time with time zone", "timetz")
    table = Table("public", "shift", (Column("id", "integer", "int4"), opens), ("id", "opens"))
    [found] = key_findings(table, fact(name="public.shift"))
    assert found.level is Level.ERROR and "public.shift has the timetz opens in its key; its zone" in found.message
    assert found.fix.startswith("ALTER TABLE public.shift ALTER COLUMN opens TYPE time")
    [found] = key_findings(table, fact(name="public.shift"), captured=True)
    assert found.level is Level.WARNING, "all other tables could not be applied any more"
    assert not list(key_findings(replace(table, primary_key=("id",)), fact(name="public.shift"))), "as any other column"


def test_a_key_with_a_generated_column_is_refused_by_check_and_by_views() -> None:
    """It is in the key and none of the columns: `check` ended in a KeyError when it looked for keys' types."""
    table = Table("public", "t", (Column("id", "integer", "int4"),), ("k",), generated=("k",))
    facts = {"public.t": fact(name="public.t", generated=("k",))}
    site = SimpleNamespace(pipeline=pipeline(), facts=facts, catalogue=catalogue(table))
    assert ["generated column in its key (k)" in found.message for found in primary_keys.run(site)] == [True]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"public\.t's key column k is a generated column"):
        keyed(pipeline(), table, ("sinks", "x"))


def test_a_stored_generated_column_is_warned_of_since_postgres_18() -> None:
    def said(server_version: int, **about: object) -> list[str]:
        found = kind_findings(fact(generated=("total",), **about), server_version)
        return [finding.message for finding in found if finding.level is Level.WARNING]

    [message] = said(180000, stored=("total",))
    assert "stored generated column (total)" in message and "dbz#2020" in message
    assert said(170005, stored=("total",)) == [] and said(180000, virtual=True) == []


@pytest.mark.parametrize("server_version", [170005, 180000])
def test_no_two_findings_disagree_whether_a_generated_column_is_sent(server_version: int) -> None:
    """`init` said of one column that Postgres does not send it, and that the publication has to."""
    found = list(kind_findings(fact(generated=("bmi",), stored=("bmi",)), server_version))
    told = [text for finding in found for text in (finding.message, finding.many or "")]
    assert "generated columns are not captured: bmi (the connector leaves them out)" in told
    assert not any("Postgres does not send" in text for text in told)
    assert sum("has to send it to the connector, which leaves it out" in text for text in told) == (
        2 if server_version >= 180000 else 0
    )


def test_partitions_that_are_not_in_the_log_are_refused_by_name() -> None:
    def said(**about: tuple[str, ...]) -> list[tuple[Level, str, str]]:
        return [(f.level, f.message, f.fix) for f in kind_findings(fact(kind="p", **about), 180000)]

    assert said() == []
    [(level, message, fix)] = said(unlogged=("s.t1", "s.Odd"))
    assert level is Level.ERROR
    assert message == "changes in partitions of s.t are not in the log: s.t1, s.Odd (unlogged)"
    assert fix.startswith(
        'ALTER TABLE s.t1 SET LOGGED; ALTER TABLE s."Odd" SET LOGGED: `headwater run` then takes up by itself'
    )
    assert "if s.t is captured already" in fix
    assert "`headwater resnapshot FILE s.t`" in fix and fix.endswith("; or leave s.t out")
    [(level, message, fix)] = said(foreign=tuple(f"s.t{number}" for number in range(1, 1009)))
    assert level is Level.ERROR and "DETACH PARTITION" in fix
    assert message.endswith(", s.t1007, s.t1008 (foreign tables)")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"virtual": True}, "virtual generated column"),
        ({"virtual": True, "replica_identity": "f", "toasted": False}, "virtual generated column"),
        ({"has_primary_key": False, "unique_keys": 2}, "several unique indexes"),
        ({"unlogged": ("s.t1",)}, "partitions of s.t are not in the log"),
        # `apply` looked for its triggers' table in "archive", in the middle of its work.
        ({"misplaced": ("archive.2024.p1",)}, "in a schema whose name has a dot: archive.2024.p1"),
    ],
)
def test_init_leaves_out_what_check_would_refuse(about: dict[str, Any], message: str) -> None:
    """`init` wrote such tables into a file of which its own `check` and `apply` said that they can't be captured."""
    table = Table("s", "t", (Column("a", "integer", "int4"),), ("a",))
    [refused] = [one for one in said_of(table, fact(**about), 180000) if one.level is Level.ERROR]
    assert message in refused.message and refused.fix
    assert said_of(table, fact(), 180000) == said_of(table, fact(virtual=True, toasted=False), 180000) == []


def test_a_foreign_key_over_periods_is_told_apart() -> None:
    """Postgres 18: the rows that it names cover its own, they are not equal. One of before 18 has no such thing."""
    rows = [
        ("s.a", "s.b", ["id", "at"], ["id", "at"], True),
        ("s.a", "s.c", ["c"], ["id"], False),
        ("s.a", "s.c", ["c"], ["id"], False),
    ]
    connection = SimpleNamespace(execute=lambda *_: SimpleNamespace(fetchall=lambda: rows))
    found = read_foreign_keys(connection, ["s.a"])  # type: ignore[arg-type]
    assert [(key.target, key.period) for key in found] == [("s.b", True), ("s.c", False)]


def test_generated_columns_are_excluded() -> None:
    config = connector_config(pipeline(), catalogue(), [fact(name="public.flights", generated=("total",))])
    assert config["column.exclude.list"] == r"public\.flights\.total"
    other = Table("public", "flights2", (Column("id", "integer", "int4"),), ("id",))
    facts = [fact(name=name, generated=("total",)) for name in ("public.flights2", "public.flights")]
    both = connector_config(pipeline(), catalogue(*catalogue().tables.values(), other), facts)
    assert both["column.exclude.list"] == r"public\.flights\.total,public\.flights2\.total"  # in the names' order


@pytest.mark.parametrize("name", ["public.flights", "public.a$b", "s-1.T (x)+[y]", "a.b*"])
def test_pattern_matches_the_name_and_nothing_near(name: str) -> None:
    assert re.fullmatch(pattern([name]), name)
    assert not re.fullmatch(pattern([name]), name.replace(".", "x", 1))


def test_pattern_escapes_the_comma_that_would_split_the_list() -> None:
    assert pattern(["a.b,c"]) == r"a\.b\,c"


def test_redacted_configuration_holds_no_secret_anywhere() -> None:
    options = {
        "signal.consumer.sasl.jaas.config": f"… password={SECRET};",
        "database.ssl.passphrase": "swordfish",
        "producer.override.sasl.jaas.config": "${file:/etc/kafka.properties:jaas}",
        "header.copy": SECRET,  # a secret where nobody looks for one
    }
    shown = redact(connector_config(pipeline(connect={"options": options}), catalogue()))
    assert SECRET not in str(shown)
    assert "swordfish" not in str(shown)
    assert shown["producer.override.sasl.jaas.config"] == "${file:/etc/kafka.properties:jaas}"
    assert shown["database.hostname"] == "db.example"


def test_names_fit_postgres_even_for_the_longest_pipeline() -> None:
    names = Names("headwater", "a" * 40)
    assert all(len(name) <= 63 for name in (*names.tables, names.truncate_function, names.truncate_trigger))


def test_avro_writes_values_as_avro_and_keys_as_json() -> None:
    registry = {"url": "http://registry:8080/apis/ccompat/v7/", "user": "me", "password": SECRET}
    avro = pipeline(source={"format": "avro", "registry": registry})
    config = connector_config(avro, catalogue())
    plain = connector_config(pipeline(), catalogue())
    assert {key: value for key, value in config.items() if plain.get(key) != value} == {
        "schema.name.adjustment.mode": "avro",
        "value.converter": "headwater.connect.RowAvroConverter",
        "value.converter.apicurio.registry.url": "http://registry:8080/apis/registry/v2",
        "value.converter.apicurio.registry.auto-register": "true",
        "value.converter.apicurio.registry.as-confluent": "true",
        "value.converter.apicurio.registry.use-id": "contentId",
        "value.converter.apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        "value.converter.apicurio.registry.headers.enabled": "false",
        "value.converter.apicurio.registry.serializer.dereference-schema": "true",
        "value.converter.apicurio.auth.username": "me",
        "value.converter.apicurio.auth.password": SECRET,
    }
    assert SECRET not in str(redact(config))
    assert SECRET not in repr(avro)
    # With JSON the registry is only read: what was Avro before still is.
    assert connector_config(pipeline(source={"registry": registry}), catalogue()) == plain
    elsewhere = {**registry, "connect_url": "http://inside:8080/apis/registry/v2"}
    told = connector_config(pipeline(source={"format": "avro", "registry": elsewhere}), catalogue())
    assert told["value.converter.apicurio.registry.url"] == elsewhere["connect_url"]


def test_the_authority_of_the_servers_certificate_is_told_to_the_connector_in_its_drivers_words() -> None:
    plain = connector_config(pipeline(), catalogue())
    assert not {"database.sslrootcert", "database.sslfactory"} & plain.keys()
    named = pipeline(source={"sslrootcert": "/etc/ssl/own.pem"})
    assert connector_config(named, catalogue())["database.sslrootcert"] == "/etc/ssl/own.pem"
    # Java's driver knows no such word, and would look for a file called so.
    system = connector_config(pipeline(source={"sslrootcert": "system"}), catalogue())
    assert "database.sslrootcert" not in system
    assert system["database.sslfactory"] == "org.postgresql.ssl.DefaultJavaSSLFactory"
