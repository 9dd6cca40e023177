"""What every document of a joined view must be, from the tables alone: hash joins over Postgres's own text.

A second opinion on the engine in ``cdc.join``: all rows at once instead of one change after another, nothing kept, no
order of events, and none of its code. Values come from ``truth.values``, comparing and adding from
``truth.arithmetic``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from cdc.catalogue import Table
from cdc.join.tree import Aggregate, Node
from cdc.keys import document_id
from truth.arithmetic import Cell, aggregate, cell_of_number, cell_of_result, cells_of, order, same_of
from truth.placing import place
from truth.values import remembered
from truth.versions import History

TextRow = Mapping[str, str | None]
# (table, Spark SQL expressions) -> for each row of the table, in order, the expressions' values (int, Decimal, …).
Evaluate = Callable[[Table, Sequence[str]], Iterable[Sequence[Any]]]
Values = tuple[Any, ...]


def documents(
    root: Node, key: Sequence[str], rows: Mapping[str, Iterable[TextRow]], evaluate: Evaluate | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, document) of every row of the root, without the view's ``fields`` and ``where``.

    Args:
        root: the tree.
        key: the root's columns that make the id, in order.
        rows: ``schema.table`` -> its rows, column -> text as ``truth.values.select_expression`` reads it, for all
            ``tables()`` of the tree and ``used_columns`` of each. Read once each, the root's last and lazily.
        evaluate: gives the values of ``expressions``; called once a table, after that table's rows were read.

    Raises:
        ValueError: a text is not of its column's type, or a sum is over what is no number.
    """
    assembly = Assembly(root, key)
    for name in assembly.joined:
        assembly.hold(name, rows[name], evaluate)
    name = root.table.qualified
    return assembly.held_documents() if name in assembly.joined else assembly.documents(rows[name])


def expressions(root: Node) -> dict[str, list[str]]:
    """``schema.table`` -> the Spark SQL over its rows that the tree's aggregates need."""
    found: dict[str, dict[str, None]] = {}
    for _, node in root.walk():
        for item in node.aggregates:
            said = [item.where] if item.where is not None else []
            if item.value is not None and item.value not in item.table.by_name:
                said.append(item.value)
            for expression in said:
                found.setdefault(item.table.qualified, {})[expression] = None
    return {table: list(said) for table, said in found.items()}


