"""What brokers refuse, and why they do not answer, in our words."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError as CoreError
from confluent_kafka import KafkaException

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log.opening import Heard

# Of the client's own: it has not reached the brokers, or not in time.
SILENCE = {
    "_TRANSPORT",
    "_RESOLVE",
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_MSG_TIMED_OUT",
    "_ALL_BROKERS_DOWN",
    "_WAIT_COORD",
}
# Brokers that say so may say otherwise in a moment: what https://kafka.apache.org/protocol calls retriable, by the
# library's names. Without UNKNOWN_TOPIC_OR_PART: a topic is there when `apply` has made it, and does not come by
# itself; and without what is of share groups, which nobody here has. (The library's own `retriable` is only set of what
# producers with transactions do.)
PASSING = {
    "INVALID_MSG",  # CORRUPT_MESSAGE there: its checksum is wrong
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",  # NOT_LEADER_OR_FOLLOWER there
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",  # of brokers of before, and not retriable there
    "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_CONTROLLER",
    "CONCURRENT_TRANSACTIONS",
    "KAFKA_STORAGE_ERROR",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "LISTENER_NOT_FOUND",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "ELECTION_NOT_NEEDED",
    "UNSTABLE_OFFSET_COMMIT",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_ID",  # of a topic that was made anew: asked for by its name it is there, or it is told as unknown
    "INCONSISTENT_TOPIC_ID",
}

# Of a refusal's name, after what it is about; and the rights there.
DENIED = "AUTHORIZATION_FAILED"
RIGHTS = {
    "TOPIC_": "read, describe, create, alter and write the pipeline's topics",
    "GROUP_": "read, describe and delete the consumer groups that begin with headwater-",
    "TRANSACTIONAL_ID_": "describe and write the transactional ids that begin with headwater-erase.",
    "CLUSTER_": "create topics, on the cluster or on the pipeline's prefix",
}


def translate(what: str, error: KafkaException, bootstrap: str, heard: Heard | None = None) -> KafkaError:
    """An error of librdkafka in our words, transient or not.

    Args:
        what: what was asked.
        error: librdkafka's.
        bootstrap: the brokers.
        heard: of the client, polled: brokers that refuse it are no outage.
    """
    reason = error.args[0]
    if reason.name() in SILENCE:
        refusal = heard.refusal(what, bootstrap) if heard is not None else None
        return refusal or KafkaUnavailable(
            f"{what}: Kafka does not answer at {bootstrap}: {reason.str()}",
            fix="start the brokers (`headwater up` for the local one), or correct kafka.bootstrap",
        )
    if reason.name() in PASSING or reason.retriable():
        return KafkaUnavailable(
            f"{what}: Kafka can't at the moment, at {bootstrap}: {reason.str()}",
            fix="nothing if it passes; else look whether all brokers are up, and at what they log",
        )
    return KafkaError(f"{what}: {reason.str()}", fix=_remedy(reason.name()))


def denied(error: CoreError | None) -> bool:
    """Whether brokers deny a reader what it asks for, which lasts: librdkafka asks again for ever.

    Not so of its group: nothing is committed there, and records come all the same.
    """
    return error is not None and error.name().endswith(DENIED) and not of_the_group(error)


def of_the_group(error: CoreError) -> bool:
    """Whether brokers deny a reader its group alone."""
    return bool(error.code() == CoreError.GROUP_AUTHORIZATION_FAILED)


def untaken(what: str, errors: Iterable[CoreError], bootstrap: str, heard: Heard | None = None) -> KafkaError:
    """Why records were not acknowledged: of several reasons one that lasts, rather than one that passes by itself."""
    told = (translate(what, KafkaException(one), bootstrap, heard) for one in errors)
    return min(told, key=lambda one: one.transient)


def _remedy(name: str) -> str:
    if name == "INVALID_REPLICATION_FACTOR":
        return "set kafka.replication_factor to at most the number of brokers"
    if name.endswith(DENIED):
        what = RIGHTS.get(name.removesuffix(DENIED), RIGHTS["TOPIC_"])
        return f"give the client of kafka.options the right to {what} (docs/operations.md#rights-in-kafka has all)"
    if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return "run `headwater apply FILE`, which makes the pipeline's topics"
    return "correct what the message names"
