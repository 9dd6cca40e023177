"""Values of a key for which a table's columns have no place: Postgres's infinity, and NaN of a numeric.

In any other column such a value is null (docs/types.md). A key with a null in it meets no row of the table: each change
would add one, and no delete would find them. Documents, which hold it as text, know nothing of this.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc.catalogue import Column
from cdc.keys import document_id, split_id
from cdc.types import spark_type
from cdc.types.times import INFINITY, MINUS_INFINITY, arrow_timestamptz
from cdc.types.values import NUMERIC_WORDS
from cdc.view import View

_WORDS = {
    "date": frozenset((INFINITY, MINUS_INFINITY)),
    "timestamp_ntz": frozenset((INFINITY, MINUS_INFINITY)),
    "decimal": frozenset(NUMERIC_WORDS.values()),
}
_ZONED = "timestamp"


class TableKey:
    """The key of a table's rows, as ids name it.

    Args:
        columns: of the key, in its order.

    Attributes:
        lacking: names of the columns whose type does not hold all that Postgres's does; mostly none.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._names = [column.name for column in columns]
        kinds = [spark_type(column).partition("(")[0] for column in columns]
        found = [(at, column.name, kind) for at, (column, kind) in enumerate(zip(columns, kinds, strict=True))]
        self._judged = [one for one in found if one[2] == _ZONED or one[2] in _WORDS]
        self.lacking = tuple(name for _, name, _ in self._judged)

    @classmethod
    def of(cls, view: View) -> TableKey:
        """A view's; of a joined one the root's."""
        return cls([view.table.by_name[name] for name in view.key])

    def unheld(self, identity: str) -> str | None:
        """Why a table can't hold the row of an id; None if it can.

        Args:
            identity: of ``cdc.keys.document_id``.
        """
        for name, text in self.without_place(identity).items():
            return (
                f"key column {name} is {text}, which a table can't hold; give the row another value at the source, "
                "then `headwater letters FILE replay`"
            )
        return None

    def as_held(self, identity: str) -> str:
        """The id of what columns of a table hold of a row's key: null where they have no place for a part.

        Args:
            identity: of ``cdc.keys.document_id``.
        """
        lost = self.without_place(identity)
        if not lost:
            return identity
        return document_id(
            [
                None if name in lost else text
                for name, text in zip(self._names, split_id(identity, len(self._names)), strict=True)
            ]
        )

    def without_place(self, identity: str) -> dict[str, str]:
        """Name -> text of the parts of an id for which the columns have no place."""
        if not self._judged:
            return {}
        texts = split_id(identity, len(self._names))
        found = [(name, texts[at]) for at, name, kind in self._judged if at < len(texts) and _has_none(kind, texts[at])]
        return dict(found)


def _has_none(kind: str, text: str) -> bool:
    if kind != _ZONED:
        return text in _WORDS[kind]
    try:
        return arrow_timestamptz(text) is None  # a year after 294247, too
    except ValueError:
        return False
