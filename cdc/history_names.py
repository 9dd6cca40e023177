"""What history's tables and views are called; the pipeline file's checks must know."""

import re
from collections.abc import Iterable, Sequence

# Behind a table's name.
HISTORY, VERSIONS = "_history", "_versions"
# What history could not see, a row a gap; in the sink's namespace.
GAPS = "_hw_history_gaps"
# Behind the name of a history whose rows had another key, before the columns of that key.
FORMER = f"{HISTORY}_by_"


def former_name(table: str, key: Sequence[str], taken: Iterable[str]) -> str:
    """What a table's history is called from when its rows have another key. Pure.

    Args:
        table: the source's, without its schema.
        key: the columns of the key that they had.
        taken: names that there are.
    """
    return free(table + FORMER + "_".join(re.sub(r"\W+", "_", name) for name in key), taken)


def free(stem: str, taken: Iterable[str]) -> str:
    """A name that nothing has, in whatever letter case: the stem, or with a number behind it. Pure."""
    used = {name.lower() for name in taken}
    return next(name for name in (stem, *(f"{stem}_{n}" for n in range(2, 1000))) if name.lower() not in used)
