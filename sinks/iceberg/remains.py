"""What a table's files still hold of a row: of every file that any snapshot reaches, deleted rows too.

Deletes are merged on read: a row that is gone stays in its data file until that is written anew, and the file stays as
long as a snapshot, a tag or a branch reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc.keys import document_id, split_id
from sinks.iceberg.rows import held_keys

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.table import Table

# What a batch is made on for some seconds (spark/warehouse/large_merge.py); who erases removes what a killed one has
# left.
OURS = ("main", "headwater")
# Where rows of the table stand in a row of the warehouse's: names that lead there, and the columns of the key there;
# None where these are not shown.
Shown = tuple[Sequence[str], Sequence[str] | None]
_FIELD_ID = b"PARQUET:field_id"


@dataclass
class Remains:
    """What is there.

    Attributes:
        rows: file -> how many rows of it hold the key.
        hidden: files that are deleted in, or that the newest snapshot does not have, and of which nobody can say
            whether they hold it.
        snapshots: how many snapshots reach one of these files, or of the unsure ones.
        tags, branches: names of those that reach one with the key, or a hidden one; our own apart.
        unsure: files with rows whose key is null where the table's columns have no place for a part of it: they may be
            the row's or another one's.
    """

    rows: dict[str, int] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    snapshots: int = 0
    tags: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    unsure: set[str] = field(default_factory=set)


def remains(table: Table, places: Sequence[Shown], key: str, held: str | None = None) -> Remains:
    """Look into every file that a snapshot reaches; of each only the key's columns are read.

    Args:
        table: at its newest metadata.
        places: where the key stands in a row.
        key: the row's, as document ids have it.
        held: as the columns hold a key that they have no place for: rows with this may be the row's.
    """
    found, reached = Remains(), _reached(table)
    blind = any(names is None for _, names in places)
    unclean = _unclean(table, reached) if blind else set[str]()
    seen, held = [(path, names) for path, names in places if names is not None], held or key
    for file in sorted(set[str]().union(*reached.values())):
        met = _met(table, file, seen, {key, held}) if seen else []
        if met is None or file in unclean:
            found.hidden.add(file)
        if held != key and held in (met or ()):
            found.unsure.add(file)
        if rows := (met or []).count(key):
            found.rows[file] = rows
    holding = found.rows.keys() | found.hidden
    found.snapshots = sum(bool(files & (holding | found.unsure)) for files in reached.values())
    # What may be another row's is no reason to ask for somebody's tag.
    kept = {snapshot for snapshot, files in reached.items() if files & holding}
    refs = {name: ref for name, ref in sorted(table.refs().items()) if name not in OURS and ref.snapshot_id in kept}
    found.tags = tuple(name for name, ref in refs.items() if ref.snapshot_ref_type == "tag")
    found.branches = tuple(name for name in refs if name not in found.tags)
    return found


def _reached(table: Table) -> dict[int, set[str]]:
    """Snapshot -> paths of its data files."""
    from pyiceberg.manifest import ManifestContent

    known: dict[str, set[str]] = {}
    found: dict[int, set[str]] = {}
    for snapshot in table.metadata.snapshots:
        files = found[snapshot.snapshot_id] = set()
        for manifest in snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DATA:
                if manifest.manifest_path not in known:
                    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                    known[manifest.manifest_path] = {entry.data_file.file_path for entry in entries}
                files |= known[manifest.manifest_path]
    return found


def _unclean(table: Table, reached: Mapping[int, set[str]]) -> set[str]:
    """Files that hold more than the newest snapshot shows: those it does not have, and those it deletes in."""
    newest = table.current_snapshot()
    if newest is None:
        return set()
    deleted_in = {task.file.file_path for task in table.scan().plan_files() if task.delete_files}
    others = set[str]().union(*reached.values()) - reached[newest.snapshot_id]
    return others | deleted_in


def _met(table: Table, file: str, places: Sequence[Shown], wanted: set[str]) -> list[str] | None:
    """The keys of a file's rows that are among the wanted ones; None of a file that can't be looked into."""
    import pyarrow.parquet as pq

    if not file.endswith(".parquet"):
        return None
    found: list[str] = []
    with table.io.new_input(file).open() as stream, pq.ParquetFile(stream) as opened:
        columns = {path[0] if path else name for path, names in places for name in (names or ())}
        there = _names(table, opened.schema_arrow, columns)
        if len(there) < len(columns):
            return None if any(_may_hold(opened, there, places, one) for one in wanted) else []
        for batch in opened.iter_batches(columns=list(there.values())):
            present = {name: batch.column(one) for name, one in there.items()}
            for path, names in places:
                found += [one for one in _keys(present, path, names or ()) if one in wanted]
    return found


def _may_hold(opened: pq.ParquetFile, there: Mapping[str, str], places: Sequence[Shown], key: str) -> bool:
    """Whether a file that lacks a part of the key (a table of which that was no key then) may hold it by the others."""
    for path, names in places:
        parts = dict(zip(names or (), split_id(key, len(names or ())), strict=True))
        shared = [name for name in parts if name in there]
        if path or not shared:
            return True
        part = document_id([parts[name] for name in shared])
        for batch in opened.iter_batches(columns=[there[name] for name in shared]):
            if part in _keys({name: batch.column(there[name]) for name in shared}, (), shared):
                return True
    return False


def _names(table: Table, schema: pa.Schema, columns: set[str]) -> dict[str, str]:
    """Name in the table -> name in a file, which may be older than the column's last renaming."""
    by_id = {int(one.metadata[_FIELD_ID]): one.name for one in schema if one.metadata and _FIELD_ID in one.metadata}
    ids = {one.name: one.field_id for one in table.schema().fields}
    return {name: by_id[ids[name]] for name in columns if ids.get(name) in by_id}


def _keys(columns: Mapping[str, pa.Array], path: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    if path:
        nested: Any = _flat(columns[path[0]])
        for name in path[1:]:
            nested = _flat(pc.struct_field(nested, name))
        # What is not there has no key: an empty place among references.
        nested = nested.drop_null()
        present = {name: pc.struct_field(nested, name) for name in names}
    else:
        present = {name: columns[name] for name in names}
    batch = pa.RecordBatch.from_arrays([present[name] for name in names], list(names))
    yield from held_keys([batch], names)


def _flat(array: pa.Array) -> pa.Array:
    """Of an array of arrays the inner ones, one behind the other."""
    kind = array.type
    return pc.list_flatten(array) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else array
