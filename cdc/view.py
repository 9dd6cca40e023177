"""Row-only views: a document is a function of one row, and its version is the row's position.

A view is resolved against the catalogue once (cdc/resolve/views.py), travels to executors as plain data, and compiles
itself there: per table a tuple of the columns that need a converter, and nothing to do for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from cdc import types
from cdc.catalogue import Table
from cdc.errors import DecodeError
from cdc.keys import document_id, split_id
from cdc.records.change import Change
from cdc.records.placeholders import not_in_the_log
from cdc.types import merge_fields

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["View", "merge_fields"]

Getter = Any
# Of a typed row: how its columns' values are had; which of these are null in any case; which must be text; and the
# converters of the others that need one.
TypedPlan = tuple[Getter, tuple[int, ...], tuple[int, ...], tuple[tuple[int, types.Converter], ...]]


@dataclass(frozen=True)
class View:
    """A document definition over one table.

    Attributes:
        name: the view's name: index, key space or table in a sink.
        table: the root; without columns that Debezium does not deliver (``cdc.types.unsupported``).
        key: the primary key's columns, in the order in which they make the id.
        columns: (source column, name in the document), in document order.
        fields: name -> Spark SQL expression over any column of the root.
        where: Spark SQL condition; a row that stops matching is deleted from the sink.
        topics: of a view of events, the topics that it reads in place of its table's.
        event_types: of a view of events of some types alone, these; the rows of others are no documents of it.
        type_column: then, the column that says a row's type.
    """

    name: str
    table: Table
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    topics: tuple[str, ...] = field(default=(), kw_only=True)
    # Not shown: nothing that is remembered of a view by its words depends on the two.
    event_types: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    type_column: str = field(default="", kw_only=True, repr=False)

    @classmethod
    def identity(cls, table: Table, name: str | None = None) -> View:
        """All columns of a table under their own names, but for those that Debezium does not deliver."""
        columns = tuple((column.name, column.name) for column in types.supported(table).columns)
        return cls(name or table.name, table, table.primary_key, columns)

    def __post_init__(self) -> None:
        # Columns that Debezium never delivers right are no columns for a view: see cdc/types/limits.py.
        object.__setattr__(self, "table", types.supported(self.table))

    def __getstate__(self) -> dict[str, Any]:
        # What was compiled holds closures, which do not pickle; it is compiled again where it arrives.
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @property
    def outlives_rows(self) -> bool:
        """Whether a document stays when its row has gone: of an event, whose row may be deleted once it is written."""
        return bool(self.topics)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Name in the document -> number in the table of the column that it shows: that stays when one is renamed."""
        by_name = self.table.by_name
        return {out: by_name[source].ordinal for source, out in self.columns if by_name[source].ordinal}

    # -- what it needs ------------------------------------------------------------------------------------------------

    @property
    def row_sql(self) -> list[str]:
        """The Spark SQL of its ``fields`` and ``where``, over its row; that of a joined view over the assembled one."""
        return [*self.fields.values(), *([self.where] if self.where else [])]

    @property
    def needs_spark(self) -> bool:
        """Whether Spark SQL has to see the rows."""
        return bool(self.fields) or self.where is not None

    @cached_property
    def _used(self) -> frozenset[str]:
        if self.needs_spark:
            return frozenset(self.table.by_name)
        return frozenset(source for source, _ in self.columns)

    def unavailable(self, change: Change) -> tuple[str, ...]:
        """Columns that this view uses and whose value the event does not hold (unchanged TOAST)."""
        if not change.unavailable:
            return ()
        return tuple(name for name in change.unavailable if name in self._used)

    # -- documents ----------------------------------------------------------------------------------------------------

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns of ``key`` in the order of the table's primary key: as a row's own id has them."""
        columns = self.table.primary_key
        return columns if sorted(self.key) == sorted(columns) else self.key  # of folded events it is another one

    def document_of(self, row: str) -> str:
        """The document's id of a root row's: another one only if ``key`` names the primary key in another order."""
        columns = self.row_key
        if self.key == columns:
            return row
        texts = dict(zip(columns, split_id(row, len(columns)), strict=True))
        return document_id([texts[name] for name in self.key])

    @cached_property
    def _key_plan(self) -> tuple[tuple[str, types.Converter | None], ...]:
        return tuple((name, types.json_converter(self.table.by_name[name])) for name in self.key)

    def document_id(self, change: Change) -> str:
        """The id of the document that a change is about.

        Raises:
            DecodeError: a key value is not of its column's type (terminal).
        """
        key = change.key
        try:
            return document_id(
                [key[name] if convert is None else convert(key[name]) for name, convert in self._key_plan]
            )
        except types.REFUSALS as error:
            raise self._not_of_type(change, change.key, dict(self._key_plan), error) from error

    @cached_property
    def _document_plan(self) -> tuple[Getter, tuple[str, ...], tuple[tuple[str, types.Converter], ...]]:
        """(values of the sources, output names, (output name, converter) of those that need one)."""
        by_name = self.table.by_name
        converters = [(out, types.json_converter(by_name[source])) for source, out in self.columns]
        return (
            _getter([source for source, _ in self.columns]),
            tuple(out for _, out in self.columns),
            tuple((out, convert) for out, convert in converters if convert is not None),
        )

    def render(self, change: Change) -> tuple[str, bytes | None]:
        """(document id, document); the document of a deleted row is None. ``fields`` and ``where`` are not looked at.

        Raises:
            UnavailableValue: the view uses a column whose value the event does not hold (terminal).
            DecodeError: a value is not of its column's type, e.g. after an ALTER TABLE (terminal).
        """
        identity = self.document_id(change)
        after = change.after
        if after is None:
            return identity, None
        if change.unavailable and (missing := self.unavailable(change)):
            raise not_in_the_log(change.table, missing, f"{change.topic}/{change.partition}/{change.offset}")
        getter, names, converters = self._document_plan
        try:
            try:
                document = dict(zip(names, getter(after), strict=True))
            except KeyError:
                document = {out: after.get(source) for source, out in self.columns}
            for name, convert in converters:
                value = document[name]
                if value is not None:
                    document[name] = convert(value)
            return identity, orjson.dumps(document)
        except types.REFUSALS as error:
            by_source = {source: types.json_converter(self.table.by_name[source]) for source, _ in self.columns}
            raise self._not_of_type(change, after, by_source, error) from error

    def _not_of_type(
        self,
        change: Change,
        row: Mapping[str, Any],
        converters: Mapping[str, types.Converter | None],
        error: Exception,
    ) -> DecodeError:
        where = f"record {change.topic}/{change.partition}/{change.offset}"
        for name, convert in converters.items():
            value = row.get(name)
            try:
                orjson.dumps(value if value is None or convert is None else convert(value))
            except types.REFUSALS as cause:
                kind = self.table.by_name[name].type_name
                return DecodeError(
                    f"{where}: column {name} of {change.table} does not hold a {kind}: {cause}",
                    means="it is a value that no sink could hold, or the table was altered since `headwater apply`",
                    fix="mend the row at the source, which clears the letter; of an altered table: `headwater apply`, "
                    "then `headwater letters FILE replay`",
                )
        return DecodeError(f"{where}: {error}")

    # -- rows for Spark SQL -------------------------------------------------------------------------------------------

    @cached_property
    def _typed_plans(self) -> dict[frozenset[str] | None, TypedPlan]:
        return {}

    def _typed_plan(self, used: frozenset[str] | None) -> TypedPlan:
        columns = self.table.columns
        idle = tuple(at for at, column in enumerate(columns) if used is not None and column.name not in used)
        converters = [(at, types.arrow_converter(column)) for at, column in enumerate(columns) if at not in idle]
        texts = tuple(index for index, convert in converters if convert is types.text)
        others = tuple((at, convert) for at, convert in converters if convert is not None and convert is not types.text)
        return _getter([column.name for column in columns]), idle, texts, others

    def typed_row(self, change: Change, used: frozenset[str] | None = None) -> tuple[Any, ...]:
        """Every column of the table, in its order, as values for ``arrow_schema``; only for a change with a row.

        Args:
            change: the change.
            used: the columns that are needed (``cdc.used.used_columns``); others are null. Records from before such a
                column got another type hold what that can't: the table is not read again for it, and a row that was
                lost to it would not come back. All columns if left out.

        Raises:
            UnavailableValue: a column's value is not in the event (terminal).
            DecodeError: a value is not of its column's type (terminal).
        """
        after = change.after
        assert after is not None
        if change.unavailable:
            raise not_in_the_log(change.table, change.unavailable, f"{change.topic}/{change.partition}/{change.offset}")
        plan = self._typed_plans.get(used)
        if plan is None:
            plan = self._typed_plans[used] = self._typed_plan(used)
        getter, idle, texts, converters = plan
        try:
            try:
                row = list(getter(after))
            except KeyError:
                row = [after.get(column.name) for column in self.table.columns]
            for index in idle:
                row[index] = None
            for index in texts:  # half of most rows: without a call for each
                if type(row[index]) is not str and row[index] is not None:
                    types.text(row[index])
            for index, convert in converters:
                if row[index] is not None:
                    row[index] = convert(row[index])
            return tuple(row)
        except types.REFUSALS as error:
            by_source = {
                column.name: types.json_converter(column)
                for column in self.table.columns
                if used is None or column.name in used
            }
            raise self._not_of_type(change, after, by_source, error) from error

    def spark_schema(self) -> list[tuple[str, str]]:
        """(column, Spark SQL type) of every column of the table."""
        return [(column.name, types.spark_type(column)) for column in self.table.columns]

    def arrow_schema(self) -> pa.Schema:
        """``pyarrow.Schema`` of ``typed_row``."""
        import pyarrow as pa

        return pa.schema([(column.name, types.arrow_type(column)) for column in self.table.columns])

    # -- mapping ------------------------------------------------------------------------------------------------------

    def elasticsearch_mapping(self, computed_types: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Elasticsearch's ``properties`` for the documents, before the user's overrides.

        Args:
            computed_types: field name -> Spark SQL type, of the view's ``fields``.
        """
        by_name = self.table.by_name
        properties = {out: types.elasticsearch_mapping(by_name[source]) for source, out in self.columns}
        return properties | {name: types.mapping_of_spark(kind) for name, kind in (computed_types or {}).items()}


def _getter(names: Sequence[str]) -> Getter:
    """A function from a dict to the values of ``names``, as a tuple even for one or none."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple(row[name] for name in names)
