"""Whether what a view with a state shows has a place in a warehouse's table, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T  # noqa: N812

from cdc.join.expressions import quoted
from cdc.pipeline.checks import ICEBERG_COLUMNS
from cdc.stateful import StatefulView
from sinks.iceberg.rows import ID_COLUMN, VERSION_COLUMN
from spark.reading.expressions import Refuse, unplaced

# Columns that a table has besides what is shown.
_TAKEN = ICEBERG_COLUMNS | {ID_COLUMN, VERSION_COLUMN}
# Spark SQL's types that Iceberg lacks.
_LACKING = (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType, T.NullType)


def refuse_columns(view: StatefulView, refuse: Refuse = unplaced) -> None:
    """Refuse a view that no table can hold.

    Args:
        view: its fields' types are known.
        refuse: makes the error for a part of the view.

    Raises:
        ConfigError: a field has a name or a type that a table can't have (terminal).
    """
    kinds = T.StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in view.state.items()))
    names = [*(out for _, out in view.columns), *view.state]
    taken = sorted({name for name in names if name.lower() in _TAKEN})
    why = f"a table in a warehouse has a column {taken[0]} of its own" if taken else _alike(names) or _unfit(kinds)
    if why:
        fix = "give the field another name" if taken or "one column" in why else "cast it: cast(… AS string)"
        raise refuse((view.said,), f"view {view.name}: {why}", f"{fix}; or keep the view in another kind of sink")


def _alike(names: Iterable[str]) -> str:
    seen = dict[str, str]()
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return f"{other} and {name} are one column to Spark, in a warehouse's table"
    return ""


def _unfit(kind: T.DataType, path: str = "") -> str:
    """Why something in a type has no place, or nothing."""
    if isinstance(kind, _LACKING):
        return f"{path} is of type {kind.simpleString()}, which no column of an Iceberg table can be"
    if isinstance(kind, T.ArrayType):
        return _unfit(kind.elementType, path)
    if isinstance(kind, T.MapType):
        return _unfit(kind.keyType, path) or _unfit(kind.valueType, path)
    if isinstance(kind, T.StructType):
        below = (_unfit(field.dataType, f"{path}.{field.name}" if path else field.name) for field in kind.fields)
        return (_alike(kind.names) if path else "") or next(filter(None, below), "")
    return ""
