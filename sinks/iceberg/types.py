"""Which changes of a column's type Iceberg makes in place (its specification, "Schema Evolution")."""

from __future__ import annotations

_WIDER = {("smallint", "int"), ("smallint", "bigint"), ("int", "bigint"), ("float", "double")}


def widens(old: str, new: str) -> bool:
    """Whether a column of one Spark type can become one of another, without a row being written anew. Pure.

    Args:
        old: as ``decimal(10,2)``.
        new: likewise; the same type is no change, and true.
    """
    if old == new or (old, new) in _WIDER:
        return True
    kinds = [kind.removesuffix(")").split("(") for kind in (old, new)]
    if any(kind[0] != "decimal" for kind in kinds):
        return False
    (precision, scale), (wider, same) = (kind[1].split(",") for kind in kinds)
    return scale.strip() == same.strip() and int(wider) >= int(precision)
