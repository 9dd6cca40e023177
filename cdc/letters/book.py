"""Which dead letters stand, as their topic tells it. Pure.

A letter goes when somebody clears it: a tombstone under its key, which says through which of the topic's offsets it
means (``through``). A letter that came between the look and the tombstone lies beyond that: it stands, although its
key's newest record is a tombstone. Compaction would lose it after a while, so whoever meets one writes it again. So it
is with a letter behind which one of an older version came, of a job that was slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cdc.errors import DecodeError
from cdc.letters.deadletter import DeadLetter

# Of a reason, for lists; the whole is in the topic.
REASON_CHARS = 1_000
# Of letters that are not remembered, so many for each that is are counted: by a hash of its key and an offset, some 150
# bytes each, and without an end the letters of a sink that refuses everything would take up all memory.
COUNTED = 10

# A sink and one of its generations; None in letters of before that was told.
Build = tuple[str, int | None]


class Logged(NamedTuple):
    """A letter and its offset in the letters' topic; its document is left out."""

    letter: DeadLetter
    at: int


@dataclass
class Book:
    """Letters by their record keys.

    Attributes:
        most: letters that are remembered at the most: beyond that they are only counted, ten times as many.
        standing: those that stand.
        covered: keys of letters that stand behind a tombstone that did not mean them, or an older version's letter.
        beyond_from: the offset of the first letter that was not remembered; None if all were.
        uncounted: builds of which letters came that were not even counted.
    """

    most: int | None = None
    standing: dict[bytes, Logged] = field(default_factory=dict)
    covered: set[bytes] = field(default_factory=set)
    beyond_from: int | None = None
    uncounted: set[Build] = field(default_factory=set)
    # Of those that are only counted: the hash of each one's key, and its offset.
    _beyond: dict[Build, dict[int, int]] = field(default_factory=dict)

    @property
    def beyond(self) -> int:
        """How many letters stand that are only counted."""
        return sum(map(len, self._beyond.values()))

    def counted(self) -> Counter[Build]:
        """How many letters of each build stand, those that are only counted as well."""
        found: Counter[Build] = Counter((one.letter.sink, one.letter.generation) for one in self.standing.values())
        return found + Counter({build: len(offsets) for build, offsets in self._beyond.items()})

    def take(self, key: bytes, value: bytes | None, at: int, through: int | None = None) -> None:
        """The topic's next record.

        Args:
            key: the record's.
            value: the letter; None for a tombstone.
            at: its offset.
            through: of a tombstone, the last offset that it means; None for everything before it.

        Raises:
            NewerFormat: a newer Headwater's letter (terminal).
        """
        if value is None:
            self._clear(key, through)
            return
        try:
            letter = DeadLetter.from_json(value)
        except DecodeError:
            return  # no letter
        if self._overtaken(key, letter):
            self.covered.add(key)
            return
        if self.most is not None and len(self.standing) >= self.most and key not in self.standing:
            self._count(key, letter, at)
            return
        size = letter.document_bytes if letter.document is None else letter.document_bytes or len(letter.document)
        # The newest comes last: what is oldest is looked at first.
        self.standing.pop(key, None)
        self._uncount(key)
        self.standing[key] = Logged(
            replace(letter, document=None, document_bytes=size, reason=letter.reason[:REASON_CHARS]), at
        )
        self.covered.discard(key)

    def _overtaken(self, key: bytes, letter: DeadLetter) -> bool:
        """Whether a newer version of its document was refused before: two jobs write letters, each in its own time.

        It would be healed by the delete that the newer refusal has left in the sink, and nobody miss the document.
        """
        known = self.standing.get(key)
        return known is not None and letter.table is None and 0 < letter.version < known.letter.version

    def _count(self, key: bytes, letter: DeadLetter, at: int) -> None:
        assert self.most is not None, "without a limit all are remembered"
        self.beyond_from = at if self.beyond_from is None else self.beyond_from
        build, name = (letter.sink, letter.generation), hash(key)
        if self.beyond < self.most * COUNTED or name in self._beyond.get(build, ()):
            self._beyond.setdefault(build, {})[name] = at
        else:
            self.uncounted.add(build)

    def _uncount(self, key: bytes, through: int | None = None) -> None:
        name = hash(key)
        for offsets in self._beyond.values():
            if name in offsets and (through is None or offsets[name] <= through):
                del offsets[name]

    def _clear(self, key: bytes, through: int | None) -> None:
        known = self.standing.get(key)
        if known is None:
            self._uncount(key, through)
            return
        if through is None or known.at <= through:
            del self.standing[key]
            self.covered.discard(key)
        else:
            self.covered.add(key)

    def back(self) -> int | None:
        """Be as before the first letter that was not remembered: what came since is to be taken once more.

        Not from the topic's beginning: letters that were cleared lie there until compaction comes, and would take up
        the room again before their tombstones give it back.

        Returns:
            the offset to go on from; None if all were remembered.
        """
        start = self.beyond_from
        if start is not None:
            self.standing = {key: logged for key, logged in self.standing.items() if logged.at < start}
            self.covered &= self.standing.keys()
            self.beyond_from = None
            self._beyond.clear()
            self.uncounted.clear()
        return start

    def forget_before(self, at_ms: int) -> None:
        """Forget letters that are older: the topic has let them go as well."""
        for key in [key for key, logged in self.standing.items() if logged.letter.at_ms < at_ms]:
            del self.standing[key]
            self.covered.discard(key)

    def __iter__(self) -> Iterator[tuple[bytes, Logged]]:
        return iter(self.standing.items())

    def __len__(self) -> int:
        return len(self.standing)
