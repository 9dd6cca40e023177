"""Has every table a key? Without one there is no way to say which row a change is about."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.catalogue import Table
from cdc.join.comparable import COLLATED, ZONED
from cdc.resolve.names import DETERMINISTIC
from cdc.sql_names import sql_name, sql_table
from cdc.types import type_key
from connectors.captured.captured import read_captured
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.tables.facts import TableFacts


def run(site: Site) -> Iterator[Finding]:
    """A primary key, or a unique index that is the replica identity; and never replica identity NOTHING."""
    tables = site.catalogue.tables
    zoned = any(map(_zoned, tables.values()))
    captured = read_captured(site.db, site.names) if zoned and not site.anew else {}
    for name, table in tables.items():
        yield from key_findings(table, site.facts[name], captured=name in captured)


def _zoned(table: Table) -> list[str]:
    # A generated column may be in the key, and is none of the columns.
    keys = [table.by_name[column] for column in table.primary_key if column in table.by_name]
    return [column.name for column in keys if type_key(column) == "timetz"]


def key_findings(table: Table, fact: TableFacts, *, captured: bool = False) -> Iterator[Finding]:
    """What keeps a table's changes from being matched with rows.

    Args:
        table: as it is.
        fact: what else Postgres says of it.
        captured: perhaps by a Headwater that did not refuse it: what is refused only since is told, and stops nothing.
    """
    name = table.qualified
    if not table.primary_key and fact.has_primary_key:
        message = f"{name} has a primary key that is DEFERRABLE: Postgres does not log rows by such a key"
        fix = (
            f"make it anew without DEFERRABLE: ALTER TABLE {sql_table(name)} DROP CONSTRAINT …, ADD PRIMARY KEY (…);"
            " or a unique index on NOT NULL columns and"
            f" ALTER TABLE {sql_table(name)} REPLICA IDENTITY USING INDEX …"
        )
        many = "{n} tables have a primary key that is DEFERRABLE ({names}): Postgres does not log rows by such a key"
        yield Finding(Level.ERROR, name, message, fix, many)
    elif not table.primary_key:
        message = f"{name} has no primary key: updates and deletes could not be matched with rows"
        fix = (
            f"ALTER TABLE {sql_table(name)} ADD PRIMARY KEY (…); or a unique index on NOT NULL columns and"
            f" ALTER TABLE {sql_table(name)} REPLICA IDENTITY USING INDEX …"
        )
        many = "{n} tables have no primary key ({names}): updates and deletes could not be matched with rows"
        yield Finding(Level.ERROR, name, message, fix, many)
    elif hidden := sorted(set(table.primary_key) & set(fact.generated)):
        message = f"{name} has a generated column in its key ({', '.join(hidden)}), which is not captured"
        many = "{n} tables have a generated column in their key ({names}), which is not captured"
        yield Finding(Level.ERROR, name, message, "give the table a key of ordinary columns", many)
    elif collated := [column for column in table.primary_key if table.by_name[column].collated]:
        message = f"{name} has the column {', '.join(collated)} in its key; {COLLATED}"
        fix = DETERMINISTIC.format(table=sql_table(name), column=sql_name(collated[0]))
        many = f"{{n}} tables have a column in their key ({{names}}) of which this holds: {COLLATED}"
        yield Finding(Level.ERROR, name, message, fix, many)
    elif zoned := _zoned(table):
        one = f"{ZONED}: 10:00+02 and 08:00+00 are one row here"
        message = f"{name} has the timetz {', '.join(zoned)} in its key; {one}"
        fix = f"ALTER TABLE {sql_table(name)} ALTER COLUMN {sql_name(zoned[0])} TYPE time, or a key of other columns"
        many = f"{{n}} tables have a timetz in their key ({{names}}); {one}"
        yield Finding(Level.WARNING if captured else Level.ERROR, name, message, fix, many)
    elif fact.replica_identity == "n":
        message = f"{name} has replica identity NOTHING: Postgres refuses updates and deletes of a published table"
        many = "{n} tables have replica identity NOTHING ({names}): Postgres refuses their updates and deletes"
        yield Finding(Level.ERROR, name, message, f"ALTER TABLE {sql_table(name)} REPLICA IDENTITY DEFAULT", many)
    elif fact.replica_identity == "i" and fact.has_primary_key:
        message = f"{name} has a primary key, but its replica identity is another index: deletes would lack the key"
        many = "{n} tables have a primary key, but their replica identity is another index ({names}): deletes lack it"
        fix = f"ALTER TABLE {sql_table(name)} REPLICA IDENTITY DEFAULT (or FULL)"
        yield Finding(Level.ERROR, name, message, fix, many)


CHECK = Check("keys", "every table has a key", run, needs=("server", "tables"))
