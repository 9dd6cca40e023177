"""How many joins a proposed file has room for: one with thousands of tables must still be one that loads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cdc.pipeline.document import MAX_EXPANDED, MAX_NODES
from connectors.survey import LeftOut
from operations.propose.hidden import Pick
from operations.propose.proposed import Join, Proposed

# A list of no fewer columns that comes twice is written once, and named: see ``writing``.
SHARED = 4
# Values of the file as written and with its aliases expanded, with room for what a person adds.
MOST = (MAX_NODES * 4 // 5, MAX_EXPANDED * 4 // 5)
# Of each table: itself, its view with root and kinds of joins, and its name in the sinks.
_A_TABLE = 10


def within(
    views: Sequence[Proposed], tables: int, most: tuple[int, int] = MOST
) -> tuple[list[Proposed], list[LeftOut]]:
    """The views with the first joins of each, as many as the file has room for, and what is left out because of that.

    No table is left out, and all views have as many: a table at the end of the alphabet matters no less.

    Args:
        views: all of the file's.
        tables: how many it names.
        most: values as written, and with aliases expanded.
    """
    every = [join for view in views for one in view.joins for join in (one, *one.refs)]
    lists = {repr(columns) for columns in [view.columns for view in views] + [join.columns for join in every]}
    shared = sum(text.count(",") + 1 for text in lists)
    written = tables * _A_TABLE + shared + len(views)
    expanded = tables * _A_TABLE + sum(_listed(view.columns) for view in views)
    kept = 0
    for kept in range(max((len(view.joins) for view in views), default=0) + 1):
        next_ones = [_weight(view.joins[kept]) for view in views if len(view.joins) > kept]
        written += sum(one for one, _ in next_ones)
        expanded += sum(one for _, one in next_ones)
        if written > most[0] or expanded > most[1]:
            break
    else:
        return list(views), []
    values = f"{most[0]:,} values, or {most[1]:,} with its aliases expanded"
    why = f"with more than {kept} joins in each of {len(views):,} views, the file would have more than {values}"
    left_out = [
        LeftOut(
            f"{', '.join(join.name for join in view.joins[kept:])} of {view.table.qualified}",
            why,
            "choose fewer tables with --tables, or write it",
        )
        for view in views
        if len(view.joins) > kept
    ]
    return [_cut(view, kept) for view in views], left_out


def _cut(view: Proposed, kept: int) -> Proposed:
    joins = view.joins[:kept]
    return replace(view, joins=joins, kind="joined" if joins else "plain")


def _weight(join: Join) -> tuple[int, int]:
    """Values of a join as written, where a long list of columns is an alias, and with that expanded."""
    said = [join.order_by, join.limit is not None, join.one, join.hide, join.kind == "aggregates", join.refs]
    plain = 3 + len(join.on) + sum(bool(one) for one in said)
    below = [_weight(ref) for ref in join.refs]
    listed = _listed(join.columns)
    return (
        plain + (listed if len(join.columns) < SHARED else 1) + sum(one for one, _ in below),
        plain + listed + sum(one for _, one in below),
    )


def _listed(columns: Iterable[Pick]) -> int:
    found = [1 if isinstance(pick, str) else 2 for pick in columns]
    return 1 + sum(found) if found else 0
