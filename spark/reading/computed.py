"""What Spark SQL said of entries, read from Arrow in the workers: a row's fields, or that they can't be computed.

The JVM half is spark/reading/guard.py. A value that is null and a value that could not be had are two things: what
failed stands in a column of its own, which is null for every row where all went well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from cdc.types.plain import NO_TEXT, plain_values
from cdc.view import View

FIELD, WHERE = "__f_", "__where"
# A struct of what failed (columns, as below) and what it saw (values of the row, as JSON text).
FAILED = "__failed"
# So many characters of those values.
SEEN_CHARS = 1_000
# The only field of a guarded value.
VALUE = "v"


class Failure(NamedTuple):
    """A row whose document can't be computed, and why: for a dead letter."""

    reason: str


def expressions_of(view: View) -> dict[str, tuple[str, str]]:
    """Column between the halves -> (name that people know, Spark SQL), the condition first."""
    condition = {WHERE: ("where", view.where)} if view.where else {}
    return condition | {FIELD + name: (f"field {name}", said) for name, said in view.fields.items()}


def reason(view: View, columns: Iterable[str], seen: str | None) -> str:
    """Why a row has no document.

    Args:
        view: the view.
        columns: what failed.
        seen: the values that its expressions saw, as JSON.
    """
    said = expressions_of(view)
    listed = ", ".join(f"{said[column][0]}: `{said[column][1]}`" for column in columns)
    return (
        f"Spark could not compute {listed} for {seen or 'this row'}; it has no document until a change of it helps "
        "(`headwater explain --expected` has Spark's words)"
    )


class Results:
    """What Spark SQL said of a batch's rows.

    Args:
        view: whose expressions they were.
        batch: with a column for each of ``expressions_of``, and ``FAILED``.
    """

    def __init__(self, view: View, batch: pa.RecordBatch) -> None:
        self._view = view
        self._fields = {name: plain_values(batch.column(FIELD + name)) for name in view.fields}
        self._where = plain_values(batch.column(WHERE)) if view.where else None
        failed = batch.column(FAILED)
        self._failed = failed if failed.null_count < len(failed) else None

    def of(self, at: int) -> Mapping[str, Any] | Failure | None:
        """The fields of a row that has a document; None if the condition leaves it out."""
        if self._failed is not None and (failed := self._failed[at].as_py()) is not None:
            return Failure(reason(self._view, failed["columns"], failed["seen"]))
        if self._where is not None and self._where[at] is not True:
            return None
        found = {name: values[at] for name, values in self._fields.items()}
        if NO_TEXT in found.values() and (bad := [name for name, value in found.items() if value is NO_TEXT]):
            return Failure(reason(self._view, [FIELD + name for name in bad], None))
        return found
