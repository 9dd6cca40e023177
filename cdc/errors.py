"""Every error Headwater raises on purpose, as one tree.

HeadwaterError
├── ConfigError                 the user's input is wrong; nothing was done
│   ├── PipelineFileError       the pipeline file, with file, line, column
│   ├── UnknownName             there is no pipeline, sink or view of that name
│   ├── Refused                 over HTTP: whoever asks may not, or a page of another site asks for him
│   ├── TagExists               a cut of that name is there already
│   ├── QueryRefused            an SQL statement that is not run, or that has failed
│   └── BadToken                a text is no write token
├── StackError                  a local server could not be fetched, started or stopped
├── SourceError                 Postgres said no, or is not as it must be
│   ├── SourceUnavailable       (transient)
│   │   └── SourceRefused       (transient) it refuses a login, for a reason that we do not know
│   ├── NoPassword              the server wants a password and was given none
│   ├── MayNotRead              the role has no SELECT on a table
│   ├── SlotLost                the replication slot is gone or was invalidated
│   ├── LogGap                  the slot can't give every change since the connector's last
│   └── TableChanged            a captured table is another one, or was away, or has another key
├── ConnectError                Kafka Connect or a connector in it
│   └── ConnectUnavailable      (transient)
├── KafkaError                  brokers and topics
│   ├── KafkaRefused            (transient) they refuse the login, or can't be trusted
│   └── KafkaUnavailable        (transient)
├── RegistryError               the schema registry refused, or holds other schemas than these topics'
│   └── RegistryUnavailable     (transient)
├── DecodeError                 a record that is not what the codec was told to expect
│   ├── UnknownSchema           an Avro record whose schema the registry does not have
│   └── UnavailableValue        an unchanged large value that the log does not hold (TOAST)
├── ShapeUnknown                (transient) a record has columns that its table was not seen with yet
├── ClusterError                Spark's cluster, or an executor in it, is not as it must be
│   └── ClusterUnavailable      (transient)
├── QueryTooLarge               a query takes more time, memory or log than it may
├── TooManyWaits                (transient) more wait for their writes than a server keeps
├── DiskFull                    (transient) no room for what must be remembered on this machine
├── StateError                  checkpoint, identity or generation state does not fit
│   ├── Fenced                  another process has taken over; this one's writes are refused
│   ├── CheckpointLost          the place in the log is lost
│   ├── SourceChanged           another database, an older copy of it, or another history of it
│   ├── TopicRecreated          a topic was deleted and made again
│   ├── LogTruncated            the log no longer has what comes next
│   ├── NewerFormat             written by a newer Headwater
│   ├── BeforeHistory           a cut before history begins
│   ├── HistoryGap              a cut where history may lack events
│   ├── BeyondFrontier          (transient) a cut that history has not come to yet
│   ├── Behind                  (transient) a generation lacks what it must have for this
│   ├── RowInSource             a row that is to be erased is still in the source
│   ├── TagsHold                tags or branches of a warehouse keep what is to be erased
│   ├── EraseUnfinished         (transient) a server has not let go of what is erased yet
│   └── TooLate                 away for longer than the log remembers deletes
└── SinkError
    ├── SinkUnavailable         (transient) retry with back-off; holds the batch
    └── SinkRefused             the target said no for good: wrong settings, missing rights

``transient``: the same call may succeed later. ``code`` is stable, and documented in docs/errors.md (a test compares).
"""

from __future__ import annotations

from typing import ClassVar

from cdc.wording import worded


class HeadwaterError(Exception):
    """Root of the tree.

    Args:
        what: what happened, naming the thing (one sentence).
        means: what that means for the user's data, if it is not obvious.
        fix: the way out, best as a command.
    """

    code: ClassVar[str] = "headwater"
    transient: ClassVar[bool] = False

    def __init__(self, what: str, *, means: str = "", fix: str = "") -> None:
        self.what, self.means, self.fix = what, means, fix
        super().__init__(what)

    def __str__(self) -> str:
        return worded(self.what, means=self.means, fix=self.fix)


class ConfigError(HeadwaterError):
    """The user's input is wrong; nothing was done. ``parts``: each problem, if it tells of several (cdc/gather.py)."""

    code = "config"
    parts: tuple[ConfigError, ...] = ()


class PipelineFileError(ConfigError):
    """The pipeline file can't be used; the message begins with ``file:line:column``."""

    code = "pipeline-file"


class UnknownName(ConfigError):
    """There is no pipeline, sink or view of that name."""

    code = "unknown-name"


class Refused(ConfigError):
    """Over HTTP: a token may not do what is asked, or a form is too long or not of a page of this session."""

    code = "refused"


class QueryRefused(ConfigError):
    """An SQL statement over the warehouse, or a standing query, is none that is taken; nothing was changed."""

    code = "query-refused"


class BadToken(ConfigError):
    """A text that is to be waited for is no write token."""

    code = "bad-token"


class TagExists(ConfigError):
    """A cut of that name is there already."""

    code = "tag-exists"


class StackError(HeadwaterError):
    """A server of the local stack could not be fetched, started or stopped."""

    code = "stack"


class SourceError(HeadwaterError):
    """Postgres refused, can't be reached, or is not set up as change data capture needs it."""

    code = "source"


class SourceUnavailable(SourceError):
    """Postgres does not answer; the same call may succeed later."""

    code = "source-unavailable"
    transient = True


class SourceRefused(SourceUnavailable):
    """Postgres refuses a login in words that we do not know, which come without a code: for good, or for now."""

    code = "source-refused"


