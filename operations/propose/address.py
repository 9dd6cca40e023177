"""A database's address, as people have it: ``postgres://user@host:5432/db``."""

from __future__ import annotations

import getpass
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr, ValidationError

from cdc.errors import ConfigError
from cdc.masking import mask_text
from cdc.pipeline import Source

# What of libpq's parameters a pipeline file has a key for.
_TAKEN = frozenset(("host", "hostaddr", "port", "dbname", "user", "password", "sslmode", "sslrootcert"))


def read_address(text: str, password: str | None = None) -> tuple[Source, list[str]]:
    """Where the database is and who asks, and which parts of the address a pipeline file has no place for.

    Args:
        text: a URI, or libpq's ``host=… dbname=…``.
        password: instead of one in the address.

    Raises:
        ConfigError: this is no address of a database, or one of several servers (terminal). No password is repeated.
    """
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(text).items() if value not in (None, "")}
    except psycopg.Error:
        found = {}
    if not found.get("dbname"):
        shown = mask_text(text) if urlsplit(text).scheme else "what was given"
        raise ConfigError(
            f"{shown} is not the address of a database",
            means="nothing was read or written",
            fix="write postgres://user@host:5432/database; % and other signs of a name or password as in a URL",
        )
    host, port = found.get("host") or found.get("hostaddr") or "127.0.0.1", found.get("port", "5432")
    if "," in host or "," in port:
        raise ConfigError(
            "the address names several servers; a pipeline reads the log of one",
            fix="name the primary, or an address that always leads to it",
        )
    secret = password if password is not None else found.get("password", "")
    try:
        source = Source(
            host=host,
            port=int(port),
            database=found["dbname"],
            user=found.get("user") or getpass.getuser(),
            password=SecretStr(secret),
            sslmode=found.get("sslmode", "prefer"),  # type: ignore[arg-type]
            sslrootcert=found.get("sslrootcert"),
            tables=("public.any",),
        )
    except (ValidationError, ValueError) as error:
        raise ConfigError(
            "the address is not one that a pipeline file takes: its port is a number, its sslmode one of libpq's",
            fix="write postgres://user@host:5432/database?sslmode=require",
        ) from error
    return source, sorted(found.keys() - _TAKEN)
