"""Are the tables those that were captured, and were they never away? Without that, changes are missing for good."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import ConnectError, TableChanged
from connectors.captured.captured import read_captured
from connectors.captured.changed import find_changed, left_out, merged, refusal
from connectors.debezium import connector_name
from connectors.preflight.model import Check, Finding, Level, Site


def run(site: Site) -> Iterator[Finding]:
    """Same table under each name, in the publication all the time, with the same key; and no gap is noted.

    And the connector sends what the publication gives it."""
    connection = site.setup_or_db
    for table, error in find_changed(connection, site.names, site.pipeline.source.publication).items():
        yield _told(table, error)
    try:
        config = site.connect.config(connector_name(site.pipeline))
    except ConnectError:
        return  # the check «connect» says so
    options = site.pipeline.connect.options
    for table, change in left_out(read_captured(connection, site.names), config or {}, options).items():
        yield _told(table, refusal(table, merged(None, change)))


def _told(table: str, error: TableChanged) -> Finding:
    return Finding(Level.ERROR, table, f"{error.what}: {error.means}", error.fix)


CHECK = Check("captured", "the tables are those that were captured", run, needs=("server",))
