"""Is a difference real? Only those keys are looked at again, when the sink has passed the moment they were seen.

A row may change at any moment, and its change takes a while to the sink. So each round reads the truth of the differing
keys in one snapshot, waits until the sink has applied everything committed before it, reads what the sink holds, and
then reads the truth once more. Where both truths are equal the row stood still all the while, and the sink, which had
passed it, must have held just that: what it held instead is wrong. Where they are not, the row moved, and the next
round decides. So it does where the sink shows a change that was made in between: a key that was inserted again and
deleted again is absent from both truths, though a warehouse whose batch takes half a minute may show it.

A commit is in the log, and so in the sink, before others can see it, and as long as a synchronous standby does not
answer neither truth has it. So of keys that would be called wrong the log is asked for the newest record, where some
transaction was under way: if it is of that one, the row can't be seen yet, and is neither right nor wrong, however far
the sink has come.

Of a view of events of some types, a row whose event lies in the topic of all other types is not missing: it was written
before its type was named, and stays where it is.

Of views that are made of events a moment is an end of the log, and not a snapshot (operations/verify/looks.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.view import View
from connectors.database.visibility import Visible
from operations.holding import Holding
from operations.records.newest import newest_transactions, routed_elsewhere
from operations.verify.buckets import Keys
from operations.verify.comparison import Comparison, kind_of, marked, unmarked
from operations.verify.expired import versions_may_be_gone
from operations.verify.frontier import Frontier
from operations.verify.looks import Look, looking, next_number, visible_now
from truth.digest import DIGEST_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Keys that are looked at together; memory is so many documents of each side.
PAGE = 2_000
# Keys whose newest records are looked for in one reading of the log; of each an id and a number are kept.
LOOKED_FOR = 100_000
# Rows that have changed between two looks in so many rounds are hot: more rounds would not find them still, and under a
# steady writer each view would take all the time that it may.
MOST_ROUNDS = 3
# Between two rounds when the sink's progress can't be seen, or rows keep moving.
PAUSE_SECONDS = 1.0
NOTHING = bytes(DIGEST_BYTES)
# No digest: of a row that has certainly moved.
MOVED = b"\xfe" * DIGEST_BYTES


@dataclass
class Settler:
    """Decides about differing keys of one view of one sink.

    Attributes:
        view: the view.
        holding: what the sink holds.
        frontier: how far it is.
        spark: needed when the view has Spark SQL.
        folder: for files of its own.
        on_pause: called while it waits.
        stays: see ``operations.verify.comparison.kind_of``.
        expires: what is not there may have expired (``operations.verify.expired``).
        seen: what the first of the looks saw by which keys were called different; None of a view that is not the rows
            of one table.
    """

    view: View
    holding: Holding
    frontier: Frontier
    spark: SparkSession | None
    folder: Path
    on_pause: Callable[[], None] = lambda: None
    stays: bool = False
    expires: bool = False
    seen: Visible | None = None
    _files: int = 0

    def settle(self, result: Comparison, keys: Keys, wait: float, undecided: Keys | None = None) -> Keys:
        """Count the differences among these keys anew, as they are in the end.

        Args:
            result: its lists and counts of differences are replaced.
            keys: to be looked at, marked.
            wait: seconds that the sink may take to catch up, and rows to stand still.
            undecided: of a look at those that were certain before: takes the keys that can't be decided now. What the
                result says of undecided ones, which are others, stays, and these come to it.

        Returns:
            the keys that differ, marked with how.
        """
        self.seen = None
        result.forget(differences_only=undecided is not None)
        certain = self._keys()
        unclear = self._keys() if undecided is None else undecided
        deadline = time.monotonic() + wait
        left, alive, rounds = keys, False, 0
        while True:
            caught_up, suspects = self._suspects(left, deadline)
            alive = result.caught_up = alive or caught_up
            same, moved = self._standing_still(suspects)
            rounds += caught_up
            over = time.monotonic() > deadline or rounds >= MOST_ROUNDS
            # Once it was seen to pass a snapshot, what is left are rows that have changed since, and a last round that
            # had no time to wait for it proves nothing against them.
            if caught_up or over:
                same = self._routed_here(same, result)
                _note_all(result, same, certain if caught_up or not alive else None, unclear)
            if not moved.count and caught_up:
                break
            if over:
                _note_all(result, moved, None if alive else certain, unclear)
                break
            left = moved if caught_up else suspects
            self.on_pause()
            time.sleep(PAUSE_SECONDS)
        certain.flush()
        unclear.flush()
        return certain

    def look(self, result: Comparison, count: int, seed: int) -> Keys:
        """Compare a sample once: so many random things of those that must be there, and of those that are.

        Args:
            result: what is filled in.
            count: how many of each.
            seed: of the choice.

        Returns:
            the keys that differ, marked.
        """
        differing = self._keys()
        before = self.holding.within
        with self._looking() as look:
            # What a sink has lost only the other side can name.
            keys = list(dict.fromkeys([*look.sample(count, seed), *self.holding.sample(count, seed)]))
            for start in range(0, len(keys), PAGE):
                page = keys[start : start + PAGE]
                wanted, held = look.truth(page), self._held(page)
                result.expected += len(wanted)
                result.compared += len(held)
                for key in page:
                    kind = kind_of(wanted.get(key), held.get(key), stays=self.stays)
                    if kind is not None:
                        result.note(kind, key)
                        differing.add(marked(kind, key))
        result.within += self.holding.within - before
        differing.flush()
        return differing

    def _suspects(self, keys: Keys, deadline: float) -> tuple[bool, Keys]:
        """Keys that differ when the sink has passed the look's moment, by kind, with the digest that was expected."""
        suspects = self._keys()
        with self._looking() as look:
            caught_up = look.passed(self.frontier, deadline, self.on_pause)
            for page in keys.pages(PAGE):
                names = [unmarked(key)[1] for key in page]
                wanted, held = look.truth(names), self.holding.get(names)
                moved = look.moved()
                # Of a sink that is behind, what is not there may as well be on the way.
                gone = [key for key in names if key in wanted and key not in held] if self.expires and caught_up else []
                expired = self._expired(gone) if gone else set[str]()
                for key in names:
                    found = held.get(key)
                    kind = kind_of(wanted.get(key), found and found.digest, stays=self.stays)
                    if kind is not None:
                        if key in expired or (found is not None and kind == "extra" and look.lost(found.version)):
                            kind = "doubted"
                        certainly = found is not None and moved(found.version)
                        suspects.add(marked(kind, key), MOVED if certainly else wanted.get(key, NOTHING))
        suspects.flush()
        return caught_up, suspects

    def _expired(self, gone: Sequence[str]) -> set[str]:
        return self.holding.expired(gone, unversioned=versions_may_be_gone(self.holding.opened))

    def _standing_still(self, suspects: Keys) -> tuple[Keys, Keys]:
        """Suspects whose truth is what it was, and those whose rows have changed since, or may have."""
        same, moved, visible = self._keys(), self._keys(), None
        if suspects.count:
            visible = visible_now(self.holding, self.view)  # first: what can be seen by now the look sees
            self.seen = self.seen or visible
            with self._looking() as look:
                for page in suspects.pages(PAGE):
                    names = [unmarked(key)[1] for key in page]
                    now, unsure = look.truth(names), look.unsure(names)
                    for key, wanted in page.items():
                        bare = unmarked(key)[1]
                        if now.get(bare, NOTHING) != wanted:
                            moved.add(key)
                        else:
                            same.add(marked("doubted", bare) if bare in unsure else key)
        same.flush()
        if visible is not None and visible.under_way:
            same = self._in_sight(same, moved, visible)
        moved.flush()
        return same, moved

    def _in_sight(self, keys: Keys, moved: Keys, visible: Visible) -> Keys:
        """Those of the keys whose newest record everybody can see; the others go to those that have moved, marked."""
        pipeline, same = self.holding.opened.pipeline, self._keys()
        for page in keys.pages(LOOKED_FOR):
            found = newest_transactions(pipeline, self.view, [unmarked(key)[1] for key in page])
            end = next_number(pipeline)
            for key in page:
                bare = unmarked(key)[1]
                if visible.has(found.get(bare), end):
                    same.add(key)
                else:
                    moved.add(marked("unseen", bare))
        same.flush()
        return same

    def _routed_here(self, keys: Keys, result: Comparison) -> Keys:
        """The keys without those of events that were written before their type had a topic: a view of some types alone
        reads that one, and never another. They were not to be expected."""
        if not keys.count or not self.view.event_types:
            return keys
        kept = self._keys()
        for page in keys.pages(LOOKED_FOR):
            missing = [bare for kind, bare in map(unmarked, page) if kind in ("missing", "doubted")]
            others = routed_elsewhere(self.holding.opened.pipeline, self.view, missing) if missing else set[str]()
            result.expected -= len(others)
            for key in page:
                if unmarked(key)[1] not in others:
                    kept.add(key)
        kept.flush()
        return kept

    @contextmanager
    def _looking(self) -> Iterator[Look]:
        self._files += 1
        with looking(self.holding, self.view, self.spark, self.folder / f"told-{self._files}") as look:
            yield look

    def _held(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        return {key: holds.digest for key, holds in self.holding.get(keys).items()}

    def _keys(self) -> Keys:
        self._files += 1
        return Keys(self.folder / f"keys-{self._files}")


def _note_all(result: Comparison, keys: Keys, certain: Keys | None, unclear: Keys) -> None:
    """Count keys: as real differences, which are handed on, or as rows that would not stand still. Of some nobody can
    tell what they must be, whether the sink was seen to catch up or not."""
    for page in keys.pages(PAGE):
        for key in page:
            kind, bare = unmarked(key)
            if kind in ("doubted", "unseen"):
                result.note(kind, bare)
                unclear.add(key)
                continue
            result.note("moving" if certain is None else kind, bare)
            (unclear if certain is None else certain).add(key)
