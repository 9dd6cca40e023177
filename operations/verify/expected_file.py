"""What a view that is made of the log must hold, worked out once and kept in a file: by key a digest, and bounds.

Rows of Postgres can be asked for by key. Of the log all must be read for any of them, so it is read once a look.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from cdc.keys import id_bytes, id_text
from cdc.timed import MatchView
from cdc.view import View
from operations.verify.buckets import twice
from truth.bounds import Bounds, bounds_of
from truth.digest import digest
from truth.expected import Expected, Form, digests, form_of
from truth.sample import reservoir

_TABLE = (
    "CREATE TABLE told (key BLOB, form TEXT, digest BLOB, bounds BLOB, unsure INT, PRIMARY KEY (key, form)) "
    "WITHOUT ROWID"
)
# What need not be there never stands before what must; of what must, the second one only where it may come twice.
_NOTE = (
    "INSERT INTO told VALUES (?, ?, ?, ?, ?) ON CONFLICT (key, form) DO UPDATE "
    "SET digest = excluded.digest, bounds = excluded.bounds, unsure = excluded.unsure "
    "WHERE excluded.digest IS NOT NULL AND (told.digest IS NULL OR ?)"
)
# Keys that one query names.
_ASKED = 500


def may_repeat(view: View) -> bool:
    """Whether what must be there may come twice, and the last one counts: a match is named by an event, and the log may
    have an event once more after Connect has died."""
    return isinstance(view, MatchView)


class Wanted(NamedTuple):
    """What must be there.

    Attributes:
        digest: None if nothing must.
        unsure: see ``truth.expected.Expected``.
    """

    digest: bytes | None
    unsure: bool


class Told:
    """The file.

    Args:
        path: where it is; made by ``fill``.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._store = sqlite3.connect(path, isolation_level=None)

    def close(self) -> None:
        """Close it. Idempotent."""
        self._store.close()

    def fill(
        self, view: View, found: Iterable[Expected], forms: Collection[Form]
    ) -> Iterator[tuple[str, dict[Form, bytes]]]:
        """Note what must be there, and hand it on: of each document that must be (key, form -> digest).

        Args:
            view: the view.
            found: all of it.
            forms: in which sinks hold it.

        Raises:
            StateError: two documents that must be there have one id, and ``may_repeat`` does not say so.
        """
        self._store.execute("PRAGMA journal_mode = OFF")
        self._store.execute("PRAGMA synchronous = OFF")
        self._store.execute(_TABLE)
        self._store.execute("BEGIN")
        repeats = may_repeat(view)
        for one in found:
            fields = one.fields
            told: dict[Form, bytes] = {}
            bounds = b"" if fields is None else orjson.dumps(bounds_of(fields))
            for form in forms:
                if fields is not None:
                    told[form] = digest(form_of(view, one.document, fields, form))
                values = (id_bytes(one.key), form, told.get(form), bounds, one.unsure, repeats)
                noted = self._store.execute(_NOTE, values).rowcount
                if told and not noted:
                    raise twice(view.name, one.key)
            if told:
                yield one.key, told
        self._store.execute("COMMIT")

    def wanted(self, keys: Sequence[str], form: Form) -> dict[str, Wanted]:
        """What is known of these keys; of others nothing must be there."""
        found: dict[str, Wanted] = {}
        for start in range(0, len(keys), _ASKED):
            page = [id_bytes(key) for key in keys[start : start + _ASKED]]
            marks = ", ".join("?" * len(page))
            query = f"SELECT key, digest, unsure FROM told WHERE form = ? AND key IN ({marks})"  # noqa: S608
            for key, value, unsure in self._store.execute(query, (form, *page)):
                found[id_text(key)] = Wanted(value, bool(unsure))
        return found

    def sample(self, form: Form, count: int, seed: int) -> list[str]:
        """The keys of so many random documents that must be there, the same ones for the same seed."""
        query = "SELECT key FROM told WHERE form = ? AND digest IS NOT NULL ORDER BY key"
        pick = random.Random(seed)  # noqa: S311 (a sample, not a secret)
        return [id_text(key) for (key,) in reservoir(self._store.execute(query, (form,)), count, pick)]

    def bounds(self, key: str) -> Bounds:
        """Of a document's fields that are compared within bounds."""
        row = self._store.execute("SELECT bounds FROM told WHERE key = ?", (id_bytes(key),)).fetchone()
        return {} if row is None or not row[0] else {name: tuple(two) for name, two in orjson.loads(row[0]).items()}


@contextmanager
def reading(path: Path) -> Iterator[Told]:
    """A ``Told`` for the time of a block."""
    told = Told(path)
    try:
        yield told
    finally:
        told.close()


def told_digests(
    view: View, found: Iterable[Expected], forms: Collection[Form], bounds: Path | None
) -> Iterator[tuple[str, dict[Form, bytes]]]:
    """As ``truth.expected.digests``; bounds go to a file, if there are any."""
    if bounds is None:
        yield from digests(view, found, forms)
        return
    with reading(bounds) as told:
        yield from told.fill(view, found, forms)
