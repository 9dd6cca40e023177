"""What a failed query says: Spark hands on words and no exceptions, so errors of ours are known by their class's name.

The names are asked of the classes: one that is moved or renamed must not turn what is terminal into what is tried again
for ever.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from cdc.errors import DiskFull, HeadwaterError
from cdc.wording import MEANS, TO_DO, worded
from spark.disk.files import disk_full
from spark.disk.temporary import places

# A disk with less than this is full for what we write at once.
ROOM = 2**20


def name_of(kind: type[BaseException]) -> str:
    """A class as Python's tracebacks name it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _tree(kind: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


_KINDS = {name_of(kind): kind for kind in _tree(HeadwaterError)}
_NAMES = "|".join(re.escape(name) for name in sorted(_KINDS, key=len, reverse=True))
_NAMED = re.compile(rf"({_NAMES}):")
# With what it means and the way out, which stand on lines of their own (cdc/wording.py).
_WORDS = re.compile(rf"(?:{_NAMES}): (.+(?:\n(?:{MEANS}|{TO_DO}).+)*)")

# How py4j begins what Java says; by it and a name behind it Spark knows a query that was stopped
# (spark/warehouse/brief.py).
CALLING = "py4j.protocol.Py4JJavaError: An error occurred while calling"


# A checkpoint file, or one of Spark's temporary files, had no room.
FULL = re.compile(rf"No space left on device|Disk quota exceeded|{re.escape(name_of(DiskFull))}")

# How Iceberg refuses a commit that would be more than a minute older than one that is there: it stamps each with the
# clock of whoever commits.
_CLOCK = re.compile(
    "Expected sorted (?:snapshot|previous metadata) log entries"
    "|Invalid update timestamp [0-9]+: before (?:last|the latest) "
)
# Spark's Kafka source begins with what it fears ("Some data may have been lost", and how to have it say nothing), and
# ends with what it has seen.
_SEEN = re.compile(
    r"may have been lost because they are not available in Kafka.*?^Reason:\s*(\S.*?)$", re.DOTALL | re.MULTILINE
)
BEHIND = worded(
    "this machine's clock is more than a minute behind the newest commit of the warehouse's table",
    means="the warehouse takes no commit that seems older than what it holds; nothing was written, nothing is lost",
    fix="set the clock right (NTP); else it goes on by itself once the clock has come past that commit",
)


def kinds(text: str) -> set[type[HeadwaterError]]:
    """Which errors of ours a text tells of."""
    return {_KINDS[name] for name in _NAMED.findall(text)}


def refused(text: str) -> bool:
    """Whether one of them is such that no retry cures it."""
    return any(not kind.transient for kind in kinds(text))


def words(text: str) -> list[str]:
    """What they say, each with its meaning and its way out."""
    return _WORDS.findall(text)


def full_here(text: str) -> bool:
    """Whether a disk of ours had no room: not one behind a server, which an error of ours names."""
    return FULL.search(text) is not None and kinds(text) <= {DiskFull}


def no_room(checkpoint: Path, text: str) -> str:
    """Which disk is full: the checkpoint's, or the one with Spark's temporary files; or neither, as far as is seen."""
    temporary = places()
    full = [path for path in (checkpoint, *temporary) if path.exists() and shutil.disk_usage(path).free < ROOM]
    if full or DiskFull in kinds(text):
        return f"{disk_full((full or [checkpoint])[0]).what} ({explain(text)})"
    # A warehouse's folder may lie on a third one, and a catalogue's database on another machine.
    looked = " nor that of ".join(map(str, (checkpoint, *temporary)))
    return f"a disk is full, and neither that of {looked} is ({explain(text)})"


def whole(error: Exception) -> str:
    """What a query has ended with: Spark's words, and those of what caused it."""
    cause = error.cause if hasattr(error, "cause") else None
    return f"{error}\n{cause or ''}"


def explain(text: str) -> str:
    """What of a long Spark error says what happened: our own error if there is one, else the root cause."""
    if ours := words(text):
        return ours[-1].strip()
    if _CLOCK.search(text):
        return BEHIND
    if seen := _SEEN.search(text):
        return f"the log is not what this flow has read: {seen[1][:500]}"
    causes = [
        line.strip().removeprefix(": ")
        for line in text.splitlines()
        if "Caused by:" in line or re.match(r"(: )?\w[\w.]*(Error|Exception)", line)  # ": " is how py4j begins Java's
    ]
    # Those words tell nobody why it was not.
    causes = [line for line in causes if not line.startswith(f"{CALLING} a method:")] or causes
    found = (causes[-1] if causes else text.strip().split("\n", maxsplit=1)[0])[:500]
    # Some of Java's exceptions have no words, and "terminated with exception:" alone tells nobody where to look.
    return found if found and not found.endswith(":") else f"{found} no reason was given; see Spark's log".strip()
