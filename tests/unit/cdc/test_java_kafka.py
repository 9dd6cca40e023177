"""Kafka's options, which the file has in librdkafka's words, in those of the Java client."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ConfigError, PipelineFileError
from cdc.java_kafka import java_client
from cdc.masking import looks_secret
from cdc.pipeline import loads
from tests.support.plain_file import plain_file
from tests.support.tls import own_authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s3cret",
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens/",
    "https.ca.location": "/tokens.pem",
}


@pytest.mark.parametrize("option", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_a_user_and_a_password(option: str, mechanism: str, module: str) -> None:
    """Also by librdkafka's own name of the mechanism: Java was given the module of another one, or none."""
    options = {"security.protocol": "SASL_SSL", option: mechanism, "sasl.username": "u", "sasl.password": 'p"w\\'}
    assert java_client(options) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="u" password="p\\"w\\\\";',
    }


def test_a_token() -> None:
    oauth = "org.apache.kafka.common.security.oauthbearer"
    assert java_client(OIDC) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://tokens/",
        "sasl.jaas.config": f'{oauth}.OAuthBearerLoginModule required clientId="me" clientSecret="s3cret" '
        'scope="kafka" extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2" '
        'ssl.truststore.type="PEM" ssl.truststore.location="/tokens.pem";',
    }


def test_certificates_in_files(tmp_path: Path) -> None:
    """Java ignored a client's own: it came without one."""
    ca = own_authority(tmp_path)
    key = ca.with_name("key.pem")
    options = {f"ssl.{name}.location": str(path) for name, path in (("ca", ca), ("certificate", ca), ("key", key))}
    assert java_client({"security.protocol": "ssl", "ssl.key.password": "", **options}) == {
        "security.protocol": "ssl",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": ca.read_text(),
        "ssl.keystore.key": key.read_text(),
    }


def test_certificates_as_text(tmp_path: Path) -> None:
    ca = own_authority(tmp_path)
    text, key = ca.read_text(), ca.with_name("key.pem").read_text()
    java = java_client({"ssl.ca.pem": text, "ssl.certificate.pem": text, "ssl.key.pem": key})
    assert java == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": text,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": text,
        "ssl.keystore.key": key,
    }
    assert looks_secret("kafka.ssl.keystore.key") and looks_secret("kafka.sasl.jaas.config"), "as Spark has them"


def test_a_login_that_no_protocol_asks_for_is_no_trouble() -> None:
    assert java_client({"sasl.password": "left over"})["sasl.mechanism"] == "PLAIN"


def test_a_keystore_and_what_needs_no_setting() -> None:
    options = {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p", "ssl.ca.location": "probe"}
    options |= {"enable.ssl.certificate.verification": "True", "ssl.endpoint.identification.algorithm": "none"}
    assert java_client({**options, "socket.timeout.ms": "9"}) == {
        "socket.timeout.ms": "9",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "p",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanisms GSSAPI"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanisms GSSAPI"),
        ({"sasl.mechanisms": "PLAIN", "sasl.kerberos.principal": "x"}, "sasl.kerberos.principal"),
        ({**OIDC, "sasl.oauthbearer.method": "default"}, "OAUTHBEARER"),
        ({**OIDC, "sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites"),
        ({"ssl.crl.location": "x"}, "ssl.crl.location"),
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"ssl.certificate.pem": "x"}, "certificate and its key"),
        ({"ssl.ca.location": "/none.pem"}, r"ssl.ca.location: /none.pem: No such file"),
        ({"ssl.ca.location": "/tmp"}, r"ssl.ca.location: /tmp: Is a directory"),
    ],
)
def test_what_java_can_not_be_told_is_refused(options: dict[str, str], named: str) -> None:
    """It was passed on as it was, and each flow tried to connect for ever."""
    with pytest.raises(ConfigError, match=named) as told:
        java_client(options)
    assert "s3cret" not in str(told.value)


def test_comments_beside_a_certificate_are_in_any_encoding(tmp_path: Path) -> None:
    """A bundle with `# Türk…` in Latin-1 was refused, and both clients take it."""
    ca = own_authority(tmp_path)
    ca.write_bytes(b"# T\xfcrkTrust\n" + ca.read_bytes())
    assert java_client({"ssl.ca.location": str(ca)})["ssl.truststore.location"] == str(ca)
    ca.write_bytes(b"\x30\x82\x01\x0a")  # DER
    with pytest.raises(ConfigError, match="no `-----BEGIN"):
        java_client({"ssl.ca.location": str(ca)})


@pytest.mark.parametrize("kind", ["ENCRYPTED ", "RSA ", "EC "])
def test_a_key_that_java_can_not_read_is_refused(kind: str) -> None:
    key = f"-----BEGIN {kind}PRIVATE KEY-----\ns3cret\n-----END {kind}PRIVATE KEY-----\n"
    with pytest.raises(ConfigError, match="PKCS#8") as told:
        java_client({"ssl.key.pem": key, "ssl.certificate.pem": "x"})
    assert "s3cret" not in str(told.value)


def test_the_file_is_refused_at_once_and_opens_no_other() -> None:
    with pytest.raises(PipelineFileError, match=r"4:.*sasl\.mechanisms GSSAPI is not supported"):
        loads(plain_file(options="sasl.mechanism: GSSAPI, sasl.username: u"))
    assert loads(plain_file(options="ssl.certificate.location: /none.pem, ssl.key.location: /none.pem"))
