"""May the replication role replicate, and no more than it needs?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.sql_names import sql_name
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
    service = site.db.execute(
        "SELECT rolname, pg_has_role(%s, oid, 'MEMBER') FROM pg_roles WHERE rolname = ANY(%s) ORDER BY rolname",
        [user, list(SERVICE_ROLES)],
    ).fetchall()
    if not (replicates or superuser or any(member for _, member in service)):
        message = f"role {user} may not replicate: the connector could not create its slot"
        # There a superuser is not to be had, and a role of the service's is how it lets one replicate.
        grants = [f"GRANT {sql_name(role)} TO {sql_name(user)}, as the service grants it" for role, _ in service]
        fix = "; or ".join([*grants, f"ALTER ROLE {sql_name(user)} REPLICATION (as a superuser)"])
        yield Finding(Level.ERROR, f"role {user}", message, fix)
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
