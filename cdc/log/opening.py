"""How a client of the brokers is made, and what it hears while nobody lets it in.

librdkafka makes of a login that is refused, and of a certificate that can't be trusted, what it makes of brokers that
are away: it tries again until the question's time is over. Why is told to a callback alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as CoreError
from confluent_kafka.admin import AdminClient

from cdc.errors import ConfigError, KafkaRefused

C = TypeVar("C")
Client = AdminClient | Consumer
# As often in a row, with nothing else between: a broker that is just starting may not know its users yet. While a
# question waits for its answer librdkafka tries some twenty times a second.
TIMES = 3
# Brokers that can't ask who somebody is (LDAP is away) refuse logins that they take once it is back. Who has never run
# waits no longer than this: then it is the password that is wrong.
REFUSED_SECONDS = 60.0
# What was heard longer ago than this is not why a question of now has no answer.
RECENT_SECONDS = 60.0
# These pass: a server that goes away in the middle of a handshake, and one of tokens that can't be asked.
_PASSES = re.compile(r"[Dd]isconnected|transport failure|[Tt]imed out|OAUTHBEARER token|OIDC")
# librdkafka tells some failed handshakes as failed transports.
_TLS = "SSL routines:"


class Heard:
    """A client's ``error_cb``: keeps why brokers refused it, if that is why it has no connection.

    For one client, or several with the same settings.
    """

    def __init__(self) -> None:
        self._last: CoreError | None = None
        self._times, self._at = 0, 0.0

    def __call__(self, error: CoreError) -> None:
        """Take in what librdkafka says."""
        if error.code() == CoreError._ALL_BROKERS_DOWN:
            return  # said besides, of whatever the reason is
        lasts = _is_tls(error) or error.code() == CoreError._AUTHENTICATION
        if lasts and not _PASSES.search(error.str()):
            self._last, self._times, self._at = error, self._times + 1, time.monotonic()
        else:
            self.forget()

    def forget(self) -> None:
        """Somebody was let in: what was heard before is not why a later question has no answer."""
        self._last, self._times = None, 0

    def let_in(self, client: Client) -> None:
        """The brokers have answered the client: it tells what it had heard before that, and it is forgotten."""
        self.catch_up(client)
        self.forget()

    def catch_up(self, client: Client) -> None:
        """Take in what the client has heard: it calls nobody back but while it is polled."""
        client.poll(0)

    def refusal(self, what: str, bootstrap: str) -> KafkaRefused | None:
        """Why a question had no answer, if the brokers refuse whoever asks; None if they are away.

        Args:
            what: what was asked.
            bootstrap: the brokers.
        """
        if self._last is None or self._times < TIMES or time.monotonic() - self._at > RECENT_SECONDS:
            return None
        why = _reason(self._last)
        if _is_tls(self._last):
            return KafkaRefused(
                f"{what}: Kafka at {bootstrap} can't be trusted, or has no TLS: {why}",
                fix="name the authority that signed the certificates in ssl.ca.location of kafka.options (a PEM file), "
                "or correct security.protocol there, or kafka.bootstrap (the names that the certificates are for)",
            )
        return KafkaRefused(
            f"{what}: Kafka at {bootstrap} refuses the login: {why}",
            fix="correct kafka.options (sasl.mechanisms, sasl.username, sasl.password), or start what the brokers ask"
            " of users (LDAP, a server of tokens)",
        )


def _is_tls(error: CoreError) -> bool:
    return bool(error.code() == CoreError._SSL) or _TLS in error.str()


def _reason(error: CoreError) -> str:
    """librdkafka's words without its name of the broker, and without how long that took."""
    return re.sub(r"^\S+://\S+: | \(after \d+ms in state \w+\)$", "", error.str())


def watched(settings: Mapping[str, Any], heard: Heard) -> dict[str, Any]:
    """Settings of a client that tells one listener, and no log, what it hears."""
    return {**settings, "log_level": 0, "error_cb": heard}


def opened(kind: Callable[[dict[str, Any]], C], settings: Mapping[str, Any]) -> C:
    """A client of librdkafka's.

    Args:
        kind: ``AdminClient``, ``Consumer`` or ``Producer``.
        settings: of the pipeline, and others.

    Raises:
        ConfigError: librdkafka takes no such settings (terminal).
    """
    try:
        return kind(dict(settings))
    except KafkaException as error:
        if error.args[0].code() != CoreError._INVALID_ARG:
            raise
        why = re.sub(r"^Failed to create \w+(?: client)?: ", "", error.args[0].str())
        raise ConfigError(
            f"kafka.options: {why}", fix="correct it: the names are librdkafka's, and files are this machine's"
        ) from error
