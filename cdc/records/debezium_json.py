"""Debezium's change events, one decoder a table: as JSON without schemas, or as what another encoding makes like it.

Which settings the connector must have for this to be exact is in docs/types.md; the rule for positions is in
docs/decisions/positions.md. Values stay raw here: views convert the columns that they use, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from cdc.catalogue import Table
from cdc.errors import DecodeError, ShapeUnknown, UnavailableValue, UnknownSchema
from cdc.records.change import Change, Op
from cdc.records.encoding import JSON, Encoding, UnknownSchemaId
from cdc.records.former import Former
from cdc.records.placeholders import unavailable
from cdc.records.position import MAX_LSN, pack

_WITH_ROW = frozenset((Op.READ, Op.CREATE, Op.UPDATE))
# Letter of an event -> what happened, and whether the event must have a row. (An Enum's hash is dear, once a record.)
_OPS = {op.value: (op, op in _WITH_ROW) for op in Op if op is not Op.TOMBSTONE}
# What ``source.snapshot`` says of a streamed event: nothing at all, or the word that is its default.
STREAMED = (None, "false")
# In the ``source`` of a delete that we have written ourselves (``connectors/snapshots/missed_deletes.py``): behind
# which place of the log it is to stand. Debezium has null there, unless it was told to fetch it, which its connector
# is not.
WRITTEN = "xmin"


class _OtherKey(ValueError):
    """A record's key is not the table's."""


@dataclass(frozen=True)
class Fit:
    """What must fit the table as it is known, and up to where it is known for certain.

    Attributes:
        lsn: of the source's log, in bytes, until which the table is known: what does not fit and is from before that
            is of a former shape; what is newer is of a shape that nobody has seen yet. 0: none is.
        used: columns that are needed.
        all_columns: also a column that is not known matters.
        values: also a newer value or key that does not fit is doubted, and not only the columns' names.
        unseen: transactions whose end could not be seen when the table was looked at: what they have written is newer
            than what is known, wherever it lies. One of them may have altered the table.
    """

    lsn: int = 0
    used: frozenset[str] = frozenset()
    all_columns: bool = False
    values: bool = True
    unseen: frozenset[int] = frozenset()


class Decoder:
    """Decodes the records of one table's topic.

    Args:
        table: the table as the catalogue knows it.
        epoch: of the source's identity; goes into every position.
        snapshot_lsn: LSN of the initial snapshot, in bytes, as ``snapshot_lsn`` reads it from the marker's record. The
            first transaction after a snapshot may hold records from before it, which would lose against the
            snapshot's rows; 0 if unknown, which leaves that hole open.
        encoding: how the values are written.
        fit: when to doubt that the table still is what it was; never, if left out.

    Raises:
        StateError: the epoch does not fit a position.
    """

    def __init__(
        self,
        table: Table,
        epoch: int = 0,
        snapshot_lsn: int = 0,
        encoding: Encoding = JSON,
        fit: Fit = Fit(),
    ) -> None:
        self.table, self.epoch, self.snapshot_lsn = table, epoch, snapshot_lsn
        self._fit = fit
        self._former = frozenset((*(former for former, _ in table.renamed), *table.generated))
        self._moved = table.moved_rows
        self._was = Former(table)
        self._base = pack(epoch, 0)
        self._where = (table.name, table.schema)
        self._qualified = table.qualified
        self._keys = len(table.primary_key)
        self._known = frozenset(table.by_name)
        self._loads, self._marks = encoding.loads, encoding.marks(table)
        self.source: dict[str, Any] = {}  # of the event that was decoded last; history reads more of it than others

    def decode(self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int) -> Change:
        """One record.

        Args:
            key: the record's key, JSON; None only for TRUNCATE.
            value: the record's value, in the table's encoding; None is a tombstone.
            topic: where it was read, for the change and for messages.
            partition: likewise.
            offset: likewise.

        Raises:
            DecodeError: not an event of this table; names topic, partition and offset (terminal).
            RegistryError: the schema registry can't be asked (RegistryUnavailable: transient).
            ShapeUnknown: it is newer than what is known of the table, and does not fit that (transient).
        """
        try:
            if value is None:
                keys = self._key(key, None)
                return Change(self._qualified, Op.TOMBSTONE, keys, None, 0, topic, partition, offset, 0)
            event = self._loads(value)
            self.source = source = event["source"]
            op, with_row = _OPS[event["op"]]
            if (source["table"], source["schema"]) != self._where:
                raise ValueError(f"it is of {source['schema']}.{source['table']}")
            after: dict[str, Any] | None = None
            missing: tuple[str, ...] = ()
            if with_row:
                after = event["after"]
                if type(after) is not dict:
                    raise ValueError(f"an event of kind {op.value} must have a row in `after`")
                if after.keys() != self._known:
                    self._fitted(after, source, f"{topic}/{partition}/{offset}")
                if op is not Op.READ and any([mark in value for mark in self._marks]):  # noqa: C419 (faster)
                    missing = unavailable(after)
                if self._was:
                    self._was.bring(after, missing)
            return Change(
                self._qualified,
                op,
                {} if op is Op.TRUNCATE else self._key(key, after),
                after,
                self._position(source),
                topic,
                partition,
                offset,
                int(source["ts_ms"] or 0),
                missing,
                op is Op.READ or (not with_row and bool(source.get(WRITTEN))),
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            record = f"{topic}/{partition}/{offset}"
            if isinstance(error, _OtherKey) and self._fit.values and self._newer(*self.told(value)):
                raise self._unknown(record, str(error)) from error
            raise self._undecodable(error, value, record) from error

    def named(self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int) -> Change:
        """Which row a record is about, and nothing else of it: its value may be none of this table.

        Arguments as ``decode``; JSON has all of it in the key.

        Raises:
            DecodeError: it does not say (terminal).
        """
        return self.decode(key, None, topic, partition, offset)

    def letter_key(self, key: bytes | None, value: bytes | None) -> str:
        """The key of a dead letter about a record's row; "" if the record must have a letter of its own place."""
        return "" if key is None else key.decode("utf-8", "replace")

    def doubt(self, change: Change, error: DecodeError) -> None:
        """Refuse to give up a record whose values do not fit a shape that its table may not have any more.

        A large value that is left out is no matter of a shape.

        Args:
            change: the record that was decoded last.
            error: what its values have met.

        Raises:
            ShapeUnknown: it is newer than what is known of the table (transient).
        """
        told = (change.position, transaction_of(self.source)) if change.position else (0, None)
        if self._fit.values and self._newer(*told) and not isinstance(error, UnavailableValue):
            record = f"{change.topic}/{change.partition}/{change.offset}"
            said = error.what.removeprefix(f"record {record}").lstrip(": ")  # said once is enough
            raise self._unknown(record, said) from error

    def _newer(self, position: int, transaction: int | None) -> bool:
        """Whether a record may be of a shape that nobody has seen yet."""
        fit = self._fit
        return (bool(fit.lsn) and position > self._base + fit.lsn) or transaction in fit.unseen

    def _unknown(self, record: str, said: str) -> ShapeUnknown:
        return ShapeUnknown(
            f"record {record} of {self._qualified} {said}: the table may have another shape by now, with "
            "which `run` goes on by itself",
            means="nothing is skipped: the record waits until the table was looked at",
            fix="nothing: `headwater run` looks at the table and goes on",
        )

    @property
    def base(self) -> int:
        """The packed epoch."""
        return self._base

    def _key(self, key: bytes | None, after: dict[str, Any] | None) -> dict[str, Any]:
        if key is None:
            raise ValueError("it has no key")
        found = orjson.loads(key)
        if type(found) is not dict:
            raise ValueError("its key is not a JSON object")
        for name in self.table.primary_key:
            if found.get(name) is None:
                raise _OtherKey(f"its key lacks the column {name}: the table's key was, or is by now, another one")
        if len(found) != self._keys:
            # The halves of an update of another key lie in two partitions, at one position: in whichever order they
            # are applied to a document of our key, the delete may come last.
            more = sorted(found.keys() - set(self.table.primary_key))
            raise _OtherKey(f"its key has {', '.join(more)} besides: the table's key was, or is by now, another one")
        return found

    def _position(self, source: dict[str, Any]) -> int:
        lsn = lsn_of(source)
        if lsn < self.snapshot_lsn and source["snapshot"] in STREAMED:
            no_commit_before = (source["sequence"] or "[null").startswith("[null")
            lsn = self.snapshot_lsn if no_commit_before else lsn
        return self._base | lsn

    def _fitted(self, after: dict[str, Any], source: dict[str, Any], record: str) -> None:
        """Give columns that were renamed since their present names.

        Raises:
            ShapeUnknown: see ``decode``.
        """
        fit = self._fit
        newer = self._newer(self._base + lsn_of(source), transaction_of(source))
        if self._moved and (then := self._moved.get(frozenset(after))) is not None:
            if newer and fit.used:  # a later shape may have the names of that one again
                raise self._unknown(record, "has the columns of a former shape")
            after.update({name: None if there is None else after[there] for name, there in then.items()})
            return
        for former, present in self.table.renamed:
            if present not in after and former in after:
                after[present] = after[former]
        if not newer:
            return
        lacking = fit.used - after.keys()
        more = after.keys() - self._known - self._former if fit.all_columns else ()
        if lacking or more:
            said = [f"has no column {name}" for name in sorted(lacking)] + [f"has {name} besides" for name in more]
            raise self._unknown(record, ", ".join(said))

    def told(self, value: bytes | None) -> tuple[int, int | None]:
        """(position, transaction) of a record that need not be an event of this table; 0 and None where it does not
        say. For dead letters.

        Raises:
            RegistryError: as ``decode``.
        """
        try:
            source = self._loads(value)["source"] if value is not None else {}
            return self._position(source), transaction_of(source)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return 0, None

    def given_up(self, change: Change) -> bool:
        """Whether the initial snapshot read a row in an attempt that was interrupted: the last one reads all anew."""
        return change.snapshot and change.position < self._base | self.snapshot_lsn

    def read_later(self, change: Change) -> bool:
        """Whether a row was read after the initial snapshot, whose rows all have its own position."""
        return change.snapshot and change.position > self._base | self.snapshot_lsn

    def superseded(self, change: Change) -> bool:
        """Whether a record is of a former shape whose values Postgres has since written anew, in no log: the table was
        read again then, so a newer record of its row, or its delete, follows in the same partition."""
        return bool(self.table.since) and change.position - self._base < self.table.since

    def _undecodable(self, error: Exception, value: bytes | None, record: str) -> DecodeError:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        fix = "look at the record: is another connector or application writing to this topic?"
        if isinstance(error, _OtherKey):
            fix = "if its key was changed, `headwater status` says what is done about it; else look who writes into it"
        if isinstance(error, UnknownSchemaId):
            return UnknownSchema(
                f"record {record} can't be read: {why}",
                means="it goes to the dead letters; the row that it is about may be out of date in the sinks",
                fix="look who writes into this topic, and into which registry",
            )
        if value is not None and value[:1] == b"\0":
            fix = "if it is Avro, set source.registry; else look who writes into this topic"
        if value is not None and value.startswith(b'{"schema"'):
            fix = "set key.converter.schemas.enable and value.converter.schemas.enable to false: run `headwater apply`"
        return DecodeError(
            f"record {record} is not an event of {self._qualified}: {why}",
            means="it goes to the dead letters; the row that it is about may be out of date in the sinks",
            fix=fix,
        )


