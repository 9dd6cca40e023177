"""Which columns of the source a table's columns are: by their numbers, which stay when one is renamed.

By names alone a table that has missed a step would have one column's values taken for another's
(docs/decisions/schema-evolution.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cdc.catalogue import Table

# Properties of a table: the numbers that its columns have in the source, by their names; and of which table of the
# source, by its oid. Histories, which are followed only where a name is known to have been renamed, have the first.
NUMBERS, NUMBERS_OF = "headwater.columns", "headwater.columns-of"


def numbers_in(said: Mapping[str, str], table: Table) -> dict[str, int]:
    """Name -> number of a table's columns as it was brought to them last; empty if that is not known, or if they were
    those of another table of the source: there the same number is another column. Pure.

    Args:
        said: the properties of the table in the warehouse.
        table: the source's, as it is now.
    """
    other = {said.get(NUMBERS_OF) or "0", str(table.oid)} - {"0"}
    return {} if len(other) > 1 else json.loads(said.get(NUMBERS) or "{}")
