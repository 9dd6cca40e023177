"""Does the publication send every captured table, whole?"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.captured.captured import read_captured
from connectors.database.publication import WANTED, by_owner, read_publication, used_elsewhere
from connectors.preflight.gathered import some
from connectors.preflight.model import Check, Finding, Level, Site


def run(site: Site) -> Iterator[Finding]:
    """It exists, covers the tables, sends inserts, updates and deletes, under the root's name, unfiltered; and nobody
    else made it for himself."""
    source, name = site.pipeline.source, site.pipeline.source.publication
    actual = read_publication(site.db, name, source.setup_user or source.user)
    apply = "`headwater apply` does it"
    if actual is None:
        yield Finding(Level.NOTE, name, f"publication {name} does not exist yet", apply)
        return
    wanted = {*site.catalogue.tables, *site.names.published}
    error = used_elsewhere(actual, name, site.names, wanted)
    if error is not None and not read_captured(site.setup_or_db, site.names):
        yield Finding(Level.ERROR, name, f"{error.what}: {error.means}", error.fix)
        return
    if not actual.owned:
        apply = f"it belongs to {actual.owner}: {by_owner(actual, name, site.db.info.server_version)}"
    if missing := actual.lacks(wanted):
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
