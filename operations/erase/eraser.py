"""Erases a row: looks where it still is, removes it there, looks again, and says all of that as data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cdc.errors import Behind, RowInSource, StateError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from cdc.saying import Say
from connectors.database.history import read_moment
from connectors.marker_watch import read_snapshot_lsn
from connectors.postgres import connect
from connectors.topics import FOR_EVER
from operations.as_of.frontier import FrontierWatch
from operations.erase import servers
from operations.erase.compaction import LAG, compact, settings_of
from operations.erase.left import left_places
from operations.erase.letters import Letters
from operations.erase.log import InLog, row_in_log, still_there
from operations.erase.note import TOPICS, Note
from operations.erase.places import Place, settled
from operations.erase.readers import Build, await_readers, behind, builds_of
from operations.erase.subject import Subject
from operations.erase.tables import Held, tables_of
from operations.erase.warehouse import (
    end_untold,
    erase_tables,
    go_on,
    refuse_paused_before,
    refuse_paused_since,
    refuse_tags,
)
from operations.state.catalogue import source_catalogue
from operations.state.folder import refuse_not_begun
from sinks.elasticsearch.expunge import Marks
from spark.disk.files import write_atomic

# For a topic's compaction; for an index's merges and a server's files, each, so long without any progress.
SERVER_SECONDS = 600.0

# What Headwater does not reach, for whoever has to.
NOT_OURS = (
    "Postgres: its WAL until that is recycled, its archive, its backups and its replicas' files",
    "copies of Kafka's, Redis's and Elasticsearch's disks; mirrors of topics; what other consumers have read",
    "topics into which matches of standing queries are written, also those that the file names no more, and what "
    "subscribers and receivers of webhooks keep: whole documents are in them",
    "copies of a topic's partitions on other brokers, which compact by themselves, each in its own time",
    "files of Redis's replicas; a dump or log in a Redis's folder that its present settings do not tell of",
    "files of a warehouse that no snapshot names (of a job that was killed): upkeep removes them after three days, "
    "but for those in a folder that two tables share",
    "older versions of objects, in a bucket that keeps them (versioning, object lock, replication)",
    "indices, caches, tables and dead letters of a sink that the file names no more and whose state is not here",
    "tables that were dropped before, of a retired generation say: a REST catalogue purges their files in its own time",
    "rows of other tables that tell of the same person, and an earlier primary key of this row: erase them as well",
    "logs of applications; Headwater's own name keys where something was refused, and no values",
)

# Of a generation that was begun while an erasure worked, and lags.
BEGUN = "it was begun meanwhile; what the topic held is erased, and changes that caches keep; nothing else was"


@dataclass(frozen=True)
class Options:
    """What is wanted.

    Attributes:
        act: erase; else only look.
        move_tags: lead tags of the warehouse that keep the row to tables without it; else they are refused.
        wait: for the delete to come everywhere, in seconds.
        name_key: the certificate names the key itself.
    """

    act: bool = False
    move_tags: bool = False
    wait: float = 60.0
    name_key: bool = False


@dataclass
class _Look:
    """All that was found."""

    log: InLog
    letters: InLog
    held: list[Held]
    others: list[Place]

    def places(self, letters: Letters) -> list[Place]:
        topics = [_topic("topic", self.log), _topic("letters", self.letters)]
        return [*topics, *(one.place for one in self.held), *self.others, *servers.copies(letters.builds)]


@dataclass
class Eraser:
    """One row's.

    Args:
        subject: the row.
        options: what is wanted.
    """

    subject: Subject
    options: Options
    began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._kafka, self._note = Kafka(self.subject.pipeline), Note(self.subject.pipeline)

    def run(self) -> dict[str, Any]:
        """Look, and erase if that is wanted; the certificate.

        Raises:
            RowInSource, TagsHold, Behind, BeyondFrontier, StateError: refused (StateError also while another erasure of
                the pipeline is at work); nothing was erased, but if it was for a tag that was set meanwhile: then some
                places are done, and the message says so.
            EraseUnfinished: a server has not let go in time, or somebody has paused a sink meanwhile; the same again
                goes on (transient).
            HeadwaterError: a server does not answer, or refuses; the same again goes on.
        """
        if self.options.act:
            with self._note.alone():
                return self._act()
        builds = builds_of(self.subject)
        letters = Letters(self.subject, builds)
        refused, waits = self._why_not(builds)
        return self._told(self._look(letters).places(letters), refused, waits)

    def _act(self) -> dict[str, Any]:
        go_on(self.subject.pipeline)
        builds = builds_of(self.subject)
        letters = Letters(self.subject, builds)
        self._refuse_versions()  # of a topic that was made anew, before what the former one had is put back
        self._note.put_back(TOPICS, self._kafka.alter)
        servers.put_back_indices(builds, self._note)
        self._refuse_versions()
        self.subject.refuse_present()
        refuse_paused_before(self.subject, builds)
        self._await_delete(builds)
        look = self._look(letters)
        refuse_tags(look.held, move=self.options.move_tags)
        before = look.places(letters)
        after = self._erase(letters, builds, look)
        self._refuse_return()
        end_untold(self.subject, after)
        return self._told(settled(before, after), [], [])

    def _look(self, letters: Letters) -> _Look:
        subject = self.subject
        return _Look(
            row_in_log(subject, self._kafka),
            letters.look(self._kafka),
            tables_of(subject, letters.builds),
            [*servers.look(subject, letters.builds), *left_places(subject)],
        )

    def _why_not(self, builds: Sequence[Build]) -> tuple[list[str], list[str]]:
        """What an erasure would be refused for now; and whom it would wait for."""
        refused = []
        try:
            self.subject.refuse_present()
        except RowInSource as error:
            refused.append(f"{error.what}: {error.fix}")
        late = behind(self.subject, builds, self._ends())
        refused += [f"{one.who}: {one.fix}" for one in late if not one.coming]
        return refused, [one.who for one in late if one.coming]

    def _refuse_versions(self) -> None:
        """Refuse a topic that keeps all versions, whatever this file says: another one may have been applied since it
        was read, or this one not yet."""
        if settings_of(self._kafka, self.subject.topic, [LAG])[LAG] == FOR_EVER:
            raise StateError(
                f"topic {self.subject.topic} keeps all versions of its rows, and the file names no view that shows "
                "them (`as_of`)",
                means="nothing was erased: to compact it would forget what all other rows were",
                fix="if the file is the newest one, `headwater retire` the generations that show them, then "
                "`headwater apply FILE`; docs/as-of-joins.md#erasing says the rest",
            )

    def _ends(self) -> dict[str, dict[int, int]]:
        topic = self.subject.topic
        described = self._kafka.describe([topic])
        if topic not in described:
            return {topic: {}}
        return self._kafka.ends({topic: described[topic].partitions}, written=True)

    def _await_delete(self, builds: Sequence[Build]) -> None:
        """Wait until the log has all that was committed by now, the delete too, and until everybody has read that."""
        subject, until = self.subject, time.monotonic() + self.options.wait
        with connect(subject.pipeline.source) as connection:
            now = read_moment(connection).wal_lsn
            watch = FrontierWatch(
                subject.pipeline, connection, (), Path(), read_snapshot_lsn(subject.pipeline), whole=False
            )
            watch.wait(lambda one: one.after >= now, "the delete", self.options.wait, subject.say)
        if not row_in_log(subject, self._kafka).deleted:
            raise Behind(
                f"the log does not end with the row's delete: topic {subject.topic}",
                means="its newest record would stay, and the row with it; nothing was erased",
                fix=f"`headwater resnapshot FILE {subject.name}` finds deletes that were missed; then run this again",
            )
        await_readers(subject, builds, self._ends(), max(1.0, until - time.monotonic()))

    def _erase(self, letters: Letters, builds: Sequence[Build], look: _Look) -> list[Place]:
        kafka, known = self._kafka, builds
        marks = self._prepare(known)
        self._compact(look.log, lambda: await_readers(self.subject, known, self._ends(), self.options.wait))
        in_letters = look.letters
        builds, begun = self._builds_now(known)
        subject = self.subject
        if begun:
            marks |= self._prepare(begun)
            letters = Letters(subject, builds)
            in_letters = letters.look(kafka)
        letters.supersede()
        self._compact(in_letters, lambda: None)
        found = erase_tables(subject, builds, move_tags=self.options.move_tags)
        refuse_paused_since(subject, _sinks(builds))
        found += servers.erase_indices(subject, builds, self._note, marks, SERVER_SECONDS)
        servers.erase_marks(subject, builds)
        found += servers.erase_files(subject, builds, SERVER_SECONDS)
        found += servers.look_again(subject, builds)
        found += servers.copies(builds)
        found += left_places(subject)
        return [_topic("topic", row_in_log(subject, kafka)), _topic("letters", letters.look(kafka)), *found]

    def _prepare(self, builds: Sequence[Build]) -> dict[str, Marks]:
        """What is written to servers before the rest: not to a sink that somebody has paused while that was waited for.

        Raises:
            EraseUnfinished: somebody has (transient).
        """
        refuse_paused_since(self.subject, _sinks(builds))
        servers.erase_changes(builds)
        return servers.mark_indices(self.subject, builds)

    def _builds_now(self, known: Sequence[Build]) -> tuple[list[Build], list[Build]]:
        """Every generation that there is once the log has the row no more, and those that have begun meanwhile.

        They may have read the row before that, as a rule from the log's beginning. Whoever begins from now on can't.
        """
        # One may be of a table that was altered meanwhile: that is why `run` begins them by itself.
        self.subject = replace(self.subject, catalogue=source_catalogue(self.subject.pipeline))
        builds, names = builds_of(self.subject), {build.name for build in known}
        begun = [build for build in builds if build.name not in names]
        if begun:
            self.subject.say(f"{begun[0].name} was begun meanwhile: it has to read the delete, and is erased as well")
            await_readers(self.subject, begun, self._ends(), self.options.wait, so=BEGUN)
        return builds, begun

    def _compact(self, found: InLog, closed: Callable[[], None]) -> None:
        if found.count:
            self.subject.say(f"topic {found.topic}: closing its segments and having them compacted")
            keys = {part: found.keys[part] for part in found.values}
            left = partial(still_there, self._kafka, found)
            compact(self._kafka, self._note, found.topic, keys, left, closed, self.subject.say, SERVER_SECONDS)

    def _refuse_return(self) -> None:
        try:
            self.subject.refuse_present()
        except RowInSource as error:
            raise RowInSource(
                f"the row of {self.subject.name} has come back to the source meanwhile",
                means="what there was of it before is erased; what has come since is on its way to every sink",
                fix="DELETE it again, then run this again",
            ) from error

    # -- what is said --------------------------------------------------------------------------------------------------

    def _told(self, places: Sequence[Place], refused: Sequence[str], waits: Sequence[str]) -> dict[str, Any]:
        subject, act = self.subject, self.options.act
        return {
            "pipeline": subject.pipeline.name,
            "table": subject.name,
            "key": subject.key if self.options.name_key else None,
            "key_sha256": subject.digest,
            "began": self.began,
            "ended": time.time(),
            "erased": act and all(place.empty for place in places),
            "found": sum(place.found for place in places if place.kind != "backup"),
            "places": [place.to_dict() for place in places],
            "refused": list(refused),
            "waits": list(waits),
            "stays": self._stays(),
            "not_ours": list(NOT_OURS),
        }

    def _stays(self) -> list[str]:
        """What is kept on purpose: the key, and no value."""
        kafka = self.subject.pipeline.kafka
        hours = kafka.tombstone_retention_hours
        return [
            f"the key, in the log: its tombstone stays for {hours:g} h after compaction has met it (at least until "
            f"{_moment(time.time() + hours * 3600)}), so that a sink that is away hears of the delete",
            "the key and a version in fences of Elasticsearch and Redis (fence_seconds), and in the row store's marks "
            f"({hours:g} h), so that a late write does not bring the row back",
        ]


def _sinks(builds: Sequence[Build]) -> list[str]:
    return sorted({build.opened.sink for build in builds})


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _topic(kind: Any, found: InLog) -> Place:
    words = f"{found.count} records with values" if found.count else ""
    return Place(kind, found.topic, found=found.count, words=words)


def erase(pipeline: Pipeline, table: str, key: str, options: Options, say: Say) -> dict[str, Any]:
    """Say where a deleted row still is, and erase it there if that is wanted; the shape of ``headwater erase --json``.

    Args:
        pipeline: the loaded file.
        table: ``schema.table``, or its name alone where only one schema has it.
        key: the row's primary key, of several columns with ``|`` between.
        options: what is wanted.
        say: told a line when something takes a while.

    Raises:
        ConfigError: no such table, or no such key can be (terminal).
        StateError: the state folder knows of no build that could hold the row (terminal).
        HeadwaterError: as ``Eraser.run``.
    """
    refuse_not_begun(pipeline, "which sinks hold the row is known where the pipeline's state is; nothing was looked at")
    return Eraser(Subject.of(pipeline, table, key, say), options).run()


def write_certificate(path: Path, report: dict[str, Any]) -> None:
    """Keep a certificate.

    Raises:
        DiskFull, OSError: it could not be written.
    """
    write_atomic(path, json.dumps(report, indent=2, sort_keys=True) + "\n")
