"""What the examples share: where Postgres is, which roles they need, and a database for each."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.errors import ConfigError, SourceError

Progress = Callable[[str], None]

REPLICATION_ROLE = "headwater"
# Two loaders started at once would both find a role missing and both create it: one at a time on a server.
SETUP_LOCK = 4_711_001
# A wrong port on a machine that drops packets would otherwise hang for minutes without a word.
CONNECT_TIMEOUT_S = 10


class PostgresEndpoint(Protocol):
    """Where a Postgres server is and how its superuser gets in (``deploy.local.stack.Endpoints`` fits)."""

    @property
    def postgres_host(self) -> str:
        """Host name or address."""

    @property
    def postgres_port(self) -> int:
        """TCP port."""

    @property
    def postgres_superuser(self) -> str:
        """A role that may create roles and databases."""

    @property
    def postgres_password(self) -> str | None:
        """Its password; None where loopback is trusted."""


@dataclass(frozen=True)
class Server:
    """A ``PostgresEndpoint`` made from environment variables."""

    postgres_host: str
    postgres_port: int
    postgres_superuser: str
    postgres_password: str | None = field(repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Server:
        """Read ``HEADWATER_POSTGRES_HOST``, ``_PORT``, ``_SUPERUSER`` and ``_PASSWORD``.

        Defaults are the local stack's: 127.0.0.1, ``HEADWATER_PORT_BASE`` + 432, postgres, no password.

        Raises:
            ConfigError: a port that is not a number from 1 to 65535.
        """
        env = os.environ if environ is None else environ
        port_text = env.get("HEADWATER_POSTGRES_PORT", "")
        base_text = env.get("HEADWATER_PORT_BASE") or "15000"
        try:
            port = int(port_text) if port_text else int(base_text) + 432
        except ValueError:
            port = 0
        if not 0 < port < 65536:
            raise ConfigError(
                f"HEADWATER_POSTGRES_PORT={port_text!r} (HEADWATER_PORT_BASE={base_text!r}) gives no port.",
                fix='set it to the port of your Postgres, or run `eval "$(headwater ps --env)"`',
            )
        return cls(
            postgres_host=env.get("HEADWATER_POSTGRES_HOST") or "127.0.0.1",
            postgres_port=port,
            postgres_superuser=env.get("HEADWATER_POSTGRES_SUPERUSER") or "postgres",
            postgres_password=env.get("HEADWATER_POSTGRES_PASSWORD") or None,
        )


@dataclass(frozen=True)
class Passwords:
    """The two passwords of an example: the replication role's and the owner's."""

    source: str = field(repr=False)
    setup: str = field(repr=False)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, home: Path | None = None) -> Passwords:
        """``HEADWATER_SOURCE_PASSWORD`` and ``HEADWATER_SETUP_PASSWORD``; else those kept in ``home``; else new ones.

        Args:
            environ: environment; default the process's.
            home: folder of the local stack; default ``HEADWATER_HOME`` or ``.headwater``. New passwords are written
                to ``home/secrets/examples.env`` (mode 0600) so that the next call finds them.

        Returns:
            both passwords.
        """
        env = os.environ if environ is None else environ
        path = secrets_file(env, home)
        kept = _read_env_file(path)
        wanted = {name: env.get(name) or kept.get(name) for name in PASSWORD_VARIABLES}
        complete = {name: value or secrets.token_urlsafe(24) for name, value in wanted.items()}
        if None in wanted.values():
            _write_env_file(path, complete)
        return cls(*(complete[name] for name in PASSWORD_VARIABLES))

    def as_environment(self) -> dict[str, str]:
        """The variables that the examples' pipeline files read."""
        return dict(zip(PASSWORD_VARIABLES, (self.source, self.setup), strict=True))


PASSWORD_VARIABLES = ("HEADWATER_SOURCE_PASSWORD", "HEADWATER_SETUP_PASSWORD")


def secrets_file(environ: Mapping[str, str], home: Path | None = None) -> Path:
    """Where generated passwords are kept; a shell can read it: ``set -a; . FILE; set +a``."""
    return (home or Path(environ.get("HEADWATER_HOME") or ".headwater")) / "secrets" / "examples.env"