def used_columns(root: Node, key: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """``schema.table`` -> the columns that ``documents`` looks at; what ``expressions`` name comes on top."""
    used: dict[str, set[str]] = {name: set() for name in root.tables()}
    used[root.table.qualified].update(key)
    for _, node in root.walk():
        mine = used[node.table.qualified]
        mine.update(source for source, _ in node.columns)
        mine.update(right for _, right in node.on)
        mine.update(below.as_of for below in node.nested if below.as_of is not None)
        if node.kind == "child":  # which are sorted, whatever is shown of them
            mine.update(node.table.primary_key, (one.column for one in node.order_by))
        for below in node.nested:
            mine.update(left for left, _ in below.on)
        for item in node.aggregates:
            mine.update(left for left, _ in item.on)
            used[item.table.qualified].update(item.foreign_key)
            if item.value in item.table.by_name:
                used[item.table.qualified].add(str(item.value))
    tables = root.tables()
    return {
        name: tuple(column.name for column in tables[name].columns if column.name in columns)
        for name, columns in used.items()
    }


class _Reader:
    """Text rows of one table to tuples of canonical values."""

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        self.table = table
        self.at = {name: index for index, name in enumerate(columns)}
        self._plan = [(table.by_name[name], name, dict[str, Any]()) for name in columns]
        self._matching: dict[tuple[str, ...], list[tuple[int, Callable[[Any], Hashable] | None]]] = {}

    def read(self, texts: Iterable[TextRow]) -> Iterator[Values]:
        for row in texts:
            yield tuple([remembered(column, row[name], known) for column, name, known in self._plan])

    def match(self, columns: tuple[str, ...], values: Values) -> Hashable | None:
        """What must be equal for rows to join on these columns; None if one of them is NULL, which joins nothing."""
        if columns not in self._matching:
            self._matching[columns] = [(self.at[name], same_of(self.table.by_name[name])) for name in columns]
        found = []
        for at, made in self._matching[columns]:
            value = values[at]
            if value is None:
                return None
            found.append(value if made is None else made(value))
        return tuple(found)


class _Held:
    """All rows of one table, found by the columns that joins ask for."""

    def __init__(self, reader: _Reader, texts: Iterable[TextRow]) -> None:
        self.reader = reader
        self.rows = list(reader.read(texts))
        self.results: dict[str, list[Any]] = {}
        self._indexes: dict[tuple[str, ...], dict[Hashable, list[int]]] = {}

    def evaluate(self, evaluate: Evaluate, wanted: Sequence[str]) -> None:
        answers = list(evaluate(self.reader.table, wanted))
        if len(answers) != len(self.rows):
            raise ValueError(f"{len(answers)} answers for {len(self.rows)} rows of {self.reader.table.qualified}")
        self.results = {said: [answer[at] for answer in answers] for at, said in enumerate(wanted)}

    def matching(self, columns: tuple[str, ...], match: Hashable | None) -> list[int]:
        """Numbers of the rows whose columns equal what a row of another table has."""
        if columns not in self._indexes:
            index: dict[Hashable, list[int]] = {}
            for number, values in enumerate(self.rows):
                own = self.reader.match(columns, values)
                if own is not None:
                    index.setdefault(own, []).append(number)
            self._indexes[columns] = index
        return [] if match is None else self._indexes[columns].get(match, [])

    def cells(self, item: Aggregate, numbers: Iterable[int]) -> list[Cell]:
        """What an aggregate looks at in these rows: where its condition holds and its value is not null."""
        if item.where is not None:
            holds = self.results[item.where]
            numbers = [number for number in numbers if holds[number] is True]
        if item.value is None:
            return [Cell(None, None, None, "other") for _ in numbers]
        if item.value in self.reader.at:
            at, cell = self.reader.at[item.value], cells_of(self.reader.table.by_name[item.value])
            values = [self.rows[number][at] for number in numbers]
        else:
            added = item.function in ("sum", "avg")
            cell, values = cell_of_number if added else cell_of_result, [self.results[item.value][n] for n in numbers]
        return [cell(value) for value in values if value is not None]

    def sort(self, node: Node, numbers: Iterable[int]) -> list[int]:
        """Children in their order: last criterion first, because each sort keeps the order of equals."""
        ordered = list(numbers)
        for name in reversed(node.table.primary_key):
            ordered = self._sorted(ordered, name, descending=False, nulls_first=True)
        for one in reversed(node.order_by):
            ordered = self._sorted(ordered, one.column, one.descending, one.nulls_first)
        return ordered

    def _sorted(self, numbers: list[int], name: str, descending: bool, nulls_first: bool) -> list[int]:
        at, column = self.reader.at[name], self.reader.table.by_name[name]
        nulls = [number for number in numbers if self.rows[number][at] is None]
        others = [number for number in numbers if self.rows[number][at] is not None]
        others.sort(key=lambda number: order(column, self.rows[number][at]), reverse=descending)
        return nulls + others if nulls_first else others + nulls


class Assembly:
    """Documents of a tree from tables in memory, each of them whole or, for a page of roots, what that page needs.

    Args:
        root: the tree.
        key: the root's columns that make the id, in order.
        history: of what the tree shows as it was.
    """

    def __init__(self, root: Node, key: Sequence[str], history: History | None = None) -> None:
        self.root, self.key, self._history = root, key, history
        self.joined = _joined(root)
        tables, self._said = root.tables(), expressions(root)
        self._readers = {name: _Reader(tables[name], used) for name, used in used_columns(root, key).items()}
        self._held: dict[str, _Held] = {}
        # Of references, (number of the row) -> its part of documents: thousands of flights share an airline.
        self._refs: dict[int, dict[int, Any]] = {}
        self._plans = {id(node): self._plan(node) for _, node in root.walk()}
        self._resting = {
            name: [id(node) for _, node in root.walk() if node.kind == "ref" and name in node.tables()]
            for name in tables
        }

    def hold(self, name: str, texts: Iterable[TextRow], evaluate: Evaluate | None = None) -> None:
        """Take rows of a table in the place of those it had.

        Args:
            name: ``schema.table``.
            texts: its rows; for the documents that follow these must be all that join.
            evaluate: see ``documents``.
        """
        held = _Held(self._readers[name], texts)
        if said := self._said.get(name):
            if evaluate is None:
                raise ValueError(f"{name} has expressions and nothing to evaluate them: {', '.join(said)}")
            held.evaluate(evaluate, said)
        self._held[name] = held
        for node in self._resting[name]:
            self._refs.pop(node, None)

    def documents(self, texts: Iterable[TextRow]) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, document) of rows of the root."""
        return self._made(self._readers[self.root.table.qualified].read(texts))

    def held_documents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, document) of the root's rows that are held, where the tree joins the root's table to itself."""
        return self._made(self._held[self.root.table.qualified].rows)

    def _made(self, rows: Iterable[Values]) -> Iterator[tuple[str, dict[str, Any]]]:
        for values in rows:
            yield self._identity(values), self._document(self.root, values)

    def _identity(self, values: Values) -> str:
        at = self._readers[self.root.table.qualified].at
        found = [values[at[name]] for name in self.key]
        return document_id([orjson.dumps(one).decode() if isinstance(one, orjson.Fragment) else one for one in found])

    def _plan(self, node: Node) -> tuple[list[tuple[str, int]], list[tuple[Node, tuple[str, ...], tuple[str, ...]]]]:
        at = self._readers[node.table.qualified].at
        below = [(one, tuple(left for left, _ in one.on), tuple(right for _, right in one.on)) for one in node.nested]
        return [(name, at[source]) for source, name in node.columns], below

    def _document(self, node: Node, values: Values) -> Any:
        """A row and everything below it; the one value of a row that is shown as a value."""
        reader = self._readers[node.table.qualified]
        columns, nested = self._plans[id(node)]
        if node.value is not None:
            return values[reader.at[node.value]]
        out = {name: values[at] for name, at in columns}
        for below, lefts, rights in nested:
            if below.as_of is not None:
                place(below, self._as_it_was(below, [values[reader.at[left]] for left in lefts], values, reader), out)
                continue
            held = self._held[below.table.qualified]
            numbers = held.matching(rights, reader.match(lefts, values))
            if below.kind == "ref":
                made = self._reference(below, held, numbers)
                found = [] if made is _NOTHING else [made]
            else:
                kept = held.sort(below, numbers)[: below.limit]
                found = [self._document(below, held.rows[number]) for number in kept]
            place(below, found, out)
        for item in node.aggregates:
            held = self._held[item.table.qualified]
            match = reader.match(tuple(left for left, _ in item.on), values)
            cells = held.cells(item, held.matching(item.foreign_key, match))
            out[item.name] = aggregate(item.function, cells, distinct=item.distinct)
        return out

    def _as_it_was(self, node: Node, key: Sequence[Any], above: Values, reader: _Reader) -> list[Any]:
        """What a reference shows of the row that there was when the row above says."""
        if self._history is None:
            raise ValueError(f"{node.name} is shown as it was, and no history is at hand")
        names = self._readers[node.table.qualified].at
        row = self._history.shown(node.table.qualified, key, above[reader.at[str(node.as_of)]], names)
        return [] if row is None else [self._document(node, tuple(row))]

    def _reference(self, node: Node, held: _Held, numbers: list[int]) -> Any:
        if not numbers:
            return _NOTHING
        if len(numbers) > 1:
            raise ValueError(f"{node.name} points at {len(numbers)} rows of {node.table.qualified}")
        known = self._refs.setdefault(id(node), {})
        made = known.get(numbers[0], _NOTHING)
        if made is _NOTHING:
            made = known[numbers[0]] = self._document(node, held.rows[numbers[0]])
        return made


# No row, as opposed to a row whose value is NULL.
_NOTHING = object()


def _joined(root: Node) -> list[str]:
    """Tables that stand below the root as they are or are summed up; the root's own too if it is one of them."""
    found = dict.fromkeys(node.table.qualified for path, node in root.walk() if path and node.as_of is None)
    for _, node in root.walk():
        found |= dict.fromkeys(item.table.qualified for item in node.aggregates)
    return list(found)
