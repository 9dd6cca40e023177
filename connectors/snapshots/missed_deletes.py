"""Deletes that nobody told of: rows that are alive in a topic and not in the table, looked for and deleted.

They come from a gap in the log (the slot was lost, or made anew): what was deleted in it has no event, and reading the
table again does not show what is not there.

First while everything runs: each key's newest record, compared with the table, gives suspects; nearly all of the work.
When there are any, the connector is stopped, what has arrived since is taken in, and the suspects are compared again:
only then can no re-insert be overtaken by our tombstone. Changes that Postgres has and the connector has not read yet
come later, with higher positions, and win.

A row whose newest record is of a transaction that can't be seen yet is absent, and alive: it is left alone
(``database/visibility.py``).

Memory is bounded: keys go to files by their hash, and one file is looked at at a time.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Message

from cdc.catalogue import Table
from cdc.errors import HeadwaterError, KafkaError, SourceError
from cdc.log.records import records
from cdc.outbox import is_outbox
from cdc.records.debezium_json import WRITTEN, lsn_of, transaction_of
from cdc.scratch import scratch_folder
from connectors.advisory_lock import changing
from connectors.connector import wait_ready
from connectors.database.history import read_moment
from connectors.database.visibility import read_visible
from connectors.servers import Servers
from connectors.snapshots.absent_keys import NO_SWEEP, KeyCheck
from connectors.snapshots.cut_snapshot import write_deletes
from connectors.tables.catalogue import read_catalogue

# Keys that are in memory at once: a few tens of MB.
BUCKET_KEYS = 100_000
MAX_BUCKETS = 400  # open files
DEAD = b"-"
UNKNOWN = b""  # which transaction, of a row that was read
Told = Callable[[str, int, int], None]


def _tell_nobody(table: str, done: int, total: int) -> None:
    pass


def sweep_missed(servers: Servers, tables: Sequence[str], told: Told = _tell_nobody) -> dict[str, int | HeadwaterError]:
    """Delete the rows that are in the topics of some tables and not in the tables.

    One that can't be looked at holds up no other.

    Args:
        servers: of the pipeline; the tables' rows must be in their topics.
        tables: ``schema.table``.
        told: called now and then with table, records read so far, and how many there are about; at a table's end they
            are equal.

    Returns:
        Table -> rows deleted from its topic, or the error because of which they could not be looked for, or not all be
        deleted (terminal). Doing it again deletes nothing more.

    Raises:
        KafkaUnavailable, SourceUnavailable: no answer, or another sweep has the connector for long (transient).
    """
    # Of an outbox the rows go, and the events stay.
    out: dict[str, int | HeadwaterError] = {table: 0 for table in tables if is_outbox(servers.pipeline, table)}
    tables = [table for table in tables if table not in out]
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("headwater-sweep-"))
        ghosts: dict[str, Ghosts] = {}
        for number, table in enumerate(tables):
            out[table] = 0
            with _refused_alone(table, out):
                now = read_catalogue(servers.setup, [table]).tables[table]
                ghosts[table] = Ghosts(servers, now, folder / str(number))
                ghosts[table].suspect(told)
        found = {table: each for table, each in ghosts.items() if out[table] == 0 and each.suspects}
        if not found:
            return out
        with changing(servers):  # else another sweep, or an apply, would let the connector go on under this one
            servers.connect.stop(servers.connector)
            try:
                servers.connect.wait_stopped(servers.connector)
                for table, each in found.items():
                    with _refused_alone(table, out):
                        out[table] = each.delete()
                return out
            finally:
                servers.connect.resume(servers.connector)
                wait_ready(servers)


@contextmanager
def _refused_alone(table: str, out: dict[str, int | HeadwaterError]) -> Iterator[None]:
    """Keep the error that a table ends with inside the block, unless it is one that passes."""
    try:
        yield
    except (SourceError, KafkaError) as error:
        if error.transient:
            raise
        out[table] = error


class Ghosts:
    """The search in one table's topic.

    Args:
        servers: of the pipeline.
        table: with its key.
        folder: for its files.
    """

    def __init__(self, servers: Servers, table: Table, folder: Path) -> None:
        self.kafka, self.table, self.folder = servers.kafka, table, folder
        self.encoding = servers.encoding
        self.topic = servers.kafka.describe([servers.pipeline.topic(table.qualified)])[
            servers.pipeline.topic(table.qualified)
        ]
        self.check, self.source = KeyCheck(servers.setup, table), servers.source
        self.read: dict[int, int] = {}  # partition -> where to read on
        self.template: dict[str, Any] = {}
        self.like = b""  # a value of this topic, as which ours are written
        self.suspects = 0
        first = self.kafka.ends({self.topic.name: self.topic.partitions}, first=True)[self.topic.name]
        ends = self.kafka.ends({self.topic.name: self.topic.partitions})[self.topic.name]
        self.total = sum(ends.values()) - sum(first.values())
        self.buckets = min(max(self.total // BUCKET_KEYS + 1, 1), MAX_BUCKETS)

    def suspect(self, told: Told) -> None:
        """Read the topic, compare with the table; leaves a file of suspects a bucket.

        Raises:
            SourceError: none of the topic's keys is in a table that has rows: they look different here and there
                (terminal). Nothing was deleted.
        """
        self._spill("all", told)
        living = 0
        for bucket in range(self.buckets):
            alive = self._alive([self._file("all", bucket)])
            living += len(alive)
            with self._file("suspects", bucket).open("wb") as out:
                for key in self.check.absent(list(alive)):
                    out.write(alive[key] + b"\t" + key + b"\n")
                    self.suspects += 1
            self._file("all", bucket).unlink()
        if self.suspects == living and living and self.check.any_row():
            raise SourceError(
                f"none of the {living:,} keys in {self.topic.name} is in {self.table.qualified}, which has rows",
                means="its rows were read a moment ago: keys look different there and here; nothing was deleted",
                fix=NO_SWEEP,
            )

    def delete(self) -> int:
        """Take in what has come since, compare the suspects again, delete what is a ghost; how many."""
        if not self.suspects:
            return 0
        self._spill("since", _tell_nobody)
        return write_deletes(self.kafka, self.topic.name, self._deletes())

    def _deletes(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Partition, key and event of each ghost, a bucket at a time."""
        now_ms, here = int(time.time() * 1000), read_moment(self.source).wal_lsn
        # After all records were read, and before the table is: of what can be seen now nothing is missed there.
        visible = read_visible(self.check.connection)
        for bucket in range(self.buckets):
            suspects = self._alive([self._file("suspects", bucket)])
            alive = self._alive([self._file("suspects", bucket), self._file("since", bucket)])
            still = {key: alive[key].split(b"\t") for key in suspects if key in alive}
            told = {key: None if by == UNKNOWN else int(by) for key, (*_, by) in still.items()}
            seen = [key for key, by in told.items() if visible.has(by, visible.end)]  # all were read before that
            for key in self.check.absent(seen):
                partition, at, _ = still[key]
                event = ghost_event(self.template, at.decode(), now_ms, here)
                yield int(partition), key, self.encoding.dumps(event, self.like)

    def _spill(self, kind: str, told: Told) -> None:
        """Write a line a record into the file of its key's bucket; from where the last reading ended."""
        self.folder.mkdir(exist_ok=True)
        done = 0
        with ExitStack() as stack:
            files = [stack.enter_context(self._file(kind, bucket).open("wb")) for bucket in range(self.buckets)]
            for partition in range(self.topic.partitions):
                start = self.read.get(partition, OFFSET_BEGINNING)
                for message in records(self.kafka, self.topic.name, partition, start):
                    self.read[partition] = (message.offset() or 0) + 1
                    done += 1
                    if done % 10_000 == 0:
                        told(self.table.qualified, done, self.total)
                    key = message.key()
                    if key is None:
                        continue
                    key = bytes(key)
                    line = b"%d\t%s\t%s\n" % (partition, self._standing(message), key)
                    files[zlib.crc32(key) % self.buckets].write(line)
        told(self.table.qualified, done, done)  # compaction has taken some of those that the offsets count

    def _standing(self, message: Message) -> bytes:
        """Where a living row's record stands, or ``DEAD`` for a delete; and its transaction."""
        value, dead = message.value(), DEAD + b"\t" + UNKNOWN
        if value is None:
            return dead
        try:
            event = self.encoding.loads(value)
            if event["op"] == "d":
                return dead
            self.template, self.like = event["source"], value
            by = transaction_of(event["source"])
            return standing(event["source"]) + b"\t" + (UNKNOWN if by is None else b"%d" % by)
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaError(
                f"record {message.topic()}/{message.partition()}/{message.offset()} is not an event: {error!r}",
                means="it can't be told which rows were deleted",
                fix="look at what writes into this topic; or leave missed deletes alone with --no-sweep",
            ) from error

    def _alive(self, files: Iterable[Path]) -> dict[bytes, bytes]:
        """Key -> partition, standing and transaction of its newest record, of those keys that are not deleted."""
        newest: dict[bytes, bytes] = {}
        for path in files:
            if not path.exists():
                continue
            with path.open("rb") as lines:
                for line in lines:
                    place, at, by, key = line.rstrip(b"\n").split(b"\t", 3)
                    if at == DEAD:
                        newest.pop(key, None)
                    else:
                        newest[key] = b"\t".join((place, at, by))
        return newest

    def _file(self, kind: str, bucket: int) -> Path:
        return self.folder / f"{kind}-{bucket}"


def standing(source: dict[str, Any]) -> bytes:
    """An event's LSN, marked if no commit before it is known: such a position is read in another way. Pure."""
    first = str(source["sequence"] or "[null").startswith("[null")
    return (b"~%d" if first else b"%d") % lsn_of(source)


def ghost_event(source: dict[str, Any], at: str, now_ms: int, here: int) -> dict[str, Any]:
    """A delete as Debezium writes it, at the ghost's own position: the later of two equal ones wins. Pure.

    Args:
        source: of any event of the table.
        at: where the ghost stands, of ``standing``.
        now_ms: the time.
        here: how far the source's log is: cuts of a history that end before keep the row.
    """
    lsn = at.removeprefix("~")
    sequence = f'[null,"{lsn}"]' if at.startswith("~") else f'["{lsn}","{lsn}"]'
    # Of no transaction: which one has deleted it nobody knows, and the template's is a stranger's.
    now = {"ts_ms": now_ms, "txId": None, WRITTEN: here}
    place = {**source, "snapshot": "false", "lsn": int(lsn), "sequence": sequence, **now}
    return {"before": None, "after": None, "source": place, "transaction": None, "op": "d", "ts_ms": now_ms}
