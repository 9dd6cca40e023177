"""Whose a table is: told in its properties, so that nobody writes, shows or removes what another one made."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.errors import SinkRefused

# The table's property that says which generation it is.
GENERATION = "headwater.generation"
# And for whom it was made: ``<pipeline>/<sink>/<view>``.
MADE_BY = "headwater.made-by"


def made_by(owner: str, view: str) -> str:
    """What the table of a view says of whose it is; ``owner`` is ``<pipeline>/<sink>``."""
    return f"{owner}/{view}"


def is_ours(said: Mapping[str, str], owner: str, view: str) -> bool:
    """Whether a table is that of a sink's view. One made before they said whose they are (2026-11) says only that it is
    a generation of some sink's: then its name decides. What does not even say that is another tool's. Pure.

    Args:
        said: its properties.
        owner: ``<pipeline>/<sink>``.
        view: the view's name.
    """
    theirs = said.get(MADE_BY)
    return said.get(GENERATION) is not None if theirs is None else theirs == made_by(owner, view)


def maker(said: Mapping[str, str]) -> str:
    """Who has made a table that is not ours, in words. Pure."""
    return said.get(MADE_BY) or "another tool"


def not_ours(table: str, said: Mapping[str, str], owner: str, view: str) -> SinkRefused:
    """The error of who meets a table that is not theirs. Pure.

    Args:
        table: its name.
        said, owner, view: as ``is_ours``.
    """
    return SinkRefused(
        f"table {table} is there, but {maker(said)} has made it, and not {made_by(owner, view)}",
        means="two would overwrite and remove each other's rows; nothing was changed",
        # What somebody else made is not to be deleted.
        fix="give this sink another `namespace:`, or rename the view; drop or rename that table only if nobody keeps it"
        " any more (one of an earlier `name:` of this file goes with `headwater drop` under that name)",
    )
