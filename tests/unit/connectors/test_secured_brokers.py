"""A cluster with TLS or logins: what Spark and Debezium's reader of signals lack is told before they need it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import ConnectUnavailable, KafkaUnavailable
from cdc.pipeline import Pipeline, loads
from connectors.preflight import brokers, worker
from connectors.preflight.model import Finding, Level
from tests.support.plain_file import plain_file
from tests.support.tls import own_authority

SASL = "security.protocol: sasl_ssl, sasl.mechanisms: SCRAM-SHA-512, sasl.username: me, sasl.password: s3cret"


def pipeline(options: str, of_connect: str = "") -> Pipeline:
    return loads(plain_file(options=options, connect=of_connect))


def asked(of: Pipeline) -> list[Finding]:
    def plugins(**_: Any) -> None:
        raise ConnectUnavailable("away")

    return list(worker.run(SimpleNamespace(pipeline=of, connect=SimpleNamespace(plugins=plugins))))[:-1]  # type: ignore[arg-type]


def test_a_reader_of_signals_without_a_login_is_told_with_the_lines_to_write() -> None:
    """The first snapshot and streaming work without it, and the first table that is added waits for ever."""
    [told] = asked(pipeline(f"{SASL}, ssl.ca.location: /ca.pem, ssl.endpoint.identification.algorithm: none"))
    assert told.level is Level.ERROR and "wait for ever" in told.message
    for line in (
        "signal.consumer.security.protocol: sasl_ssl",
        "signal.consumer.sasl.mechanism: SCRAM-SHA-512",
        "signal.consumer.sasl.jaas.config: ${VARIABLE}",
        "signal.consumer.ssl.truststore.location: /ca.pem",
        'signal.consumer.ssl.endpoint.identification.algorithm: ""',
    ):
        assert f"`{line}`" in told.fix
    assert "s3cret" not in told.fix


@pytest.mark.parametrize(
    ("options", "of_connect"),
    [
        ("", ""),
        ("security.protocol: PLAINTEXT", ""),
        (SASL, "signal.consumer.security.protocol: SASL_SSL"),
        (SASL, 'signal.kafka.bootstrap.servers: "open:9092"'),
    ],
)
def test_a_reader_of_signals_that_needs_none_or_has_one_is_left_alone(options: str, of_connect: str) -> None:
    assert asked(pipeline(options, of_connect)) == []


def test_files_that_sparks_client_can_not_take_are_told(tmp_path: Path) -> None:
    ca = own_authority(tmp_path)
    key = ca.with_name("key.pem")
    of = pipeline(f"security.protocol: SSL, ssl.certificate.location: {ca}, ssl.key.location: {key}")
    kafka = SimpleNamespace(describe=lambda _: {})
    site: Any = SimpleNamespace(pipeline=of, kafka=kafka, failed={"tables"})
    assert list(brokers.run(site)) == []
    key.write_text(key.read_text().replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE"))
    [told] = brokers.run(site)
    assert (told.level, told.about) == (Level.ERROR, "kafka.options") and "openssl pkcs8" in told.fix

    def away(_: Any) -> None:
        raise KafkaUnavailable("away")

    kafka.describe = away
    assert [found.message for found in brokers.run(site)] == ["away"], "one thing after the other"
