"""History's tables through pyiceberg: what a cut asks of them, and its tags."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cdc.errors import SinkRefused
from cdc.history_names import FORMER, GAPS, HISTORY, former_name
from sinks.iceberg.catalogue import LEASE, gone_is_deleted
from sinks.iceberg.numbers import NUMBERS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

# Properties of a table of history: the source's table, its system identifier, its key's columns.
TABLE, SOURCE, KEY = "headwater.history-of", "headwater.source", "headwater.key"
# Where one begins that was begun anew because its key has another type (LSN in bytes); what is older is put aside.
BEGINS = "headwater.begins"
# And one for each cut that was given a name, with where it is.
CUT = "headwater.cut."


def load_history(catalog: Catalog, namespace: str, table: str) -> Table:
    """A table's history at its newest snapshot.

    Args:
        catalog: opened by ``open_catalog``.
        namespace: of the sink.
        table: the source's, without its schema.

    Raises:
        SinkRefused: there is none.
    """
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table((namespace, table + HISTORY))
    except NoSuchTableError as error:
        raise SinkRefused(
            f"no table {namespace}.{table}{HISTORY} in catalogue {catalog.name}",
            means="history has not begun: nothing of the table has been committed to it",
            fix="let `headwater run` run (`headwater status FILE` says how far it is)",
        ) from error


def key_of(table: Table) -> list[str]:
    """The key's columns."""
    return list(json.loads(table.properties[KEY]))


def floats_of(table: Table) -> list[str]:
    """Those of the key's columns that are floats."""
    kinds = {field.name: str(field.field_type) for field in table.schema().fields}
    return [name for name in key_of(table) if kinds.get(name) in ("float", "double")]


def own_columns(table: Table) -> frozenset[str]:
    """The columns that the source had when the history was brought to them last; none where that was not noted."""
    return frozenset(json.loads(table.properties.get(NUMBERS, "{}")))


def former_names(table: Table) -> dict[str, set[str]] | None:
    """Column -> the names that it has had: Iceberg knows a column by a number, and keeps all former schemas. None where
    somebody's upkeep has removed some of them: they are numbered from 0 on."""
    schemas = table.schemas()
    if sorted(schemas) != list(range(len(schemas))):
        return None
    had: dict[int, set[str]] = {}
    for schema in schemas.values():
        for field in schema.fields:
            had.setdefault(field.field_id, set()).add(field.name)
    return {field.name: had[field.field_id] - {field.name} for field in table.schema().fields}


def claimed_history(catalog: Catalog, namespace: str, table: str) -> int | None:
    """The newest lease token that has claimed a table's history (the source's, without its schema); None if there is no
    history, or if none has."""
    try:
        token = load_history(catalog, namespace, table).properties.get(LEASE)
    except SinkRefused:
        return None
    return None if token is None else int(token)


def has_key(catalog: Catalog, namespace: str, table: str, key: Sequence[str]) -> bool:
    """Whether there is a history of a table (the source's, without its schema), and of rows with this key."""
    try:
        return key_of(load_history(catalog, namespace, table)) == list(key)
    except SinkRefused:
        return False


def put_aside(catalog: Catalog, namespace: str, table: str) -> str | None:
    """Give a table's history another name, that says which key its rows have; None if there is none.

    Args:
        catalog: opened by ``open_catalog``.
        namespace: of the sink.
        table: the source's, without its schema.
    """
    try:
        held = load_history(catalog, namespace, table)
    except SinkRefused:
        return None
    name = former_name(table, key_of(held), {there[-1] for there in catalog.list_tables(namespace)})
    catalog.rename_table((namespace, table + HISTORY), (namespace, name))
    return name


