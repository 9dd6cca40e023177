"""Whether two views' keys in a Redis can be the same, by the stems that the check of a file goes by."""

from __future__ import annotations

from cdc.keyspaces import outer_stems


def meet(first: str, second: str) -> bool:
    """Of two stems."""
    return first == second or first in outer_stems(second) or second in outer_stems(first)
