"""What was left out, as a person reads it: what matters most first, and what has one reason in one line. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from connectors.survey import LeftOut

# Names of tables in the line of their owner.
_NAMES = 3


def told(found: Sequence[LeftOut], tables: Collection[str]) -> list[LeftOut]:
    """Whole tables before columns and joins, and one line for all tables of an owner.

    Args:
        found: what was left out.
        tables: those that are captured.
    """
    owners: dict[str, list[LeftOut]] = {}
    others = []
    for one in found:
        if one.owner:
            owners.setdefault(one.owner, []).append(one)
        else:
            others.append(one)
    return [*map(_of_owner, owners.values()), *sorted(others, key=lambda one: _is_part(one.name, tables))]


def _of_owner(mine: Sequence[LeftOut]) -> LeftOut:
    first = mine[0]
    if len(mine) == 1:
        return first
    names = ", ".join(one.name for one in mine[:_NAMES]) + (", …" if len(mine) > _NAMES else "")
    why = f"{len(mine):,} tables ({names}), of each: {first.why}"
    others = "; and so the others" if len({one.fix for one in mine}) > 1 else ""
    return replace(first, name=first.owner, why=why, fix=first.fix + others)


def _is_part(name: str, tables: Collection[str]) -> bool:
    """Whether it is a column or a join of a table that is captured."""
    table = ".".join(name.split(".")[:2])
    return " (" in name or (table != name and table in tables)
