"""What is to be done about a table of a warehouse, by its metadata. Pure; ``spark.warehouse.upkeep.upkeep`` looks and
does.

A table that is merged into every few seconds gains a small file or two with each merge, deleted rows,
a manifest, and a snapshot. Left alone, a read opens ten thousand files. The figures below say how much of that a reader
is to bear; where they come from is in docs/decisions/warehouse-maintenance.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark.warehouse.marks import QUERY

MIB = 1 << 20
HOUR, DAY = 3600.0, 86_400.0

# A file below this is small: it is put together with others. One above is only rewritten for what is deleted in it.
SMALL_BYTES = 32 * MIB
# What files are made to, and how much one step rewrites at most: the next merge waits for it.
TARGET_BYTES, STEP_BYTES, STEP_FILES = 128 * MIB, 256 * MIB, 500
# So many files more than after the last time, and they are put together.
MANY_FILES = 8
# Share of a file's rows that may be deleted, and still be read and left out by every reader.
DELETED_SHARE = 0.1
# Planning a scan opens every manifest.
MANY_MANIFESTS = 30
# Whoever has begun to read a snapshot while it was the current one has so long to end; of older ones the newest of each
# hour is kept.
YOUNG_SECONDS = HOUR
# Each commit writes the list of all snapshots anew, a kilobyte for each, and each reader reads it, with one thread:
# after half an hour of a merge every 0.9 s these were 5 MB, and DuckDB took 0.30 s in place of 0.17; of 600 it takes 13
# of 100 ms, of 1,300 it takes 20. So of a table that changes so quickly only so many are kept whole. Each merge passes
# over the keys of the table, so a question is over long before so many merges are.
MANY_YOUNG, LEAST_YOUNG_SECONDS = 200, 120.0
# Expiring costs a second or two, however many snapshots go; with a third of them the list is no longer for it.
MANY_EXPIRED, EXPIRED_SHARE = 100, 1 / 3
# A file that no snapshot names may be of a commit that is under way: only after so long is it nobody's.
ORPHAN_SECONDS, ORPHANS_EVERY = 3 * DAY, DAY
# After a step of a second, so many seconds none, unless the debt is grave: a fifth of the time at most.
REST, GRAVE = 4.0, 8
# After a rare one only as long as it took: a look for orphans on a busy machine (39 s) is one of a day, and with four
# times its length behind it, so many small files gathered meanwhile that readers waited a third longer.
RARE_REST = 1.0
# Snapshots are looked at when there are half as many more as would be expired at once, or after so long.
LOOK_SECONDS = 600.0
# What has failed is tried again after a minute, and each time it fails twice as late.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, HOUR

# Of a query whose marks nobody asks for: what fan-outs have deferred, under another id each time that a lease is taken.
LATER = "later-"


class Act(StrEnum):
    """What can be done; each is one procedure of Iceberg's, or one commit."""

    STAMP = "stamp"
    ORPHANS = "orphans"
    CARRY = "carry"
    EXPIRE = "expire"
    DELETES = "deletes"
    MANIFESTS = "manifests"
    COMPACT = "compact"


# Each is done with for an hour or longer.
RARE = frozenset({Act.ORPHANS, Act.EXPIRE})


@dataclass(frozen=True)
class Policy:
    """What the pipeline file says.

    Attributes:
        on: whether anything is done at all.
        snapshot_days: how far back a table can be read, in days.
    """

    on: bool = True
    snapshot_days: float = 1.0