def histories_in(catalog: Catalog, namespace: str, tables: Container[str], begin: str = "") -> list[Table]:
    """All histories in a namespace that are of one of these tables, those that were put aside too, by their names: that
    which is written comes first.

    Args:
        catalog: opened by ``open_catalog``.
        namespace: of the sink.
        tables: of the source, ``schema.table``.
        begin: of their names: others are not loaded.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        names = sorted(there[-1] for there in catalog.list_tables(namespace) if there[-1].startswith(begin))
    except NoSuchNamespaceError:  # nothing was written yet
        return []
    found: list[Table] = []
    for name in names:
        if name.endswith(HISTORY) or FORMER in name:
            with suppress(NoSuchTableError):  # it was put aside just now, or dropped
                found.append(catalog.load_table((namespace, name)))
    return [one for one in found if one.properties.get(TABLE, "") in tables]


def all_histories(catalog: Catalog, namespace: str, table: str, qualified: str) -> list[Table]:
    """As ``histories_in``, of one table.

    Args:
        catalog: opened by ``open_catalog``.
        namespace: of the sink.
        table: the source's, without its schema.
        qualified: with it.
    """
    return histories_in(catalog, namespace, {qualified}, table + HISTORY)


def holding(catalog: Catalog, namespace: str, table: str, qualified: str, cut: str) -> Table | None:
    """The history of a table that a cut was named in: it may have been put aside since. None if none has that name.

    Args:
        catalog: opened by ``open_catalog``.
        namespace: of the sink.
        table: the source's, without its schema.
        qualified: with it.
        cut: its name.
    """
    found = all_histories(catalog, namespace, table, qualified)
    return next((one for one in found if CUT + cut in one.properties), None)


def bounds(table: Table, name: str, where: str) -> tuple[Any, Any] | None:
    """As ``all_bounds`` of one column; None without any."""
    return all_bounds(table, (name,), where).get(name)


def all_bounds(table: Table, names: tuple[str, ...], where: str) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest of columns of numbers or moments, of the rows that a condition (SQL) lets through; one
    without any is left out. One scan, in bounded memory, and files that can't have any are not read."""
    import pyarrow.compute as pc

    found: dict[str, list[Any]] = {name: [] for name in names}
    for batch in table.scan(row_filter=where, selected_fields=names).to_arrow_batch_reader():
        for name, seen in found.items():
            if batch.num_rows:
                least_and_greatest = pc.min_max(batch.column(name)).as_py()
                seen += [one for one in least_and_greatest.values() if one is not None]
    return {name: (min(seen), max(seen)) for name, seen in found.items() if seen}


def gaps(catalog: Catalog, namespace: str, sink: str) -> list[dict[str, Any]]:
    """What history could not see: rows with ``since``, ``until``, ``found_at`` (moments), ``why`` and ``offsets``."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        rows = catalog.load_table((namespace, GAPS)).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    return [row for row in rows if row["sink"] == sink]


def tag(table: Table, name: str, said: Mapping[str, Any]) -> None:
    """Name a table's newest snapshot, and remember which cut it is; both in one commit. An empty table has only the
    latter."""
    with gone_is_deleted(), table.transaction() as transaction:
        transaction.set_properties({CUT + name: json.dumps(said, sort_keys=True)})
        snapshot = table.current_snapshot()
        if snapshot is not None:
            transaction._stage(*_refs(transaction, snapshot.snapshot_id, name))


def _refs(transaction: Any, snapshot: int, name: str) -> Any:
    from pyiceberg.table.update.snapshot import ManageSnapshots

    return ManageSnapshots(transaction).create_tag(snapshot, name)._commit()


def untag(table: Table, name: str) -> None:
    """Take a cut's name back, in one commit. A tag or branch of somebody else's that is called like one stays, and so
    does a branch that got the name of a cut of an empty table."""
    from pyiceberg.table.update.snapshot import ManageSnapshots

    if CUT + name not in table.properties:
        return
    ref = table.refs().get(name)
    with gone_is_deleted(), table.transaction() as transaction:
        transaction.remove_properties(CUT + name)
        if ref is not None and ref.snapshot_ref_type == "tag":
            transaction._stage(*ManageSnapshots(transaction).remove_tag(name)._commit())


def cuts_of(table: Table) -> dict[str, dict[str, Any]]:
    """Name -> what was said of the cut, of those that a table was named in."""
    return {name.removeprefix(CUT): json.loads(text) for name, text in table.properties.items() if name.startswith(CUT)}
