"""The columns by which a table's rows are told apart, and when two rows have one key.

A key's id is its text, in which 0.0 and -0.0 are two rows: a change from one to the other is a delete and a create. To
Spark both are one number, so floats are compared as text besides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.join.expressions import quoted
from cdc.timed import TimedView
from cdc.types import is_float
from cdc.view import View
from sinks.iceberg.rows import ID_COLUMN


def key_names(view: View) -> list[str]:
    """The key's column names as the table has them."""
    if isinstance(view, TimedView):
        return [ID_COLUMN]
    renamed = dict(view.columns)
    return [renamed.get(name, name) for name in view.key]


def float_keys(view: View) -> list[str]:
    """Those of ``key_names`` that are floats."""
    if isinstance(view, TimedView):
        return []
    kinds = view.table.by_name
    return [
        name
        for source, name in zip(view.key, key_names(view), strict=True)
        if source in kinds and is_float(kinds[source])
    ]


def same_key(keys: Sequence[str], floats: Collection[str] = (), equals: str = "=") -> str:
    """SQL of Spark's: whether rows called ``t`` and ``s`` have one key.

    Args:
        keys: of ``key_names``.
        floats: of ``float_keys``.
        equals: the operator; ``<=>`` where a key may be null.
    """
    parts = [f"t.{quoted(name)} {equals} s.{quoted(name)}" for name in keys]
    parts += [f"CAST(t.{quoted(name)} AS STRING) {equals} CAST(s.{quoted(name)} AS STRING)" for name in floats]
    return " AND ".join(parts)
