"""Options of Kafka clients in the Java client's words, by which Spark reads; the file has them in librdkafka's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cdc.errors import ConfigError

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_OAUTH = "sasl.oauthbearer."
_OAUTH_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
# Of these an option that is not translated makes a client that can't connect; others are no matter of who may connect.
_OF_SECURITY = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "https.")
# Words of librdkafka's for the authorities that the system trusts: Java asks its own where none are named.
_SYSTEM_ROOTS = "probe"

Read = Callable[[str, str], str]


def read_file(option: str, path: str) -> str:
    """The text of a PEM file that an option names. What is not between BEGIN and END is a comment, in any encoding.

    Raises:
        ConfigError: it can't be read, or is no PEM (terminal).
    """
    what, fix = f"kafka.options: {option}: {path}", "name a PEM file that can be read"
    try:
        text = Path(path).read_bytes().decode("latin-1")
    except OSError as error:
        raise ConfigError(f"{what}: {error.strerror}", fix=fix) from error
    if "-----BEGIN " not in text:
        raise ConfigError(f"{what}: it has no `-----BEGIN …`, as PEM has", fix=fix)
    return text


def java_client(options: Mapping[str, str], read: Read = read_file) -> dict[str, str]:
    """Translate the pipeline's Kafka options (librdkafka's names) into the Java client's.

    Args:
        options: librdkafka's, with secrets.
        read: gives the text of the file that an option names: Java takes a certificate and its key as text alone.

    Returns:
        The Java client's, with secrets.

    Raises:
        ConfigError: an option of TLS or of a login that has no translation, or a file that Java can't take (terminal).
    """
    left = dict(options)
    out = _authorities(left, read) | _certificate(left, read) | _login(left)
    if (algorithm := left.pop("ssl.endpoint.identification.algorithm", None)) is not None:
        out["ssl.endpoint.identification.algorithm"] = "" if algorithm.lower() == "none" else algorithm
    if left.get("enable.ssl.certificate.verification", "").lower() == "true":
        del left["enable.ssl.certificate.verification"]  # Java always looks
    if unknown := sorted(name for name in left if name.startswith(_OF_SECURITY)):
        raise ConfigError(
            f"kafka.options: Spark's Kafka client has no setting like {unknown[0]}",
            fix="leave it out, or say it as docs/operations.md#tls-and-logins-of-kafka does",
        )
    return left | out


def _authorities(left: dict[str, str], read: Read) -> dict[str, str]:
    text, path = left.pop("ssl.ca.pem", None), left.pop("ssl.ca.location", None)
    if text is not None:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    if path is None or path == _SYSTEM_ROOTS:
        return {}
    read("ssl.ca.location", path)  # a folder, say, which librdkafka takes
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}


def _certificate(left: dict[str, str], read: Read) -> dict[str, str]:
    """The client's own certificate: PEM, or a PKCS#12 file, whose names are Java's as well."""
    if "ssl.keystore.location" in left:
        names = ("ssl.keystore.location", "ssl.keystore.password")
        return {"ssl.keystore.type": "PKCS12", **{name: left.pop(name) for name in names if name in left}}
    found = {}
    for part, name in (("certificate", "ssl.keystore.certificate.chain"), ("key", "ssl.keystore.key")):
        text, path = left.pop(f"ssl.{part}.pem", None), left.pop(f"ssl.{part}.location", None)
        if text is not None or path is not None:
            found[name] = text if text is not None else read(f"ssl.{part}.location", path or "")
    left.pop("ssl.key.password", None)  # of an encrypted key
    if not found:
        return {}
    if len(found) < 2:
        raise ConfigError(
            "kafka.options: a client's certificate and its key go together",
            fix="give ssl.certificate.location and ssl.key.location (or both as ….pem)",
        )
    key = found["ssl.keystore.key"]
    # Java 17 takes none that is encrypted as OpenSSL does it (PBES2), and none of the form that is RSA's or EC's own.
    if "-----BEGIN" in key and "-----BEGIN PRIVATE KEY-----" not in key:
        raise ConfigError(
            "kafka.options: Spark's Kafka client takes a client's key as PKCS#8, and not encrypted",
            fix="`openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW` makes such a one; a key that must be encrypted goes "
            "with its certificate into a PKCS#12 file: ssl.keystore.location and ssl.keystore.password",
        )
    return {"ssl.keystore.type": "PEM", **found}


def _login(left: dict[str, str]) -> dict[str, str]:
    """SASL; nothing where there is none."""
    wanted = left.get("security.protocol", "").upper().startswith("SASL")
    if not wanted and not any(name.startswith("sasl.") for name in left):
        return {}
    by_alias = left.pop("sasl.mechanism", None)
    # Without one librdkafka takes GSSAPI; where no protocol asks for a login none of it matters.
    mechanism = left.pop("sasl.mechanisms", None) or by_alias or ("GSSAPI" if wanted else "PLAIN")
    if mechanism not in _MODULES:
        raise ConfigError(
            f"kafka.options: sasl.mechanisms {mechanism} is not supported", fix=f"use {', '.join(_MODULES)}"
        )
    out: dict[str, str] = {}
    given = {"username": left.pop("sasl.username", ""), "password": left.pop("sasl.password", "")}
    if mechanism == "OAUTHBEARER":
        out, given = _token(left)
    quoted = [f'{name}="{_quoted(value)}"' for name, value in given.items()]
    module = f"{_SECURITY}.{_MODULES[mechanism]}"
    return {**out, "sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {' '.join(quoted)};"}


def _token(left: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A login by a token (OIDC): settings besides, and what the login module is told."""
    if left.pop(f"{_OAUTH}method", "").lower() != "oidc":
        raise ConfigError(
            "kafka.options: sasl.mechanisms OAUTHBEARER takes its tokens from a server alone",
            fix="sasl.oauthbearer.method: oidc, with client.id, client.secret and token.endpoint.url",
        )
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    given = {java: left.pop(f"{_OAUTH}{name}") for java, name in names.items() if f"{_OAUTH}{name}" in left}
    for pair in filter(None, left.pop(f"{_OAUTH}extensions", "").split(",")):
        name, _, value = pair.partition("=")
        given[f"extension_{name.strip()}"] = value.strip()
    if (path := left.pop("https.ca.location", _SYSTEM_ROOTS)) != _SYSTEM_ROOTS:  # who has signed the token server's
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}
    out = {"sasl.login.callback.handler.class": _OAUTH_HANDLER}
    if (url := left.pop(f"{_OAUTH}token.endpoint.url", None)) is not None:
        out[f"{_OAUTH}token.endpoint.url"] = url
    return out, given


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
