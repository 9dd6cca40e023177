"""What upkeep looks at and does, by Iceberg's own procedures; which of it, ``spark.warehouse.upkeep.plan`` says."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Row, SparkSession

from spark.warehouse.commits import loaded
from spark.warehouse.marks import OURS
from spark.warehouse.upkeep.plan import (
    DELETED_SHARE,
    ORPHAN_SECONDS,
    SMALL_BYTES,
    STEP_BYTES,
    STEP_FILES,
    TARGET_BYTES,
    Act,
    Policy,
    Signs,
    Snapshot,
    carried,
    expired,
)

# A property of the table: when files of nobody were last looked for (epoch seconds).
ORPHANS_AT = "headwater.orphans-at"
# Far more than a file may have: none is cut for being large.
_ENDLESS = 1 << 50
_MAIN = "main"
# In a table that is kept never so many wait to be expired.
FAR_TOO_MANY = 5_000
# Before it any snapshot would have to be for Iceberg to expire it by its age: its own default would take marks with it.
_LONG_AGO = "1970-01-02 00:00:00"
_LONG_AGO_MS = 86_400_000


def signs_of(spark: SparkSession, table: Any, *, whole: bool = True) -> Signs:
    """What the metadata of a table says; some calls into Java, each a fraction of a millisecond.

    Args:
        spark: the session.
        table: of ``loaded``.
        whole: with all snapshots, of which there may be hundreds; else with none of them.
    """
    jvm: Any = spark._jvm
    stamped = table.properties().get(ORPHANS_AT)
    orphans_at = float(stamped) if stamped else None
    newest = table.currentSnapshot()
    if newest is None:
        return Signs(orphans_at=orphans_at)
    told = json.loads(jvm.org.apache.iceberg.SnapshotParser.toJson(newest))["summary"]
    metadata = table.operations().current()
    found = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)) if whole else {}
    return Signs(
        files=int(told.get("total-data-files", 0)),
        delete_files=int(told.get("total-delete-files", 0)),
        rows=int(told.get("total-records", 0)),
        deleted=int(told.get("total-position-deletes", 0)),
        manifests=newest.allManifests(table.io()).size(),
        scoped=metadata.formatVersion() >= 3,
        snapshots=_snapshots(found),
        current=newest.snapshotId(),
        held=frozenset(ref["snapshot-id"] for name, ref in found.get("refs", {}).items() if name != _MAIN),
        orphans_at=orphans_at,
    )


def _snapshots(metadata: Mapping[str, Any]) -> tuple[Snapshot, ...]:
    """All of a table's metadata, the oldest first.

    The log of those that were current goes back to the last one that was expired: what is younger, bears our marks and
    is not in it was a step on the way to one, or of a batch that was cut.
    """
    log = metadata.get("snapshot-log", ())
    current, since = {one["snapshot-id"] for one in log}, min((one["timestamp-ms"] for one in log), default=math.inf)
    found = []
    for told in metadata.get("snapshots", ()):
        marks = {name: value for name, value in told.get("summary", {}).items() if name.startswith(OURS)}
        step = bool(marks) and told["timestamp-ms"] > since and told["snapshot-id"] not in current
        found.append(Snapshot(told["snapshot-id"], told["timestamp-ms"] / 1000, marks, seen=not step))
    return tuple(found)


def do(act: Act, spark: SparkSession, table: str, signs: Signs, policy: Policy, now: float) -> str:
    """Do a step.

    Args:
        act: which.
        spark: the session.
        table: ``catalog.namespace.table``, each part quoted.
        signs: what it was judged by, with all snapshots.
        policy: what the pipeline file says.
        now: epoch seconds.

    Returns:
        what was done, in words; nothing if there was nothing to do.

    Raises:
        Exception: as Spark wraps what Iceberg says; the table is as it was, or whole with the step done.
    """
    return _STEPS[act](spark, table, signs, policy, now)


def _call(spark: SparkSession, table: str, procedure: str, *more: str) -> Row:
    catalog, name = table.split(".", 1)
    given = ", ".join((f"table => '{name}'", *more))
    return spark.sql(f"CALL {catalog}.system.{procedure}({given})").collect()[0]


def _options(**options: object) -> str:
    pairs = ", ".join(f"'{name.replace('_', '-')}', '{value}'" for name, value in options.items())
    return f"options => map({pairs})"


def _compact(spark: SparkSession, table: str, *_: Any) -> str:
    """Put small files together, and write those anew of which too much is deleted; a bounded number of both."""
    options = _options(
        min_file_size_bytes=SMALL_BYTES,
        max_file_size_bytes=_ENDLESS,
        target_file_size_bytes=TARGET_BYTES,
        max_file_group_size_bytes=STEP_BYTES,
        max_files_to_rewrite=STEP_FILES,
        max_concurrent_file_group_rewrites=1,
        delete_ratio_threshold=DELETED_SHARE,
    )
    done = _call(spark, table, "rewrite_data_files", options)
    if not done["rewritten_data_files_count"]:
        return ""
    size = done["rewritten_bytes_count"] / (1 << 20)
    return f"{done['rewritten_data_files_count']} data files made {done['added_data_files_count']} ({size:.1f} MiB)"


def _deletes(spark: SparkSession, table: str, *_: Any) -> str:
    """Put position deletes together, and leave out those of files that are gone (format 2)."""
    done = _call(spark, table, "rewrite_position_delete_files", _options(rewrite_all="true"))
    was, made = done["rewritten_delete_files_count"], done["added_delete_files_count"]
    return f"{was} delete files made {made}" if was else ""


def _manifests(spark: SparkSession, table: str, *_: Any) -> str:
    done = _call(spark, table, "rewrite_manifests", "use_caching => false")
    was, made = done["rewritten_manifests_count"], done["added_manifests_count"]
    return f"{was} manifests made {made}" if was else ""


def _expire(spark: SparkSession, table: str, signs: Signs, policy: Policy, now: float) -> str:
    gone = sorted(expired(signs, policy, now))
    if not gone:
        return ""
    # Named one by one, and none by its age.
    ids = f"snapshot_ids => array({', '.join(f'{one}L' for one in gone)})"
    done = _call(spark, table, "expire_snapshots", f"older_than => TIMESTAMP '{_LONG_AGO}'", ids)
    return f"{len(gone)} snapshots expired, {sum(done.asDict().values())} files deleted"


def shorten(spark: SparkSession, table: str, policy: Policy, now: float) -> int:
    """Expire what has gathered while nobody kept a table: snapshots by the thousand, whose files the usual step would
    compare for an hour. They are taken from the list alone, and the look for files of nobody finds theirs.

    They are those that the usual step would expire. By age Iceberg would take more: of a table that was kept it finds
    gaps in the line of snapshots, and takes all behind the first one for nobody's.

    Args:
        spark: the session.
        table: ``catalog.namespace.table``, each part quoted; of one query alone.
        policy: what the pipeline file says.
        now: epoch seconds.

    Returns:
        how many have gone.
    """
    opened = loaded(spark, table)
    if not policy.on or opened.operations().current().snapshots().size() <= FAR_TOO_MANY:
        return 0  # all that stay may be more, and are read then
    gone = sorted(expired(signs_of(spark, opened), policy, now))
    if len(gone) <= FAR_TOO_MANY:
        return 0
    expiry = opened.expireSnapshots().expireOlderThan(_LONG_AGO_MS)
    for one in gone:
        expiry = expiry.expireSnapshotId(one)
    expiry.cleanExpiredFiles(False).commit()
    return len(gone)


def _carry(spark: SparkSession, table: str, signs: Signs, policy: Policy, now: float) -> str:
    old = carried(signs, policy, now)
    if old is None:
        return ""
    commit = loaded(spark, table).newFastAppend()
    for name, value in old.marks.items():
        commit = commit.set(name, value)
    commit.commit()
    return "marks of an old snapshot carried on"


def _stamp(spark: SparkSession, table: str, _signs: Signs, _policy: Policy, now: float) -> str:
    loaded(spark, table).updateProperties().set(ORPHANS_AT, f"{now:.0f}").commit()
    return ""


def _orphans(spark: SparkSession, table: str, signs: Signs, policy: Policy, now: float) -> str:
    """Remove files in the table's folder that nobody names, unless another table lives in that folder, too."""
    opened = loaded(spark, table)
    if others_in(spark, opened):
        _stamp(spark, table, signs, policy, now)
        return "files of nobody are not looked for: another table has its files in the same folder"
    # By the machine's own clock: files have no other.
    until = f"older_than => timestamp_seconds({time.time() - ORPHAN_SECONDS:.0f})"
    catalog, name = table.split(".", 1)
    given = f"table => '{name}', {until}, prefix_listing => true"
    done = spark.sql(f"CALL {catalog}.system.remove_orphan_files({given})").collect()
    _stamp(spark, table, signs, policy, now)
    return f"{len(done)} files of nobody removed"


def others_in(spark: SparkSession, table: Any) -> bool:
    """Whether the table's folder holds another table's metadata.

    A promotion changes names and not folders, so that a new table may be given the folder of a living one; and two
    catalogues may have one warehouse.

    Args:
        spark: the session.
        table: of ``loaded``.
    """
    jvm: Any = spark._jvm
    metadata, files = table.operations().current(), table.io()
    listed = files.listPrefix(f"{table.location()}/metadata").iterator()
    while listed.hasNext():
        place = listed.next().location()
        if ".metadata.json" in place:
            found = jvm.org.apache.iceberg.TableMetadataParser.read(files, place)
            if found.uuid() != metadata.uuid():
                return True
    return False


_Step = Callable[[SparkSession, str, Signs, Policy, float], str]
_STEPS: Mapping[Act, _Step] = {
    Act.STAMP: _stamp,
    Act.ORPHANS: _orphans,
    Act.CARRY: _carry,
    Act.EXPIRE: _expire,
    Act.DELETES: _deletes,
    Act.MANIFESTS: _manifests,
    Act.COMPACT: _compact,
}