class NoPassword(SourceError):
    """The server wants a password and was given none."""

    code = "no-password"


class MayNotRead(SourceError):
    """The role has no SELECT on a table: before the first ``apply``, or the next one, which grants it."""

    code = "may-not-read"


class SlotLost(SourceError):
    """The replication slot is gone, or Postgres has thrown away WAL that it still needed."""

    code = "slot-lost"


class LogGap(SourceError):
    """The slot was made again: changes between the connector's last and the slot's first are in no log."""

    code = "log-gap"


class TableChanged(SourceError):
    """A captured table is another one under its name, was out of the publication, or has another key."""

    code = "table-changed"


class ConnectError(HeadwaterError):
    """Kafka Connect refused a request, or a connector or task in it has failed."""

    code = "connect"


class ConnectUnavailable(ConnectError):
    """Kafka Connect does not answer or is rebalancing; the same request may succeed later."""

    code = "connect-unavailable"
    transient = True


class KafkaError(HeadwaterError):
    """Kafka can't be reached, or a topic is not as it must be."""

    code = "kafka"


class KafkaRefused(KafkaError):
    """The brokers refuse the login, or can't be trusted: what stands behind a login may be away, and come back."""

    code = "kafka-refused"
    transient = True


class KafkaUnavailable(KafkaError):
    """The brokers do not answer; the same call may succeed later."""

    code = "kafka-unavailable"
    transient = True


class RegistryError(HeadwaterError):
    """The schema registry refused, or has lost the schemas of a whole topic: nothing is skipped, the flow stops."""

    code = "registry"


class RegistryUnavailable(RegistryError):
    """The schema registry does not answer, is busy, or something else answers; the same call may succeed later."""

    code = "registry-unavailable"
    transient = True


class DecodeError(HeadwaterError):
    """A record in a topic is not what the codec expects; goes to dead letters, never skipped silently."""

    code = "decode"


class UnknownSchema(DecodeError):
    """An Avro record names a schema that the registry does not have; goes to dead letters."""

    code = "unknown-schema"


class ShapeUnknown(HeadwaterError):
    """A record does not fit its table as that was last seen, and is newer; or the table was altered meanwhile."""

    code = "shape-unknown"
    transient = True


class UnavailableValue(DecodeError):
    """An event lacks a large value that did not change (TOAST), and a view needs it; goes to dead letters."""

    code = "unavailable-value"


class ClusterError(HeadwaterError):
    """Executors of a Spark cluster lack what they need: Python, the same Headwater, a file, a shared folder."""

    code = "cluster"


class ClusterUnavailable(ClusterError):
    """Spark's master does not answer, gives no executors, or has ended this application."""

    code = "cluster-unavailable"
    transient = True


class QueryTooLarge(HeadwaterError):
    """A query over the warehouse takes more time, memory or records of the log than it may; nothing was changed."""

    code = "query-too-large"


class TooManyWaits(HeadwaterError):
    """More wait for their writes, or for what is built for each of them, than a server keeps."""

    code = "too-many-waits"
    transient = True


class DiskFull(HeadwaterError):
    """A disk of this machine has no room for what must be remembered; the same call may succeed later."""

    code = "disk-full"
    transient = True


class StateError(HeadwaterError):
    """A checkpoint, an identity or a generation's state does not fit what is asked; nothing was written."""

    code = "state"


class Fenced(StateError):
    """Another process has taken the generation over; this one's writes are refused."""

    code = "fenced"


class CheckpointLost(StateError):
    """A checkpoint is gone or has lost a part, so that the place in the log is not known."""

    code = "checkpoint-lost"


class SourceChanged(StateError):
    """Another database behind the same address, one restored from an older copy, or one that failed over."""

    code = "source-changed"


class TopicRecreated(StateError):
    """A topic was deleted and made again: its offsets are others, and what it held is gone."""

    code = "topic-recreated"


class LogTruncated(StateError):
    """The log begins after the place from which a sink has to go on, or ends before it."""

    code = "log-truncated"


class NewerFormat(StateError):
    """What is there was written by a newer Headwater, in a form that this one does not know."""

    code = "newer-format"


class BeforeHistory(StateError):
    """A cut before the history of a table begins."""

    code = "before-history"


class HistoryGap(StateError):
    """A cut where compaction may have taken events away before history had read them."""

    code = "history-gap"


class BeyondFrontier(StateError):
    """A cut that history has not come to yet."""

    code = "beyond-frontier"
    transient = True


class Behind(StateError):
    """A generation lacks what readers of the living one see, or the delete of what is to be erased."""

    code = "behind"
    transient = True


class RowInSource(StateError):
    """A row that is to be erased is still in the source, or is there again."""

    code = "row-in-source"


class TagsHold(StateError):
    """Tags or branches of a warehouse's tables keep what is to be erased; nothing was, but if one was set meanwhile."""

    code = "tags-hold"


class EraseUnfinished(StateError):
    """A server has not let go of what is erased in time; the same call goes on."""

    code = "erase-unfinished"
    transient = True


class TooLate(StateError):
    """A sink was away for longer than the log keeps tombstones: it may have missed deletes."""

    code = "too-late"


class SinkError(HeadwaterError):
    """A sink could not do what it was asked."""

    code = "sink"


class SinkUnavailable(SinkError):
    """The sink's server is down, overloaded or answers 429/503: hold the batch and try again."""

    code = "sink-unavailable"
    transient = True


class SinkRefused(SinkError):
    """The sink's server refused for a reason that will not pass by itself."""

    code = "sink-refused"
