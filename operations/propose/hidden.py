"""What of a table `init` shows: nothing that looks like a secret by its name, and no name that a search server has
itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from cdc.catalogue import Column, Table
from cdc.masking import looks_secret
from cdc.pipeline.checks import SEARCH_FIELDS
from cdc.types import supported, type_key
from connectors.survey import LeftOut
from operations.propose import names
from sinks.configure import THEIR_OWN, no_name

# A column of the file: its name, or {its name: what it is called in the document}.
Pick = str | Mapping[str, str]
# Names that a document for a search server can't have.
RESERVED = SEARCH_FIELDS | THEIR_OWN
# Whoever knows one is logged in; ``session_id`` is more often a visit that somebody counts.
_SESSION = re.compile(r"session[._-]?(?:key|data)", re.IGNORECASE)
_WORDS = frozenset(("text", "varchar", "bpchar", "citext", "bytea", "json", "jsonb"))


def shown_columns(table: Table, *, search: bool) -> tuple[tuple[Pick, ...], tuple[str, ...]]:
    """(the columns to write down, those that are left out because of their names); no columns to write for all of them.

    Args:
        table: theirs.
        search: a search server is among the sinks: what it has of its own is called otherwise.
    """
    every = [column.name for column in supported(table).columns]
    hidden = [c.name for c in supported(table).columns if is_secret(c) and c.name not in table.primary_key]
    called = _called_otherwise(every) if search else {}
    if not hidden and not called:
        return (), ()
    picks = ({name: called[name]} if name in called else name for name in every if name not in hidden)
    return tuple(picks), tuple(hidden)


def source_of(pick: Pick) -> str:
    """The column's own name."""
    return pick if isinstance(pick, str) else next(iter(pick))


def called(picks: Iterable[Pick]) -> list[str]:
    """What columns are called in the document."""
    return [pick if isinstance(pick, str) else next(iter(pick.values())) for pick in picks]


def objects_of(columns: Iterable[str]) -> Iterator[str]:
    """The objects that names with points make in an index: ``a`` and ``a.b`` of ``a.b.c``."""
    for name in columns:
        yield from list(accumulate(name.split("."), lambda before, part: f"{before}.{part}"))[:-1]


def _called_otherwise(every: Sequence[str]) -> dict[str, str]:
    """Column -> another name, of those that no index can have under their own: MongoDB's ``_id`` is shown as ``id``."""
    found, plain = dict[str, str](), frozenset(every)
    for name in every:
        if name in RESERVED or no_name(name) or not plain.isdisjoint(objects_of([name])):
            bare = names.field(name.strip("_. ") or "column")
            found[name] = names.free(bare, [*every, *found.values(), *objects_of(every)])
    return found


def hidden_columns(tables: Mapping[str, Table]) -> list[LeftOut]:
    """The columns that ``shown_columns`` leaves out of every document, each with the reason."""
    why = "in no document: it looks like a secret, by its name (it is captured, with its table)"
    return [
        LeftOut(f"{name}.{column}", why, "name it in a view's `columns` to have it there")
        for name, table in tables.items()
        for column in shown_columns(table, search=False)[1]
    ]


def taken_by(columns: Collection[str], picks: Sequence[Pick], *, search: bool) -> list[str]:
    """Names that nothing else in a document can have.

    Args:
        columns: of the table.
        picks: of ``shown_columns``.
        search: as there.
    """
    reserved = [*sorted(RESERVED), *objects_of(columns)] if search else []
    return [*columns, *called(picks), *reserved]


def is_secret(column: Column) -> bool:
    """Whether a column seems to hold passwords, keys or tokens: text or bytes, and called so."""
    return type_key(column) in _WORDS and bool(looks_secret(column.name) or _SESSION.search(column.name))


def has_secret_key(table: Table) -> bool:
    """Whether documents of a table would be called by what looks like a secret: sessions, tokens.

    A text that is the whole key counts by the table's name, too: ``authtoken_token`` has its tokens in ``key``.
    """
    key = [table.by_name[name] for name in table.primary_key]
    of_secrets = looks_secret(table.name) or "session" in table.name.lower()
    alone = len(key) == 1 and of_secrets and type_key(key[0]) in _WORDS
    return alone or any(is_secret(column) for column in key)


def without_view(table: str) -> LeftOut:
    """That a table of ``has_secret_key`` has no view."""
    why = "in no document: what would name it looks like a secret (it is captured)"
    return LeftOut(table, why, "write a view of it to have it there")
