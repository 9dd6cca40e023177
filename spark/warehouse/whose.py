"""Whose a table's columns are, by Iceberg's own ids of them, which stay when one is renamed.

Other engines may work on our tables. By names alone a column of ours that somebody has renamed would be dropped and
made again, empty, and one that somebody has added would be dropped with all that is in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cdc.errors import SinkRefused
from cdc.join.expressions import quoted
from sinks.iceberg.numbers import NUMBERS

_log = logging.getLogger(__name__)

# Property of a table: the ids that its columns of ours have, by their names, and the numbers beside which they were
# noted. One that is about to be added has COMING: whoever is killed before it has an id finds it all the same.
IDS, COMING = "headwater.ids", 0


@dataclass(frozen=True)
class Whose:
    """The columns of a table.

    Attributes:
        ours: what one of ours is called there -> what we have called it.
        others: names of those that somebody else has added.
        gone: names of ours that are not there any more.
    """

    ours: Mapping[str, str]
    others: Collection[str]
    gone: Collection[str]

    @property
    def renamed(self) -> dict[str, str]:
        """What somebody calls one of ours -> what we have called it."""
        return {name: own for name, own in self.ours.items() if name != own}


def ids_there(handle: Any) -> dict[str, int]:
    """Name -> id of the columns of a table, which is Iceberg's own handle of it."""
    return {field.name(): field.fieldId() for field in handle.schema().columns()}


def ids_noted(said: Mapping[str, str]) -> dict[str, int]:
    """Name -> id of our columns, as a table's properties have it; empty if that is not known: of one that an older
    version has made, or has brought to other columns since, which notes new numbers alone. Pure."""
    found = json.loads(said.get(IDS) or "{}")
    ids: dict[str, int] = found.get("ids", {})
    return ids if found.get("columns") == json.loads(said.get(NUMBERS) or "{}") else {}


def to_note(ids: Mapping[str, int], numbers: Mapping[str, int]) -> dict[str, str]:
    """The properties of a table that has just been brought to its columns. Pure.

    Args:
        ids: name -> id of ours.
        numbers: name -> number of those that are one of the source's.
    """
    said = {"columns": dict(numbers), "ids": dict(ids)}
    return {NUMBERS: json.dumps(dict(numbers), sort_keys=True), IDS: json.dumps(said, sort_keys=True)}


def whose(
    there: Mapping[str, int], noted: Mapping[str, int], numbered: Collection[str], wanted: Iterable[str]
) -> Whose:
    """Tell our columns from those of others. Pure.

    Args:
        there: name -> id of the columns that a table has.
        noted: the same of ours, as they were noted last; where nothing was noted, names tell.
        numbered: names of ours that are known to have been there.
        wanted: names of the columns that it is to have, or had under a former name; to Spark letter case is nothing.
    """
    if noted:
        own = {number: name for name, number in noted.items() if number != COMING}
        coming = {name for name, number in noted.items() if number == COMING}
        ours = {name: own.get(number, name) for name, number in there.items() if number in own or name in coming}
        gone = [name for number, name in own.items() if number not in there.values()]
        return Whose(ours, [name for name in there if name not in ours], gone)
    known = {name.lower() for name in wanted}
    ours = {name: name for name in there if name in numbered or name.lower() in known}
    others = [name for name in there if name not in ours]
    # A column that is to come is numbered before it is there: only where there is an unknown one may it be that one.
    return Whose(ours, others, [name for name in numbered if name not in there] if others else [])


def refuse_taken(table: str, others: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise if somebody has added a column with the name that one of ours is to have: its values would be taken for
    the source's. Pure.

    Raises:
        SinkRefused: it is so (terminal).
    """
    known = {name.lower() for name in wanted}
    if taken := [name for name in others if name.lower() in known]:
        raise SinkRefused(
            f"table {table} has a column {taken[0]} that Headwater has not made, and is to have one of that name",
            means="what is in it would be taken for the source's; nothing was written",
            fix=f"rename it (ALTER TABLE … RENAME COLUMN {taken[0]} TO …) or drop it; then start `headwater run` again."
            " If it is of a time in which Headwater 0.2.0 ran: docs/upgrade.md#back-again",
        )


def tell(table: str, found: Whose, wanted: Collection[str]) -> None:
    """Say in the log what somebody has done to our columns."""
    for name, own in found.renamed.items():
        if own in wanted:
            _log.warning("table %s: somebody has renamed column %s to %s; it is renamed back", table, own, name)
    for name in found.gone:
        if name in wanted:
            _log.warning(
                "table %s: column %s is gone (somebody has dropped or renamed it); a new one is made, which is null in"
                " all rows of before: `headwater rebuild FILE SINK --auto` fills it%s",
                table,
                name,
                f"; left alone: {', '.join(found.others)}" if found.others else "",
            )


def append_rows(rows: DataFrame, table: str) -> None:
    """Append rows by their columns' names, in one commit; a column that somebody has added is null in them.

    Args:
        rows: the rows.
        table: its name inside Spark.
    """
    known = {name.lower() for name in rows.columns}
    more = [field for field in rows.sparkSession.table(table).schema if field.name.lower() not in known]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in more]
    (rows.select(*map(quoted, rows.columns), *nulls) if nulls else rows).writeTo(table).append()
