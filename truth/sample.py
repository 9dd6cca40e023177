"""A random few of a table's rows: of a large one those of a few blocks, so that little of it is read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import sql

from cdc.view import View
from connectors.postgres import Connection
from truth.event_types import of_types
from truth.rows import WHOLE, Row, identity_of, read_rows, rows_of

# As many rows as are in ten blocks, at the least: one of 8 KiB has no room for 300. Of wide rows it is more blocks.
IN_TEN_BLOCKS = 3_000
# How long rows are looked for of which there are few, by one statement, where none need be found.
BRIEF_SECONDS = 5


def sampled_ids(connection: Connection, view: View, count: int, seed: int, *, any_will_do: bool = False) -> list[str]:
    """Random documents' ids, each with the same chance but that rows of a large table come from random blocks.

    Args:
        connection: of ``truth.rows.snapshot``.
        view: the view.
        count: how many.
        seed: of the choice.
        any_will_do: where too few of the view's rows lie in those blocks, those of more blocks are enough, or the first
            that are found in a short while, perhaps none. Else the whole table is drawn from.
    """
    known = rows_of(connection, view.table)
    draw = partial(_drawn, connection, view, count, seed)
    if known <= 4 * count + 10_000:
        found = draw()
    else:
        share = 100.0 * max(4 * count, IN_TEN_BLOCKS) / known + 0.01
        found = draw(share)
        if len(found) < count:
            found = _further(connection, draw, share, found, count) if any_will_do else draw()
    return [*map(identity_of(view), found)]


def _further(
    connection: Connection, draw: Callable[..., list[Row]], share: float, found: list[Row], count: int
) -> list[Row]:
    """What there is in more blocks than these rows are of; if that is nothing, the first rows."""
    with _briefly(connection):
        for times in (2, 4, 8):  # with one seed a larger share has the blocks of a smaller one, and more
            found = draw(share * times)
            if len(found) >= count:
                break
    if not found:
        with _briefly(connection):
            found = draw(first=True)
    return found


@contextmanager
def _briefly(connection: Connection) -> Iterator[None]:
    """A statement that takes longer than a short while ends the block, and nothing else."""
    # Rolled back in any case, by which the limit is again what it was.
    with suppress(psycopg.errors.QueryCanceled), connection.transaction(force_rollback=True):
        connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{BRIEF_SECONDS}s"])
        yield


def _drawn(
    connection: Connection, view: View, count: int, seed: int, share: float | None = None, *, first: bool = False
) -> list[Row]:
    """So many random rows, of so many percent of the blocks if that is given; or the first ones. Their keys alone."""
    only = of_types(view)
    part: sql.Composable = WHOLE
    if first:
        only = sql.SQL("{} LIMIT {}").format(only, sql.Literal(count))
    if share is not None:
        numbers = sql.Literal(min(100.0, share)), sql.Literal(seed)
        part = sql.SQL(" TABLESAMPLE SYSTEM ({}) REPEATABLE ({})").format(*numbers)
    pages = read_rows(connection, view.table, view.key, only, part)
    return reservoir(chain.from_iterable(pages), count, random.Random(seed))  # noqa: S311 (a sample, not a secret)


def reservoir(rows: Iterator[Any], count: int, pick: random.Random) -> list[Any]:
    """So many of the rows, each with the same chance, in one pass."""
    found = list(islice(rows, count))
    for number, row in enumerate(rows, start=count):
        at = pick.randint(0, number)
        if at < count:
            found[at] = row
    return found
