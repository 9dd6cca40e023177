"""The connector's configuration that runs, brought to tables that come or were altered, by a file that may be an older
one than was applied last."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from connectors import outbox
from connectors.debezium import pattern

# What the configuration says of tables: lists of them, with what parts their entries where those may be somebody's; and
# where they are asked for, which the first of each tells, how large values are selected again, and how a message gives
# an event's columns.
LISTS = {"table.include.list": "", "column.exclude.list": ",", "message.key.columns": ";"}
MADE_OF_TABLES = (
    ("post.processors", "nulls."),
    tuple(f"transforms.{outbox.NAME}.message.{name}" for name in ("columns", "forms")),
)


def brought_to_tables(
    running: Mapping[str, str], wanted: Mapping[str, str], ours: Iterable[str] = (), options: Collection[str] = ()
) -> dict[str, str]:
    """The configuration that runs, with what it says of tables as it is wanted, and all else as it is. Pure.

    Args:
        running: it.
        wanted: as the file has it, which may be an older one than was applied last.
        ours: captured tables and generated columns, also former ones: what lists of our making name. One that names
            anything else is somebody's, who may have excluded a column that nobody shall see: it stays.
        options: what the file sets by its ``connect.options``, which is made of no tables.
    """
    both = [group for group in MADE_OF_TABLES if group[0] in running and group[0] in wanted]
    known = {pattern([name]) for name in ours}
    lists = [name for name, between in LISTS.items() if not between or _named(running.get(name, ""), between) <= known]
    of_tables = (*lists, *chain.from_iterable(both))
    made = {name for name in {*running, *wanted} if name.startswith(of_tables) and name not in options}
    kept = {name: value for name, value in running.items() if name not in made}
    return kept | {name: value for name, value in wanted.items() if name in made}


def _named(value: str, between: str) -> set[str]:
    """What a list's entries name, as expressions: without the columns of a key, and without what minds the case."""
    entries = re.findall(rf"(?:\\.|[^{between}\\])+", value, re.DOTALL)
    return {re.sub(r"^\(\?-i\)|(?<!\\):.*", "", entry, flags=re.DOTALL) for entry in entries}
