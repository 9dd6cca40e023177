"""What ``headwater preview --diff`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import click
import orjson

from console.cli.shared.cut import cut

MAX_DOCUMENTS, MAX_FIELDS, MAX_VALUE = 40, 20, 100
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def show_diff(report: Mapping[str, Any]) -> None:
    """Print a report."""
    place = f"sink {report['sink']}, generation {report['generation']}"
    if report["new"]:
        click.echo(f"{place} has no view {report['view']}: all of its documents are new")
    documents = report["documents"]
    for one in documents[:MAX_DOCUMENTS]:
        _show(report["view"], one)
    if len(documents) > MAX_DOCUMENTS:
        click.echo(f"… and {len(documents) - MAX_DOCUMENTS:,} more (--json shows all)")
    if not report["compared"]:
        click.echo("nothing to compare: no such row, and no such document")
        return
    counts = Counter(one["change"] for one in documents)
    said = ", ".join(f"{counts[change]:,} {change}" for change in _SIGNS if counts[change])
    click.echo(f"{report['compared']:,} documents compared with {place}: {said or 'none differs'}")
    if any(one["behind"] for one in documents):
        click.echo(
            "* the sink does not hold what its own view makes of this row now: it has not caught up with the "
            "last changes, or `headwater verify` has something to say"
        )


def _show(view: str, one: Mapping[str, Any]) -> None:
    remark = (f": {one['why']}" if one["why"] else "") + (" *" if one["behind"] else "")
    click.secho(f"{_SIGNS[one['change']]} {view} {one['key']} {one['change']}{remark}", bold=True)
    for field in one["fields"][:MAX_FIELDS]:
        sides = [_value(field[side]) for side in ("sink", "file") if side in field]
        click.echo(f"    {_SIGNS[field['change']]} {field['field']}: {' → '.join(sides)}")
    if len(one["fields"]) > MAX_FIELDS:
        click.echo(f"    … and {len(one['fields']) - MAX_FIELDS:,} more fields (--json shows all)")


def _value(value: Any) -> str:
    return cut(orjson.dumps(value).decode(), MAX_VALUE)