def policy_of(sink: Any) -> Policy:
    """The policy of a sink of the pipeline file, or of anything with its ``maintenance`` and ``snapshot_days``."""
    usual = Policy()
    days = getattr(sink, "snapshot_days", usual.snapshot_days)
    return Policy(bool(getattr(sink, "maintenance", usual.on)), float(days))


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a table.

    Attributes:
        id: Iceberg's number.
        at: when it was committed, in epoch seconds.
        marks: what its summary says under names that begin with ``marks.OURS``.
        seen: whether it was the current one once, or nobody can say: false of a step of ours on a branch.
    """

    id: int
    at: float
    marks: Mapping[str, str] = field(default_factory=dict)
    seen: bool = True


@dataclass(frozen=True)
class Signs:
    """What a table's metadata says, without a look into its manifests.

    Attributes:
        files, delete_files: how many the newest snapshot has; deletion vectors count one each.
        rows: in its data files, deleted ones among them.
        deleted: of these, what its delete files take away; those of files that are gone may be among them (format 2).
        manifests: how many a scan opens.
        scoped: each delete vanishes with its data file (format 3).
        snapshots: all, the oldest first; none where they were not looked at.
        current: the newest one's id; None of a table that was never written to.
        held: ids that a tag or a branch names.
        orphans_at: when orphans were last looked for (epoch seconds); None when never.
    """

    files: int = 0
    delete_files: int = 0
    rows: int = 0
    deleted: int = 0
    manifests: int = 0
    scoped: bool = False
    snapshots: Sequence[Snapshot] = ()
    current: int | None = None
    held: frozenset[int] = frozenset()
    orphans_at: float | None = None


@dataclass
class Memory:
    """What this process remembers of a table; one that has just started knows nothing, and looks once more.

    Attributes:
        files, deletes, manifests: how many were left after they were last put together.
        deleted: how many deleted rows there were when nothing was found to be done about them.
        rests_until: when the next costly step may be begun (epoch seconds).
        snapshots, looked: how many snapshots there were when they were last looked at; and when that was.
        paused: until when what has failed is left alone; and for how long that was.
    """

    files: int = 0
    deletes: int = 0
    manifests: int = 0
    deleted: int = 0
    rests_until: float = 0.0
    snapshots: int = 0
    looked: float = 0.0
    paused: dict[Act, tuple[float, float]] = field(default_factory=dict)

    def looks(self, snapshots: int, now: float) -> bool:
        """Whether the snapshots, of which there are so many, are to be looked at now."""
        self.snapshots = min(self.snapshots, snapshots)  # once some were expired it is from what is left that they grow
        if snapshots < self.snapshots + MANY_EXPIRED // 2 and now - self.looked < LOOK_SECONDS:
            return False
        self.snapshots, self.looked = snapshots, now
        return True

    def rested(self, now: float) -> bool:
        """Whether a costly step may be begun again."""
        return now >= self.rests_until

    def did(self, act: Act, signs: Signs, now: float, seconds: float, *, something: bool) -> None:
        """Note a step that was done.

        Args:
            act: which.
            signs: the table as it is now.
            now: epoch seconds.
            seconds: what it took.
            something: whether there was anything to do; if not, the same is not tried again before there is more.
        """
        if act is Act.COMPACT:
            self.files = signs.files
            self.deleted = 0 if something else signs.deleted
        if act is Act.DELETES:
            self.deletes, self.deleted = signs.delete_files, 0
        if act is Act.MANIFESTS:
            self.manifests = signs.manifests
        # Another step may have left fewer: compaction takes manifests and delete files with it.
        self.manifests, self.deletes = min(self.manifests, signs.manifests), min(self.deletes, signs.delete_files)
        self.rests_until = now + seconds * (RARE_REST if act in RARE else REST)
        self.paused.pop(act, None)

    def failed(self, act: Act, now: float) -> None:
        """Note a step that has failed."""
        pause = min(self.paused.get(act, (0.0, FIRST_PAUSE / 2))[1] * 2, LONGEST_PAUSE)
        self.paused[act] = (now + pause, pause)


def due(signs: Signs, memory: Memory, policy: Policy, now: float, *, loading: bool = False) -> Act | None:
    """The one step that is to be done now; None if nothing is worth it.

    The rare ones first: each is done with for long, so that they never keep the others waiting.

    Args:
        signs: the table's.
        memory: what is remembered of it.
        policy: what the pipeline file says.
        now: epoch seconds.
        loading: more is waiting than a batch holds. Each batch brings a few files, and what is put together now is put
            together again with the next ones: only when the debt is grave.
    """
    if not policy.on or signs.current is None:
        return None
    wanted = [
        act for act in _wanted(signs, memory, policy, now, loading) if memory.paused.get(act, (0.0, 0.0))[0] <= now
    ]
    if not memory.rested(now) and not _grave(signs, memory):
        wanted = [act for act in wanted if act is Act.STAMP]
    return wanted[0] if wanted else None


def _wanted(signs: Signs, memory: Memory, policy: Policy, now: float, loading: bool) -> Iterable[Act]:
    if signs.orphans_at is None:
        yield Act.STAMP  # a day from now: a table that has just been made has none
    elif now - signs.orphans_at >= ORPHANS_EVERY:
        yield Act.ORPHANS
    gone = expired(signs, policy, now)
    overdue = any(now - ended >= _oldest(policy) + HOUR for one, ended in _with_ends(signs) if one.id in gone)
    if len(gone) >= max(MANY_EXPIRED, EXPIRED_SHARE * len(signs.snapshots)) or overdue:
        yield Act.EXPIRE
    if carried(signs, policy, now):
        yield Act.CARRY
    if not signs.scoped and signs.delete_files >= memory.deletes + MANY_FILES:
        yield Act.DELETES
    if signs.manifests >= memory.manifests + MANY_MANIFESTS:
        yield Act.MANIFESTS
    many = signs.files >= memory.files + MANY_FILES and (not loading or _grave(signs, memory))
    if many or too_many_deleted(signs, memory):
        yield Act.COMPACT


def _grave(signs: Signs, memory: Memory) -> bool:
    return signs.files >= memory.files + GRAVE * MANY_FILES


def too_many_deleted(signs: Signs, memory: Memory) -> bool:
    """Whether, over all files, more rows are deleted than a reader is to skip: then some file has so many."""
    return signs.deleted > 0 and signs.deleted >= DELETED_SHARE * signs.rows and signs.deleted > 1.1 * memory.deleted


def _oldest(policy: Policy) -> float:
    """How long ago a snapshot must have been followed by another, in seconds, to be kept for nobody's sake."""
    return max(policy.snapshot_days * DAY, YOUNG_SECONDS)


