"""May the replication role replicate, and no more than it needs?"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.preflight.model import Check, Finding, Level, Site

# Managed services give replication through a role of theirs instead of the attribute.
SERVICE_ROLES = ("rds_replication", "cloudsqlreplica", "azure_pg_admin")


def run(site: Site) -> Iterator[Finding]:
    """The role has REPLICATION, is no superuser, and owns none of the captured tables."""
    user = site.pipeline.source.user
    row = site.db.execute(
        "SELECT rolreplication, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = %s", [user]
    ).fetchone()
    replicates, superuser = (bool(row[0]), bool(row[1])) if row else (False, False)
    members = site.db.execute(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) AND pg_has_role(%s, oid, 'MEMBER')",
        [list(SERVICE_ROLES), user],
    ).fetchall()
    if not (replicates or superuser or members):
        message = f"role {user} may not replicate: the connector could not create its slot"
        yield Finding(Level.ERROR, f"role {user}", message, f'ALTER ROLE "{user}" REPLICATION (as a superuser)')
    if superuser:
        message = f"role {user} is a superuser: far more than a connector needs, and its password lies in Kafka Connect"
        fix = "use a role made with CREATE ROLE … LOGIN REPLICATION, and source.setup_user for the tables' owner"
        yield Finding(Level.WARNING, f"role {user}", message, fix)
    elif site.pipeline.source.setup_user not in (None, user):
        owned = sorted(fact.name for fact in site.facts.values() if fact.owner == user)
        if owned:
            message = f"role {user} owns {', '.join(owned)}: it could change what it should only read"
            yield Finding(Level.WARNING, f"role {user}", message, "let another role own the tables")


CHECK = Check("role", "the replication role may replicate, and no more", run, needs=("server", "tables"))
