"""An explanation for who may not see what rows hold: where it comes from, and not what it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def without_values(report: Mapping[str, Any]) -> dict[str, Any]:
    """An explanation of ``explain_report`` in the same shape: documents and values are null, differences are named.

    Args:
        report: the whole.
    """
    return {
        **report,
        "held": _bare(report["held"]),
        "aggregates": [{**one, "value": None} for one in report["aggregates"]],
        "row_store": _bare(report["row_store"]),
        # Why Spark SQL fails for a row is told in Spark's words, which quote the row.
        "expected": report["expected"] and {**(_bare(report["expected"]) or {}), "why": ""},
    }


def _bare(part: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if part is None:
        return None
    found = {**part, "document": None}
    if "differences" in part:
        found["differences"] = [{"field": one["field"]} for one in part["differences"]]
    return found