def expired(signs: Signs, policy: Policy, now: float) -> frozenset[int]:
    """Ids of the snapshots that nobody is to miss.

    Kept are the current one, what a tag or a branch names, the newest marked one of each query (by which a batch that
    is done again is recognised), all that were current a short time ago, and the newest of each hour until
    ``policy.snapshot_days``. How old one is counts from when another took its place.
    """
    kept = {signs.current, *signs.held, *_newest_marked(signs).values()}
    hours: dict[int, int] = {}
    ends = list(_with_ends(signs))
    young = YOUNG_SECONDS
    if len(ends) > MANY_YOUNG:
        young = min(young, max(now - ends[-MANY_YOUNG][1], LEAST_YOUNG_SECONDS))
    for one, ended in ends:
        if now - ended < young:
            kept.add(one.id)
        elif now - ended < _oldest(policy):
            hours[int(one.at // HOUR)] = one.id  # a later one takes the place of an earlier one
    kept.update(hours.values())
    return frozenset(one.id for one in signs.snapshots) - kept


def _with_ends(signs: Signs) -> Iterable[tuple[Snapshot, float]]:
    """Each snapshot that was current, and when the next such one was committed; the last one's own time."""
    seen = [one for one in signs.snapshots if one.seen]
    following = [one.at for one in seen[1:]] + [one.at for one in seen[-1:]]
    return zip(seen, following, strict=True)


def _newest_marked(signs: Signs) -> dict[str, int]:
    """Query id -> its newest snapshot; what was never current tells of no batch that is done."""
    marked = ((one.marks.get(QUERY, LATER), one.id) for one in signs.snapshots if one.seen)
    return {query: number for query, number in marked if not query.startswith(LATER)}


def carried(signs: Signs, policy: Policy, now: float) -> Snapshot | None:
    """A snapshot that is kept for nothing but its marks, and is older than snapshots may be.

    It holds on to files of a past that is to be forgotten; so its marks go on to a new snapshot of what is there now.
    """
    marked = set(_newest_marked(signs).values()) - {signs.current} - signs.held
    old = [one for one, ended in _with_ends(signs) if now - ended >= _oldest(policy)]
    return next((one for one in old if one.id in marked), None)
