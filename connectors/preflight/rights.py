"""May both roles do what they must?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import SourceError
from cdc.sql_names import sql_name, sql_table
from connectors.database.grants import missing_rights, needed_rights, owners_right
from connectors.database.owners import foreign
from connectors.postgres import SHOW_ALL, Connection
from connectors.preflight.gathered import NAMED, offered, some
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.tables.row_security import hidden_tables


def run(site: Site) -> Iterator[Finding]:
    """The replication role may read the tables; the setup role owns them and may create a publication."""
    source = site.pipeline.source
    setup_role = source.setup_user or source.user
    own = site.names.schema
    rights = [right for right in needed_rights(site.names, site.catalogue.tables) if right.on.partition(".")[0] != own]
    missing: dict[tuple[bool, str], list[str]] = {}  # one finding for many tables: others would be buried under them
    for right in missing_rights(site.db, source.user, rights):
        missing.setdefault((right.is_schema, right.privilege), []).append(right.on)
    for (is_schema, privilege), objects in missing.items():
        on, lacks = ", ".join(objects), f"role {source.user} has no {privilege} on "
        many = f"{len(objects):,} {'schemas' if is_schema else 'tables'} ({some(objects)})"
        short = lacks + (many if len(objects) > NAMED else on)
        named = [sql_name(one) if is_schema else sql_table(one) for one in objects]
        grant, first = (
            f"GRANT {privilege} ON {'SCHEMA ' if is_schema else ''}{', '.join(part)} TO {sql_name(source.user)}"
            for part in (named, named[:NAMED])
        )
        if source.setup_user:
            does = "`headwater apply` does it"
            yield Finding(Level.NOTE, on, lacks + on, f"{does}: {grant}", short=short, short_fix=does)
        else:
            yield Finding(Level.ERROR, on, lacks + on, grant, short=short, short_fix=offered(grant, first))
    if isinstance(site.setup, SourceError):
        return
    if (error := foreign(site.setup, site.names)) is not None:
        yield Finding(Level.ERROR, site.names.schema, f"{error.what}: {error.means}", error.fix)
    yield from _setup(site, site.setup, setup_role)
    if source.setup_user:  # of source.user the check of the tables says so
        yield from _hidden(site, site.setup, setup_role)


def _setup(site: Site, setup: Connection, role: str) -> Iterator[Finding]:
    row = setup.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
    if not (row and row[0]):
        message = f"role {role} may not create a schema and a publication in database {site.pipeline.source.database}"
        fix = f'GRANT CREATE ON DATABASE "{site.pipeline.source.database}" TO "{role}"'
        yield Finding(Level.ERROR, f"role {role}", message, fix)
    owners = {fact.owner for fact in site.facts.values()}
    others = {
        str(name): bool(superuser)
        for name, superuser in setup.execute(
            "SELECT rolname, rolsuper FROM pg_roles WHERE rolname = ANY(%s) AND NOT pg_has_role(oid, 'USAGE')",
            [sorted(owners)],
        )
    }
    for fact in site.facts.values():
        if fact.owner in others:
            message = f"{fact.name} belongs to {fact.owner}: {role} can't add it to a publication or give it a trigger"
            many = f"{{n}} tables belong to {fact.owner} ({{names}}): {role} can't add them to a publication"
            many += " or give them a trigger"
            right = owners_right(fact.name, fact.owner, role, superuser=others[fact.owner])
            fix = f"set source.setup_user to the owner, or {right}"
            yield Finding(Level.ERROR, fact.name, message, fix, many)


def _hidden(site: Site, setup: Connection, role: str) -> Iterator[Finding]:
    """Tables of which the owner sees no more than policies show (FORCE ROW LEVEL SECURITY)."""
    why, fix = "missed deletes can't be looked for there", SHOW_ALL
    if site.pipeline.policy.truncate == "propagate":
        why, fix = f"{why}, and a TRUNCATE fails", SHOW_ALL.replace("FOR SELECT", "FOR ALL")
    for table in hidden_tables(setup, site.facts, role):
        message = f"row-level security hides rows of {table} from {role}: {why}"
        many = f"row-level security hides rows of {{n}} tables ({{names}}) from {role}: {why}"
        yield Finding(Level.WARNING, table, message, fix, many)


CHECK = Check("rights", "the roles may do what they must", run, needs=("server", "tables"))
