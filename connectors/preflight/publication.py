"""Does the publication send every captured table, whole?"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.database.publication import WANTED, read_publication
from connectors.preflight.gathered import some
from connectors.preflight.model import Check, Finding, Level, Site


def run(site: Site) -> Iterator[Finding]:
    """It exists, covers the tables, sends inserts, updates and deletes, under the root's name, unfiltered."""
    name = site.pipeline.source.publication
    actual = read_publication(site.db, name)
    apply = "`headwater apply` does it"
    if actual is None:
        yield Finding(Level.NOTE, name, f"publication {name} does not exist yet", apply)
        return
    missing = sorted({*site.catalogue.tables, *site.names.published} - actual.tables)
    if missing:
        lacks = f"publication {name} does not send "
        yield Finding(Level.ERROR, name, lacks + ", ".join(missing), apply, short=lacks + some(missing))
    if not actual.right_options:
        message = f"publication {name} has other options than it should: {actual.describe()}; wanted: {WANTED}"
        yield Finding(Level.ERROR, name, message, apply)
    for table in sorted(actual.filtered & set(site.catalogue.tables)):
        message = f"publication {name} sends only some rows or columns of {table}: every view would lack the others"
        many = f"publication {name} does not send {{n}} tables whole ({{names}}): every view would lack rows or columns"
        yield Finding(Level.ERROR, table, message, apply, many)


CHECK = Check("publication", "the publication sends every table, whole", run, needs=("server", "tables"))
