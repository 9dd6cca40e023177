"""One rule says what a secret is, and whoever prints asks it: every option that a file can hold, fed to all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from cdc.masking import looks_secret, mask_text, masked
from cdc.pipeline import Pipeline
from connectors.debezium import redact
from sinks.fields import Fields
from spark.machine.settings import SETTINGS

VALUE = "hunter2"
# Options that files hand through to clients: librdkafka's, Debezium's and its converters', Hadoop's, pyiceberg's.
HANDED_THROUGH = (
    "sasl.password",
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "sasl.oauthbearer.client.secret",
    "database.password",
    "producer.override.sasl.jaas.config",
    "signal.consumer.sasl.jaas.config",
    "schema.registry.basic.auth.user.info",
    "value.converter.basic.auth.user.info",
    "value.converter.apicurio.auth.password",
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "spark.hadoop.fs.s3a.secret.key",
    "s3.access.key",
    "s3.access-key-id",
    "s3.secret-access-key",
    "adls.account-key.access_key",
    "gcs.oauth2.token",
    "credential",
)
HARMLESS = ("client.id", "key.converter", "tokenizer", "max_token_length", "snapshot.mode", "primary_key", "partitions")
ADDRESSES = (
    "http://me:hunter2@host:8081/apis",
    "redis://:hunter2@h:6379/0",
    "jdbc:postgresql://h/d?user=u&password=hunter2",
)


def secret_fields(model: type[BaseModel], seen: set[type]) -> Iterator[str]:
    """Names of a model's fields, and of those below it, that hold a ``SecretStr``; mappings of options aside."""
    seen.add(model)
    for name, field in model.model_fields.items():
        for kind in parts_of(field.annotation):
            if kind is SecretStr:
                yield name
            elif isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
                yield from secret_fields(kind, seen)


def parts_of(annotation: object) -> Iterator[object]:
    yield annotation
    options = get_origin(annotation) in (dict, Mapping)
    for part in get_args(annotation):
        yield from (one for one in parts_of(part) if not (options and one is SecretStr))


OWN = sorted({*secret_fields(Pipeline, set())} - {"catalog_uri", "url"})  # these hold an address


def test_the_file_has_secrets_of_its_own() -> None:
    assert {"password", "setup_password", "api_key"} <= set(OWN)


@pytest.mark.parametrize("key", [*OWN, *HANDED_THROUGH])
def test_a_secret_is_one_everywhere(key: str) -> None:
    assert looks_secret(key)
    assert VALUE not in str(masked({key: VALUE}))
    assert VALUE not in str(redact({key: VALUE, "elsewhere": VALUE}))
    assert VALUE not in str(Fields("sink s", {}).wrong(key, VALUE, "a number"))
    assert re.search(SETTINGS["spark.redaction.regex"], key)
    assert re.search(SETTINGS["spark.sql.redaction.options.regex"], key)


@pytest.mark.parametrize("key", HARMLESS)
def test_what_is_none_is_shown(key: str) -> None:
    assert redact({key: "shown"}) == masked({key: "shown"}) == {key: "shown"}
    assert "shown" in str(Fields("sink s", {}).wrong(key, "shown", "a number"))


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_in_an_address_is_hidden_whatever_its_key_is_called(address: str) -> None:
    assert VALUE not in mask_text(address)
    assert VALUE not in str(redact({"converter.registry": address}))
    assert VALUE not in str(Fields("sink s", {}).wrong("endpoint", address, "a number"))
