"""Documents of a joined view, a page of roots at a time: only the rows that a page needs are read.

Still plain SQL and the pure joins of ``truth.joins``, nothing of the engine. Small tables, to which thousands of
roots refer, are read once and kept; of the others only the rows that a page reaches, by key or by foreign key, to any
depth. So memory is the small tables and one page, whatever the size of the source; of large roots a page has
fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from cdc.catalogue import Table
from cdc.join.tree import Node
from cdc.paging import MOST_BYTES
from cdc.view import View
from connectors.postgres import Connection
from truth.assembled import marked
from truth.joins import Assembly, expressions, used_columns
from truth.rows import Row, has_index, is_small, length_of, looked_up, read_rows
from truth.spark_sql import FAILED, ask, canonical_rows, table_shape
from truth.versions import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows of small tables that are kept, of all of them together.
KEPT_ROWS = 100_000
# Roots a page: with rows that point at them there may be many of those, and each page asks Spark once if Spark has to
# say something about them. Without an index on a foreign key each page is a scan of that table: few pages, large ones.
PAGE, PAGE_OF_REFERENCES, PAGE_WITHOUT_INDEX = 2_000, 5_000, 20_000


class Pages:
    """Reads and assembles pages of roots.

    Args:
        connection: of ``truth.rows.snapshot``.
        view: a joined view.
        tree: its tree.
        said: Spark SQL over the assembled row, whose columns are read as well.
        spark: needed if the tree has aggregates with Spark SQL.
        keep: read small tables whole; not worth it for a few documents.
        history: of what the tree shows as it was.
    """

    def __init__(
        self,
        connection: Connection,
        view: View,
        tree: Node,
        said: Sequence[str],
        spark: SparkSession | None,
        *,
        keep: bool = True,
        history: History | None = None,
    ) -> None:
        self.tree = marked(tree, said)
        self._connection, self._view, self._spark = connection, view, spark
        self._tables, self._said = self.tree.tables(), expressions(self.tree)
        self._names = {name: self._needed(table) for name, table in self._tables.items()}
        self._assembly = Assembly(self.tree, view.key, history)
        self._paged = self._hold_small(KEPT_ROWS if keep else 0)
        self.size = self._page_size()

    @property
    def root_columns(self) -> list[str]:
        """The root's columns that ``documents`` needs."""
        return self._names[self.tree.table.qualified]

    def kinds(self) -> dict[tuple[str, str], str]:
        """(``schema.table``, expression) -> its Spark SQL type."""
        found: dict[tuple[str, str], str] = {}
        for name, said in self._said.items():
            assert self._spark is not None
            types = ask(self._spark, table_shape(self._tables[name], said), [], said).types
            found |= {(name, one): kind for one, kind in zip(said, types, strict=True)}
        return found

    def documents(self, roots: Iterable[Sequence[Row]]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        """(id, marked document) of root rows, a page at a time; without ``fields`` and ``where``."""
        rows = chain.from_iterable(roots)
        while page := list(_some(rows, self.size)):
            if self._paged:
                reached: dict[str, dict[tuple[str | None, ...], Row]] = {name: {} for name in self._paged}
                self._descend(self.tree, page, reached)
                for name, found in reached.items():
                    self._hold(name, found.values())
            yield list(self._assembly.documents(page))

    # -- small tables -------------------------------------------------------------------------------------------------

    def _hold_small(self, left: int) -> list[str]:
        """Keep what is small, ``left`` rows at the most; returns the names of the other tables."""
        paged = []
        counted = [(is_small(self._connection, self._tables[name], left), name) for name in self._assembly.joined]
        for count, name in sorted(counted, key=lambda one: (one[0] is None, one[0] or 0)):
            if count is None or count > left:
                paged.append(name)
                continue
            left -= count
            self._hold(name, chain.from_iterable(read_rows(self._connection, self._tables[name], self._names[name])))
        return paged

    def _hold(self, name: str, rows: Iterable[Row]) -> None:
        said = self._said.get(name)
        if not said:
            self._assembly.hold(name, rows)
            return
        # Spark sees the rows in the order in which they were held.
        held = list(rows)

        def evaluate(table: Table, wanted: Sequence[str]) -> Iterable[Sequence[Any]]:
            assert self._spark is not None
            shape = table_shape(table, wanted)
            answers = ask(self._spark, shape, canonical_rows(table, shape, held), wanted).rows
            # A row of which it can't be computed adds nothing, as one whose value is null.
            return [[None if value is FAILED else value for value in row] for row in answers]

        self._assembly.hold(name, held, evaluate)

    def _needed(self, table: Table) -> list[str]:
        said = self._said.get(table.qualified, [])
        names = {*used_columns(self.tree, self._view.key)[table.qualified], *table.primary_key}
        return list(names | set(table_shape(table, said).columns if said else ()))

    # -- what a page reaches ------------------------------------------------------------------------------------------

    def _page_size(self) -> int:
        size, paged = PAGE_OF_REFERENCES, set(self._paged)
        for _, node in self.tree.walk():
            pointing = [(below.table, below.on) for below in node.children]
            pointing += [(item.table, item.on) for item in node.aggregates]
            for table, on in pointing:
                if table.qualified not in paged:
                    continue
                if not has_index(self._connection, table, [right for _, right in on]):
                    return PAGE_WITHOUT_INDEX
                size = PAGE_OF_REFERENCES if self._said else PAGE
        return size

    def _descend(self, node: Node, above: Sequence[Row], reached: dict[str, dict[tuple[str | None, ...], Row]]) -> None:
        for below in node.nested:
            if below.as_of is None and not reached.keys().isdisjoint(below.tables()):
                self._descend(below, self._fetch(below.table, below.on, above, reached), reached)
        for item in node.aggregates:
            if item.table.qualified in reached:
                self._fetch(item.table, item.on, above, reached)

    def _fetch(
        self,
        table: Table,
        on: Sequence[tuple[str, str]],
        above: Sequence[Row],
        reached: dict[str, dict[tuple[str | None, ...], Row]],
    ) -> list[Row]:
        texts = dict.fromkeys(tuple(row[left] for left, _ in on) for row in above)
        values = [tuple(str(text) for text in one) for one in texts if None not in one]
        columns = [right for _, right in on]
        rows = looked_up(self._connection, table, self._names[table.qualified], columns, values)
        kept = reached.get(table.qualified)
        if kept is not None:
            for row in rows:
                kept.setdefault(tuple(row[name] for name in table.primary_key), row)
        return rows


def _some(rows: Iterator[Row], most: int) -> Iterator[Row]:
    """The next roots of a page: so many, or fewer where they are large."""
    length = 0
    for row in islice(rows, most):
        yield row
        length += length_of(row)
        if length >= MOST_BYTES:
            return
