"""Keeps a warehouse's tables quick to read: small files, deleted rows, manifests, old snapshots, files of nobody.

Called in the writer's own turn, after a commit, so that nothing of ours is ever in its own way; one step at a time, so
that the next batch waits for no more than that. What somebody else's commit comes between is dropped and done later:
the table is right without it. ``spark.warehouse.upkeep.plan`` judges what is due.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc.errors import DiskFull, HeadwaterError
from spark.disk.files import write_somehow
from spark.failures import explain
from spark.warehouse.brief import shortened
from spark.warehouse.commits import loaded
from spark.warehouse.upkeep.plan import Act, Memory, Policy, due, policy_of
from spark.warehouse.upkeep.steps import do, signs_of

__all__ = ["Policy", "Upkeep", "insisting", "is_conflict", "plain", "policy_of", "read_note"]

_log = logging.getLogger(__name__)

# What a generation's tables have cost so far, in its folder.
NOTE = "maintenance.json"
_GENERATION = re.compile(r"__g\d+$")


class Upkeep:
    """Maintains tables of one sink; for one thread at a time, the one that writes to them.

    Args:
        policy: what the pipeline file says.
        folder: the generation's, where ``NOTE`` is kept; None to keep none.
        clock: epoch seconds.
    """

    def __init__(self, policy: Policy, folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._policy, self._folder, self._clock = policy, folder, clock
        self._tables: dict[str, Memory] = {}

    def after(self, spark: SparkSession, table: str, *, loading: bool = False) -> list[str]:
        """Do what is most due to a table, if anything is; cheap where nothing is (some milliseconds).

        It never fails: what can't be done is told in the log, and tried again later.

        Args:
            spark: the session that has just committed to the table.
            table: ``catalog.namespace.table``, each part quoted.
            loading: whether more is waiting than a batch holds; see ``due``.

        Returns:
            what was done, in words; mostly nothing.
        """
        if not self._policy.on:
            return []
        memory, act, began = self._tables.setdefault(table, Memory()), None, time.monotonic()
        try:
            opened, now = loaded(spark, table), self._clock()
            # Not while it rests: nothing would come of it, and the next look only after many more.
            whole = memory.rested(now) and memory.looks(opened.operations().current().snapshots().size(), now)
            signs = signs_of(spark, opened, whole=whole)
            act = due(signs, memory, self._policy, now, loading=loading)
            if act is None:
                return []
            said = do(act, spark, table, signs, self._policy, now)
            took = time.monotonic() - began
            left = signs_of(spark, loaded(spark, table), whole=False)
            memory.did(act, left, self._clock(), took, something=bool(said))
        except Exception as error:  # Spark wraps what Java says in many types; none of it is the batch's business
            self._failed(table, memory, act, shortened(str(error)))
            return []
        if not said:
            return []
        self._note(table, act, took)
        _log.info("upkeep of %s: %s (%.1f s)", plain(table), said, took, extra={"seconds": round(took, 3)})
        return [said]

    def _failed(self, table: str, memory: Memory, act: Act | None, text: str) -> None:
        level = logging.INFO if is_conflict(text) else logging.WARNING
        what = f"step `{act}`" if act else "the look at it"
        _log.log(level, "upkeep of %s: %s was put off: %s", plain(table), what, explain(text))
        memory.failed(act or Act.STAMP, self._clock())
        self._note(table, act or Act.STAMP, 0.0, failed=explain(text))

    def _note(self, table: str, act: Act, seconds: float, failed: str | None = None) -> None:
        if self._folder is None or (act is Act.STAMP and failed is None):
            return
        name = _GENERATION.sub("", plain(table).rsplit(".", 1)[-1])
        noted = read_note(self._folder)  # flows of other tables write there, too, each in its turn
        one = noted.setdefault(name, {"steps": {}, "seconds": 0.0, "failed": 0})
        if failed is None:
            one["steps"][act.value] = one["steps"].get(act.value, 0) + 1
            one["seconds"] = round(one["seconds"] + seconds, 3)
            one["last"] = act.value
        else:
            one["failed"] += 1
        one["error"], one["at"] = failed, self._clock()
        try:
            write_somehow(self._folder / NOTE, json.dumps(noted))
        except (OSError, DiskFull) as error:
            _log.debug("what upkeep has cost could not be noted: %s", error)


def read_note(folder: Path) -> dict[str, dict[str, Any]]:
    """What upkeep has done in a generation's folder, by view: ``steps`` (kind -> how often), ``seconds``, ``failed``
    (how often a step was put off), ``error`` (why, if the newest was), ``last`` and ``at`` (epoch seconds)."""
    try:
        found = json.loads((folder / NOTE).read_text())
        return found if isinstance(found, dict) else {}
    except (FileNotFoundError, ValueError):
        return {}


def plain(table: str) -> str:
    """``namespace.table`` of a quoted name with its catalogue."""
    return table.replace("`", "").split(".", 1)[1]


_CONFLICT = re.compile(r"CommitFailedException|ValidationException|SQLITE_BUSY|Cannot fast-forward")
# How often a commit is begun anew that somebody else's has come between; then the flow starts again.
TRIES = 5


def is_conflict(text: str) -> bool:
    """Whether an error tells that somebody else has committed to the table in between."""
    return bool(_CONFLICT.search(text))


def insisting(commit: Callable[[], None]) -> None:
    """Commit, and again if somebody else's commit has come between: nothing of a commit that fails is there.

    Args:
        commit: looks at the table as it is now, and whether it has been done, each time it is called.

    Raises:
        Exception: what ``commit`` raises that is no conflict, or is one for the fifth time in a row.
    """
    for left in reversed(range(TRIES)):
        try:
            commit()
            return
        except Exception as error:  # Spark wraps what Java says in many types
            if not left or isinstance(error, HeadwaterError) or not is_conflict(str(error)):
                raise
            _log.info("somebody else has committed in between, so it is done again: %s", explain(str(error)))
