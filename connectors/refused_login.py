"""What is said of a connection to Postgres that was not made: by the server's code, and words, or libpq's. Pure."""

from __future__ import annotations

import re

import psycopg

from cdc.errors import SourceError, SourceRefused, SourceUnavailable

# libpq gives no SQLSTATE for a refused login; these parts of its messages mean that trying again is no use. Postgres
# says them in the language of its own lc_messages, which only a superuser's session may set: see REFUSAL.
TERMINAL = (
    *("authentication failed", "does not exist", "no pg_hba.conf entry", "pg_hba.conf rejects"),
    *("not permitted to log in", "no password"),
    *("may start a WAL sender", "to start walsender", "CONNECT privilege"),
)
# And these that it will let somebody in again. The last lines are PgBouncer's.
PASSING = (
    *("starting up", "shutting down", "recovery mode", "not yet accepting", "is not accepting connections"),
    *("too many", "connection slots are reserved", "terminating connection", "canceling authentication"),
    *("no more connections allowed", "query_wait_timeout", "server login has been failing", "cannot connect to server"),
    *("client_login_timeout", "max clients reached"),
)
# What a session is set up by has a SQLSTATE, in whatever language: of a server that goes down, or is not up, of one
# that has no room, and PgBouncer's for all that it says itself: what it says for good is known by TERMINAL.
PASSING_STATES = ("57P01", "57P02", "57P03", "53300", "08P01")
CANCELED = "57014"
# How a message of libpq goes on where it was the server that said no: by its severity, in the server's language.
REFUSAL = re.compile(r"failed: [^\n:]+:  ")
# Trying again is no use either for what libpq, or the server, has against the other's TLS. Its words stand in several
# lines, whose last one is advice.
OF_TLS = ("certificate", "does not support SSL", "sslmode")
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")  # a host may be called certificates.example
TRUST = (
    "correct source.sslmode, or name the authority that signed the server's certificate in source.sslrootcert (a PEM"
    " file, at the same path on the workers)"
)
CLIENTS_OWN = (
    "the server wants a certificate of its clients: name one in PGSSLCERT and PGSSLKEY, and for the connector in"
    " connect.options (database.sslcert, database.sslkey), or let the roles in without one by the server's pg_hba.conf"
)

# What to do about a refused login: by a part of the server's words, whoever it was; else by who it was.
OF_WORDS = {
    "not permitted to log in": "ALTER ROLE … LOGIN (as a superuser), or name a role in the pipeline file that may",
    "pg_hba.conf": "let the role in by the server's pg_hba.conf (and reload it), or correct source.sslmode",
    "client certificate": CLIENTS_OWN,
    "certificate authentication": CLIENTS_OWN,
    "CONNECT privilege": "GRANT CONNECT ON DATABASE … TO …, as the database's owner",
    'database "': "correct source.database in the pipeline file, or create the database",
}
AS_USER = "correct `source` in the pipeline file (database, user, password), or create role and database"
AS_OWNER = (
    "correct source.setup_user and source.setup_password in the pipeline file, or create the role; a variable that they"
    " name has to be in the environment of every process that follows the tables: of `run`, too"
)


def login_error(error: psycopg.Error, where: str, fix: str) -> SourceError:
    """The error of a session that was not opened.

    Args:
        error: libpq's.
        where: at which server and database, and as whom.
        fix: what to do where it is put down to who asked.

    Returns:
        SourceUnavailable: no answer, or nobody is let in for now. SourceRefused: the server refused for a reason that
            we do not know. SourceError: trying again is no use.
    """
    reason = last_line(error)
    if any(part in reason for part in TERMINAL):
        better = next((way for part, way in OF_WORDS.items() if part in reason), fix)
        return SourceError(f"Postgres refused {where}: {reason}", fix=better)
    state = error.diag.sqlstate or error.sqlstate
    if state == CANCELED:
        return SourceUnavailable(
            f"Postgres canceled the first statement at {where}: {reason}",
            fix="if that is the role's or the database's statement_timeout: ALTER ROLE … RESET statement_timeout (or"
            " ALTER DATABASE …); Headwater sets its own",
        )
    if state is None and (whole := of_tls(error)):
        better = next((way for part, way in OF_WORDS.items() if part in whole), TRUST)
        return SourceError(f"no encrypted connection to {where}: {whole}", fix=better)
    if said := refusal(error) or (reason if state else ""):
        if state in PASSING_STATES or any(part in said for part in PASSING):
            again = (
                "run the same command again when it does; or raise max_connections (of a pooler max_client_conn, or its"
            )
            again += " pool), where they are too many"
            return SourceUnavailable(f"Postgres lets nobody in for now at {where}: {said}", fix=again)
        return SourceRefused(f"Postgres answered, and refused {where}: {said}", fix=fix)
    return SourceUnavailable(
        f"Postgres does not answer at {where}: {reason}",
        fix="start the server (`headwater up` for the local one), or correct source.host and source.port",
    )


def refusal(error: psycopg.Error) -> str:
    """What the server itself said against a connection; empty where it said nothing, or was not reached.

    Args:
        error: of a connection that was not made.
    """
    *_, last = REFUSAL.split(str(error))  # libpq tells of each address, and of a try without TLS, the last one last
    return " ".join(last.split()) if REFUSAL.search(str(error)) else ""


def of_tls(error: psycopg.Error) -> str:
    """All of what libpq says where there is no connection because of TLS; empty where there is none for another reason.

    Args:
        error: of a connection that was not made.
    """
    whole = " ".join(str(error).split())
    own = QUOTED.sub("", whole)
    return whole if any(part in own for part in OF_TLS) else ""


def last_line(error: psycopg.Error) -> str:
    """The line of a message that says why; libpq lists every address it tried before it."""
    diagnostic = error.diag.message_primary if error.diag else None
    lines = str(error).strip().splitlines()
    return (
        (diagnostic or (lines[-1] if lines else type(error).__name__))
        .removeprefix("FATAL: ")
        .removeprefix("DETAIL: ")
        .strip()
    )
