"""Kafka's own ids of topics: a topic that was deleted and made again has another."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError as Refusal
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log.opening import Heard, opened, watched
from cdc.pipeline import Pipeline

# How long brokers may take.
SECONDS = 10.0
# What Kafka says of a topic that is not there.
_MISSING = (Refusal.UNKNOWN_TOPIC_OR_PART, Refusal._UNKNOWN_TOPIC, Refusal._UNKNOWN_PARTITION)
# What brokers say that give topics no id: sixteen zero bytes.
_NONE = "A" * 22
# What it says of a client that may not ask.
_FORBIDDEN = (
    Refusal.TOPIC_AUTHORIZATION_FAILED,
    Refusal.CLUSTER_AUTHORIZATION_FAILED,
    Refusal.SASL_AUTHENTICATION_FAILED,
    Refusal._AUTHENTICATION,
)


def topic_ids(pipeline: Pipeline, topics: set[str], *, missing_ok: bool = False) -> dict[str, str]:
    """Kafka's own ids of topics.

    Args:
        pipeline: the loaded file.
        topics: which.
        missing_ok: see ``ids_of``.

    Raises:
        KafkaUnavailable, KafkaRefused: the brokers do not answer, or not yet, or refuse whoever asks (transient).
        KafkaError: a topic is not there, or may not be read (terminal).
        ConfigError: librdkafka does not take ``kafka.options`` (terminal).
    """
    heard = Heard()
    admin = opened(AdminClient, watched(pipeline.kafka.client(), heard))
    return ids_of(admin, topics, pipeline.kafka.bootstrap, heard=heard, missing_ok=missing_ok)


def ids_of(
    admin: AdminClient, topics: Collection[str], bootstrap: str, *, heard: Heard, missing_ok: bool = False
) -> dict[str, str]:
    """As ``topic_ids``, of a client that stays open.

    Args:
        heard: the client's ``error_cb``.
        missing_ok: leave out topics that are not there, and those that have no id because the brokers are old.
    """
    out: dict[str, str] = {}
    futures = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=SECONDS) if topics else {}
    for topic, future in futures.items():
        try:
            out[topic] = str(future.result().topic_id)
            heard.let_in(admin)
        except KafkaException as error:
            if not missing_ok or error.args[0].code() not in _MISSING:
                heard.catch_up(admin)
                raise _kafka_error(topic, bootstrap, error.args[0], heard) from error
    return {topic: one for topic, one in out.items() if not missing_ok or one != _NONE}


def _kafka_error(topic: str, bootstrap: str, error: Refusal, heard: Heard) -> KafkaError:
    if error.code() in _MISSING:
        return KafkaError(
            f"topic {topic}: {error.str()}",
            means="there is no changelog to read yet",
            fix="run `headwater apply FILE`, which creates the topics and the connector",
        )
    if error.code() in _FORBIDDEN:
        return KafkaError(f"topic {topic}: {error.str()}", fix="correct kafka.options, or the rights of that user")
    return heard.refusal(f"topic {topic}", bootstrap) or KafkaUnavailable(
        f"Kafka does not answer at {bootstrap}: {error.str()}",
        means="nothing was started; what is in the log stays there",
        fix="start the brokers, or correct kafka.bootstrap and kafka.options",
    )