def _read_env_file(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _write_env_file(path: Path, values: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Created with the right mode: a chmod afterwards would leave a moment in which anyone can read it.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())


def conninfo(endpoint: PostgresEndpoint, database: str, user: str | None = None, password: str | None = None) -> str:
    """A libpq connection string; without ``user`` the superuser's."""
    if user is None:
        user, password = endpoint.postgres_superuser, endpoint.postgres_password
    return make_conninfo(
        host=endpoint.postgres_host,
        port=endpoint.postgres_port,
        dbname=database,
        user=user,
        password=password,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="headwater-example",
        options="-c timezone=UTC",  # a timestamp written without its zone must mean the same on every machine
    )


def connect(info: str, *, autocommit: bool = False) -> psycopg.Connection:
    """Connect, or say which server did not answer.

    Raises:
        SourceError: the server can't be reached or refuses the role.
    """
    try:
        return psycopg.connect(info, autocommit=autocommit)
    except psycopg.OperationalError as error:
        raise SourceError(
            f"Postgres can't be used: {str(error).strip()}",
            fix='start the local stack (`headwater up`), or set HEADWATER_POSTGRES_* (`eval "$(headwater ps --env)"`)',
        ) from error


def ensure_database(
    endpoint: PostgresEndpoint,
    name: str,
    owner: str,
    replication_role: str = REPLICATION_ROLE,
    passwords: Passwords | None = None,
) -> str:
    """Create a database, the role that owns it and the role that replicates it; what exists keeps all that it has.

    The replication role gets no more than change data capture needs: LOGIN, REPLICATION, CONNECT to this database and
    SELECT on what the owner creates in ``public`` (the snapshot reads it). It owns nothing: publications, heartbeat and
    signal tables are made by the owner.

    Args:
        endpoint: the server, with its superuser.
        name: database; created with the owner ``owner``.
        owner: role that owns the database and its tables (the pipeline file's ``setup_user``).
        replication_role: role that Debezium uses (the pipeline file's ``user``).
        passwords: default ``Passwords.load()``.

    Returns:
        connection string of the owner for the new database.

    Raises:
        SourceError: the server can't be reached, or a role exists with another password.
    """
    words = passwords or Passwords.load()
    with connect(conninfo(endpoint, "postgres"), autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(%s)", [SETUP_LOCK])  # released when the connection closes
        _ensure_role(endpoint, conn, owner, words.setup)
        _ensure_role(endpoint, conn, replication_role, words.source, "REPLICATION")
        database, owner_id = sql.Identifier(name), sql.Identifier(owner)
        if conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            create = sql.SQL("CREATE DATABASE {} OWNER {} ENCODING 'UTF8' TEMPLATE template0")
            conn.execute(create.format(database, owner_id))
            # Only then: in a database that was there before, other roles may connect by this right.
            conn.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))
        conn.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, sql.Identifier(replication_role)))
        owner_info = conninfo(endpoint, name, owner, words.setup)
        with connect(owner_info) as as_owner:
            select = sql.SQL("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {}")
            as_owner.execute(select.format(sql.Identifier(replication_role)))
    return owner_info


def _ensure_role(
    endpoint: PostgresEndpoint, conn: psycopg.Connection, role: str, password: str, right: str = ""
) -> None:
    name, attribute = sql.Identifier(role), sql.SQL(right)
    exists = conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone() is not None
    if exists:
        # Never a new password for a role that exists: whatever uses it now, a connector say, would be locked out.
        # Nor is anything taken from it: it may be somebody's own role of that name.
        _check_login(endpoint, role, password)
        conn.execute(sql.SQL("ALTER ROLE {} LOGIN {}").format(name, attribute))
        return
    # The hash is made here: the plain password never reaches the server's log, whatever log_statement says.
    secret = conn.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    create = sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS {} PASSWORD {}")
    conn.execute(create.format(name, attribute, sql.Literal(secret)))


def _check_login(endpoint: PostgresEndpoint, role: str, password: str) -> None:
    try:
        psycopg.connect(conninfo(endpoint, "postgres", role, password)).close()
    except psycopg.OperationalError as error:
        if "password authentication failed" not in str(error):
            return  # this database is closed to the role, or it may not log in yet: nothing is said about the password
        raise SourceError(
            f"The role {role} exists, and its password is another one.",
            means="nothing was changed: a new password would lock out whatever uses the role now",
            fix=f"set {' and '.join(PASSWORD_VARIABLES)} to the ones it was made with, or drop the role",
        ) from error


def drop_database(endpoint: PostgresEndpoint, name: str) -> None:
    """Remove a database and every connection to it (tests clean up with this); missing is fine."""
    with connect(conninfo(endpoint, "postgres"), autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