def lsn_of(source: dict[str, Any]) -> int:
    """Where an event stands in the log, in bytes: the highest of its record's LSN and the last commit before it.

    Args:
        source: an event's ``source`` block.

    Raises:
        ValueError, TypeError: there is none, or it is not a number that fits a position.
    """
    lsn, sequence = source["lsn"] or 0, source["sequence"]
    if sequence:
        for text in orjson.loads(sequence):
            if text is not None and (number := int(text)) > lsn:
                lsn = number
    if type(lsn) is not int or not 0 < lsn <= MAX_LSN:
        raise ValueError(f"its source has no usable LSN (lsn {source['lsn']!r}, sequence {sequence!r})")
    return lsn


def transaction_of(source: dict[str, Any]) -> int | None:
    """The source's transaction that an event belongs to; None of a row that a snapshot has read.

    Args:
        source: an event's ``source`` block.
    """
    found = source.get("txId")
    return found if type(found) is int and source.get("snapshot") in STREAMED else None


def snapshot_lsn(value: bytes, encoding: Encoding = JSON) -> int | None:
    """The snapshot's LSN from the value of a record that a snapshot read (the marker's); None if it was streamed.

    Raises:
        DecodeError: not an event of Debezium (terminal).
        RegistryError: the schema registry can't be asked (RegistryUnavailable: transient).
    """
    try:
        event = encoding.loads(value)
        return lsn_of(event["source"]) if event["op"] == Op.READ.value else None
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(f"the snapshot marker's record is not an event of Debezium: {error!r}") from error
