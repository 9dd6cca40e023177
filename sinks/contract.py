"""What every sink promises. The engine knows this page and nothing else about a target system.

A sink is handed batches of (key, version, document or delete) and **answers for every item**, because a batch may only
be committed when each of its items is accounted for. Three answers exist and none of them means "maybe":

========  ==============================================================================================
WRITTEN   the target holds this version (a delete of a key that was never there counts too)
STALE     the target already holds a newer version of the key: success, nothing was changed. Also the answer for an
          item that another of the same key overrules in the same call: that one's answer counts
REJECTED  the target will never take this item (mapping conflict, too long a key, …): dead-letter it
========  ==============================================================================================

Everything else is not an answer but a state of the server, and holds the batch: a sink retries inside ``write`` with
back-off, sends only what failed again, and reports each wait through ``on_wait``. That is the back-pressure: nothing is
skipped because a server is down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

# Called with a one-line reason each time a sink waits for its server; may be called from several threads at once.
OnWait = Callable[[str], None]

MAX_VERSION = 2**63 - 1

# The version of a delete whose own event was compacted away, leaving a tombstone with no position: "delete whatever is
# there, and keep the version you hold". Only deletes may carry it.
UNVERSIONED = -1


class Item(NamedTuple):
    """One thing to write.

    Attributes:
        key: document id, unique within a view; empty for a row whose only key column is an empty text, which a target
            may have to reject.
        version: position packed into a long, 0 … 2**63-1; a larger one wins, an equal one may overwrite (or
            UNVERSIONED).
        document: UTF-8 JSON object, or None for a delete.
    """

    key: str
    version: int
    document: bytes | None


# The version of something held of which the target keeps none that can be read: somebody else has written it.
UNREADABLE = -2


class Held(NamedTuple):
    """One thing that the target holds, whoever wrote it: what ``scan`` and ``get`` return.

    Attributes:
        key: its id; ``cdc.keys.stray_id`` of a name that is no id of ours.
        version: of what is there, or UNREADABLE.
        document: as it stands, perhaps no JSON; empty if it is nothing that could be a document. Of a table the rows
            under this key, column -> value: one, unless somebody else has put in another.
    """

    key: str
    version: int
    document: bytes | tuple[Mapping[str, Any], ...]


class Outcome(Enum):
    """How one item ended."""

    WRITTEN = "written"
    STALE = "stale"
    REJECTED = "rejected"


class Answer(NamedTuple):
    """How one item ended, and for REJECTED why (one line, the server's own words where it has some)."""

    outcome: Outcome
    reason: str | None = None


WRITTEN = Answer(Outcome.WRITTEN)
STALE = Answer(Outcome.STALE)


def version_fault(item: Item) -> str | None:
    """Why an item's version can't be written, or None. Pure; shared by the sinks."""
    if 0 <= item.version <= MAX_VERSION or (item.version == UNVERSIONED and item.document is None):
        return None
    return f"version {item.version} is out of bounds"


def size_fault(item: Item, max_document_bytes: int) -> str | None:
    """Why a document is too large to be sent, or None."""
    if item.document is None or len(item.document) <= max_document_bytes:
        return None
    return f"the document has {len(item.document)} bytes, this sink takes at most {max_document_bytes}"


def rejected(reason: str) -> Answer:
    """A REJECTED answer; the reason is cut to 2,000 characters, because servers like to quote whole documents."""
    return Answer(Outcome.REJECTED, reason if len(reason) <= 2000 else reason[:2000] + "…")


class Target(Protocol):
    """What a generation of a sink holds, for who looks at it, promotes it or drops it, whatever kind it is.

    Built by ``sinks.factory.open_target``.
    """

    def get(self, target: str, keys: Sequence[str], at_once: int = 1) -> dict[str, Held]:
        """What the target holds under these keys right now (no refresh needed); absent keys are left out. Of so many
        the caller knows that they fit into one answer; sizes of more are learned on the way.
        """
        ...

    def versions(self, target: str, keys: Sequence[str]) -> dict[str, int]:
        """The newest version of each key that the target knows of, also of what was deleted, for as long as it
        remembers that (a table does not); keys that it does not know, or whose version can't be read, are left out.

        Raises:
            SinkUnavailable: the server went away (transient).
            SinkRefused: the target is gone.
        """
        ...

    def scan(self, target: str) -> Iterator[Held]:
        """Everything the target holds, in no order, in bounded memory; a key may come twice while writers are busy.

        Raises:
            SinkUnavailable: the server went away; start the scan again.
        """
        ...

    def sample(self, target: str, count: int, seed: int) -> Iterator[Held]:
        """About ``count`` documents chosen by chance, fewer if there are not so many, without reading all of them.

        Raises:
            SinkUnavailable: the server went away; start again.
        """
        ...

    def promote(self, target: str, old: int) -> None:
        """Make this sink's own generation the one that readers see. Idempotent; what was cut is finished by calling it
        again. Going back is the same verb on the other generation. Claims nothing: writers go on.

        Args:
            target: view name.
            old: the generation that readers see now (or this one already).

        Raises:
            SinkUnavailable: the server went away (transient); call again.
            SinkRefused: this generation is not there, or readers see a third one.
        """
        ...

    def settle(self, target: str) -> None:
        """End what of a promotion that was cut keeps writers waiting, towards whichever generation it went.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
        """
        ...

    def living(self, target: str) -> int | None:
        """The generation that readers see now; None if nothing is there, or the server has forgotten which it was."""
        ...

    def claimed(self, target: str) -> int | None:
        """The newest token that has claimed this generation; None if none has."""
        ...

    def oldest_claim(self, target: str) -> int | None:
        """The token that all of this generation shows, so that one that was put back from an older copy is known by an
        older one. None if nobody has claimed it, and of a target whose claims don't tell that.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
        """
        ...

    def there(self, target: str) -> bool:
        """Whether what this generation has been set up to write to is still there: not after its server was emptied."""
        ...

    def numbered(self, targets: Collection[str]) -> dict[int, set[str]]:
        """Generations of which something of that name stands beside what readers see, whoever has made it: number -> of
        which of these targets. Asks for names, and not for one generation after the other.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
            SinkRefused: rights are missing.
        """
        ...

    def refresh(self, target: str) -> None:
        """Let readers, by whatever way they read, find all that was written before this call.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
            SinkRefused: what was written is gone.
        """
        ...

    def size(self, target: str) -> int:
        """About how many bytes this generation takes on its server, so that one knows what a second one will; 0 when it
        is not there.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
        """
        ...

    def drop(self, target: str) -> None:
        """Remove everything this generation holds, its memory of deletes and leases too; nothing happens when there is
        none. Other generations stay as they are.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
            SinkRefused: rights are missing.
        """
        ...

    def close(self) -> None:
        """Give connections back and wake up a write that is waiting in another thread. Idempotent."""
        ...


@runtime_checkable
class Sink(Target, Protocol):
    """A target that takes documents. Built by ``sinks.factory.open_sink`` from plain data, so that an executor can."""

    def empty(self, target: str) -> None:
        """Remove every document and every memory of a deleted one, for a fill that begins anew; ``setup`` comes next.

        Who claimed it, and what was left with it to tell a server that went back, stays: nothing was lost.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
            SinkRefused: rights are missing.
        """
        ...

    def setup(self) -> None:
        """Make the target ready: server checks, index, mapping, alias. Idempotent; run once per start, by the driver.

        Claims the target for the configuration's ``token``: writes under an older one are refused from now on, by the
        server. So who only reads, or repairs beside a writer (with the token that ``claimed`` tells), does not call it.

        Does not wait for a server that is down: the caller, who starts other sinks too, tries again later.

        Raises:
            SinkUnavailable: the server does not answer (transient).
            SinkRefused: the target is not as it must be, or a newer token has claimed it; says what to do. Nothing was
                half-done.
        """
        ...

    def filled(self, targets: Sequence[str]) -> str | None:
        """The first that is found of these targets that hold a document; None if all are empty.

        Raises:
            SinkUnavailable: the server went away; ask again.
        """
        ...

    def write(self, target: str, items: Sequence[Item]) -> list[Answer]:
        """Apply items; returns one answer per item, in the order of ``items``.

        Safe to repeat with the same items in any order of calls: versions decide, not time. A key may come several
        times: what holds afterwards is as if each item had been written by a call of its own, in this order, so of
        equal versions the later stays (``sinks.rounds`` says how). The same goes for calls that follow each other.

        Args:
            target: view name, as in the configuration.
            items: what to write.

        Raises:
            SinkUnavailable: after ``give_up_seconds`` without progress (transient; by default never: it waits). Some
                items may have been applied; repeat the whole call.
            SinkRefused: no item can ever be taken as things are (index deleted, rights missing).
            Fenced: a newer token has claimed the target (terminal). What the server took before that is covered by
                versions: the other process writes the same or something newer.
        """
        ...

    def forget(self, target: str, keys: Sequence[str]) -> None:
        """Remove what is there under these keys, whatever it is, and the memory of its version with it: for what
        somebody else has written under a version that no change will ever reach. Write the right documents afterwards.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
            SinkRefused: the target does not let go of it.
            Fenced: a newer token has claimed the target (terminal).
        """
        ...

    def bulk_load(self, target: str, on: bool) -> None:
        """Around a load from nothing: the target may neglect its readers while it is on. ``setup`` turns it off."""
        ...
