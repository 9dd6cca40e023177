"""A table is removed with its files so that the same once more goes on where it was cut."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table


def purge(catalog: Catalog, table: Table) -> None:
    """Remove a table and its files.

    A catalogue with a server does it itself. In ours pyiceberg takes the name away first: cut after that, nobody would
    know of the files any more, with all rows in them. And it reads each manifest once for each snapshot that has it. So
    here data goes first, then what names it, each step by what the next one still has; the name after that.

    Args:
        catalog: that has the table.
        table: its newest state; nobody writes to it.
    """
    from pyiceberg.catalog import METADATA, delete_data_files, delete_files
    from pyiceberg.catalog.rest import RestCatalog

    name = table.name()[-2:]
    if isinstance(catalog, RestCatalog):
        catalog.purge_table(name)
        return
    manifests = _manifests(table)
    for manifest in manifests.values():
        with suppress(FileNotFoundError):  # it went in an attempt before, and its data before that
            delete_data_files(table.io, [manifest])
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    former = {entry.metadata_file for entry in table.metadata.metadata_log}
    for files in (set(manifests), lists, former):
        delete_files(table.io, files, "")
    catalog.drop_table(name)
    delete_files(table.io, {table.metadata_location}, METADATA)


def _manifests(table: Table) -> dict[str, ManifestFile]:
    """Those of all snapshots whose lists are still there, by path."""
    found: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        with suppress(FileNotFoundError):
            found |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    return found
