"""What a search sink's indices and hidden aliases are called, beside the alias that readers use. Pure.

A view's *alias* is ``<index_prefix><view>``. Of generation N the index is ``<alias>_gN``, and what remembers its
deletes ``<alias>_gN_fences``; both are written to through hidden aliases that end with a lease's token, ``_w<token>``.
Standing queries are in ``<alias>_queries``, and judged in ``<alias>_gN_percolator``.
"""

from __future__ import annotations

import re

_GENERATION = re.compile(r"(.+)_g([0-9]+)")
_OWN = re.compile(r"(.+)_(?:g[0-9]+(?:_w[0-9]+|_fences(?:_w[0-9]+)?|_percolator)?|(queries))")


def concrete_index(alias: str, generation: int) -> str:
    """The index of a generation."""
    return f"{alias}_g{generation}"


def fences_index(concrete: str) -> str:
    """What remembers the deletes of a generation's index."""
    return f"{concrete}_fences"


def writing_alias(index: str, token: int) -> str:
    """What writes to an index go through, of the holder of a lease."""
    return f"{index}_w{token}"


def queries_index(alias: str) -> str:
    """A view's registered queries."""
    return f"{alias}_queries"


def percolator_index(concrete: str) -> str:
    """In which they judge a generation's documents."""
    return f"{concrete}_percolator"


def generation_of(index: str) -> tuple[str, int] | None:
    """(alias, generation) whose index is called so; None if no generation's is."""
    found = _GENERATION.fullmatch(index)
    return None if found is None else (found[1], int(found[2]))


def alias_beside(name: str) -> tuple[str, bool] | None:
    """(the alias for which we would make an index or a hidden alias of that name, whether for its queries alone); None
    if we make none."""
    found = _OWN.fullmatch(name)
    return None if found is None else (found[1], found[2] is not None)
