"""Connections to the source database, and its errors in our words."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from pydantic import SecretStr

from cdc.errors import SourceError, SourceRefused, SourceUnavailable
from cdc.pipeline import Source
from cdc.waits import waiting_for
from connectors.session_settings import ours

# A database that does not answer a TCP connection within this time is down for an operator who waits at a terminal.
CONNECT_SECONDS = 10
# A pooler whose sessions are all taken lets who comes next wait.
BESIDE_SECONDS = 3
# Our statements read catalogues or change a few objects. One that takes longer waits for a lock; an ALTER TABLE that
# waits blocks every reader that comes after it, so it must give up rather than stop the application.
LOCK_SECONDS = 10
# So long is waited for what is only nice to know. A long migration of one table would hold up what is read of all.
UNLOCKED_WAIT = "100ms"
# A host that has gone away without a word (a network that drops packets, a machine without power): bytes that nobody
# has confirmed for so long (milliseconds), or silence that so many questions of the kernel do not break (seconds), end
# the connection. Else it is held for the two hours of the kernel's own keepalive.
DEAD_NETWORK: dict[str, Any] = {
    "tcp_user_timeout": 30_000,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
}
STATEMENT_SECONDS = 60
# A Postgres that is frozen answers nothing and breaks nothing: whoever looks at it again and again lets go after this,
# which is longer than the server's own timeout of a statement (see ``within``).
ANSWER_SECONDS = STATEMENT_SECONDS + 15.0
# libpq gives no SQLSTATE for a refused login; these parts of its messages mean that trying again is no use. Postgres
# says them in the language of its own lc_messages, which only a superuser's session may set: see REFUSAL.
TERMINAL = (
    *("authentication failed", "does not exist", "no pg_hba.conf entry", "not permitted to log in", "no password"),
    *("may start a WAL sender", "to start walsender", "CONNECT privilege"),
)
# And these that it will let somebody in again.
PASSING = (
    *("starting up", "shutting down", "recovery mode", "not yet accepting", "is not accepting connections"),
    *("too many", "connection slots are reserved", "terminating connection"),
)
# How a message of libpq goes on where it was the server that said no: by its severity, a word of the server's language.
REFUSAL = re.compile(r"failed: [^\s:]+:  ")

# Nor is it any for what libpq, or the server, has against the other's TLS. Its words stand in several lines, whose last
# one is advice.
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
    "no pg_hba.conf entry": "let the role in by the server's pg_hba.conf (and reload it), or correct source.sslmode",
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

# What to do about policies that hide rows.
SHOW_ALL = (
    "ALTER ROLE … BYPASSRLS (as a superuser); or for each table with row-level security that the role may read"
    " CREATE POLICY … FOR SELECT TO … USING (true)"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(source: Source, *, setup: bool = False) -> Connection:
    """Open an autocommit connection with an empty search path, so that every name must be qualified.

    Args:
        source: the pipeline's ``source``.
        setup: as ``setup_user`` (owns the tables) rather than ``user`` (replicates).

    Returns:
        A connection; the caller closes it (it is a context manager).

    Raises:
        SourceUnavailable: no answer, or nobody is let in for now (transient).
        SourceRefused: the server refused for a reason that we do not know (transient).
        SourceError: the server refused the login or the database, or it is a pooler that shares its sessions
            (terminal).
    """
    user, secret, who, fix = source.user, source.password, source.user, AS_USER
    if setup and source.setup_user:
        user, secret = source.setup_user, source.setup_password or SecretStr("")
        who, fix = f"{user} (source.setup_user)", AS_OWNER  # `status` has room for the reason alone
    with _answering(source, who, fix):
        connection = _open(source, user, secret)
        try:
            limits = {"lock_timeout": f"{LOCK_SECONDS}s", "statement_timeout": f"{STATEMENT_SECONDS}s"}
            settings = ours(connection.info.server_version) | limits
            if not _set(connection, settings, unless_pooled=True):
                _refuse_shared(source, connection, lambda: _open(source, user, secret))
                _set(connection, settings)
        except BaseException:
            connection.close()
            raise
    return connection


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between: it makes up the keys by which its clients cancel their queries, and with them
    the process number that the client is told."""
    return _process(connection) != connection.info.backend_pid


def pooler_error(source: Source) -> SourceError:
    """The error of an address at which a pooler answers."""
    return SourceError(
        f"{source.address} is a connection pooler, not Postgres: replication does not go through it,"
        " and what a session sets may reach another session",
        fix="give Postgres's own address in source.host and source.port; applications may go on using the pooler",
    )


def _process(connection: Connection, seconds: float = CONNECT_SECONDS) -> int:
    with within(connection, seconds):
        row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def _set(connection: Connection, settings: Mapping[str, str], *, unless_pooled: bool = False) -> bool:
    """Set what a session is to have; whether that was done. In one statement, which asks for a pooler as well: what is
    looked at every few seconds is a connection of its own each time."""
    values = sql.SQL(", ").join(sql.SQL("({}, {})").format(name, value) for name, value in settings.items())
    told = sql.SQL(" WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {}").format(connection.info.backend_pid)
    # With schemas: until then the search path is anybody's.
    select = sql.SQL("SELECT pg_catalog.set_config(name, value, false) FROM (VALUES {}) AS s (name, value){}")
    with within(connection, CONNECT_SECONDS):
        return connection.execute(select.format(values, told if unless_pooled else sql.SQL(""))).rowcount != 0


def _refuse_shared(source: Source, connection: Connection, another: Callable[[], Connection]) -> None:
    """Stop at a pooler that gives one session of the server's to several clients in turn (PgBouncer's transaction
    mode): what we set there would stay for the application's. One that keeps a session for each client is let through.

    Of two clients that are there at once, both have the same process, or one has two in turn. While others are at work
    neither need be seen; of a session that is a client's own neither ever is.
    """
    process, beside = _process(connection), None
    with suppress(psycopg.Error), another() as other:  # there may be no room for one more: then it is not known
        beside = _process(other, BESIDE_SECONDS)
    if beside == process or _process(connection) != process:
        raise pooler_error(source)


def replication_command(source: Source, command: str) -> list[tuple[Any, ...]]:
    """The answer to one command of the replication protocol, which slots and timelines are asked in.

    Args:
        source: the pipeline's ``source``; as ``user``, who replicates.
        command: with its names quoted.

    Raises:
        SourceUnavailable: no answer (transient).
        SourceError: the server refused the login (terminal).
        psycopg.Error: it refused the command.
    """
    with _answering(source, source.user):
        connection = _open(source, source.user, source.password, replication="database")
    with connection:
        answer = connection.execute(command.encode())  # without parameters: the simple protocol, the only one here
        return answer.fetchall() if answer.description else []


def _open(source: Source, user: str, secret: SecretStr, **more: Any) -> Connection:
    return psycopg.connect(
        host=source.host,
        port=source.port,
        dbname=source.database,
        user=user,
        password=secret.get_secret_value() or None,
        sslmode=source.sslmode,
        sslrootcert=source.sslrootcert,
        connect_timeout=CONNECT_SECONDS,
        application_name="headwater",
        # Else a database in SQL_ASCII gives every text as bytes.
        client_encoding="utf8",
        autocommit=True,
        **DEAD_NETWORK,
        **more,
    )


@contextmanager
def within(connection: Connection, seconds: float) -> Iterator[None]:
    """Cut the connection if the block takes longer.

    A server process that is frozen, with its machine alive, confirms every byte and never answers: no timeout of TCP
    ends that, and the server's own timeouts are frozen with it.

    Args:
        connection: asked inside the block by this thread; cut, it raises psycopg.OperationalError there.
        seconds: longer than the server's own timeouts, which say more.
    """
    watch = threading.Timer(seconds, _cut, [connection])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        watch.join()


def _cut(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def _answering(source: Source, who: str, fix: str = AS_USER) -> Iterator[None]:
    """Turn what keeps a session from being opened inside the block into our errors."""
    where = f"{source.address}/{source.database} as {who}"
    try:
        with waiting_for(f"Postgres at {source.address}"):
            yield
    except psycopg.Error as error:
        reason = _last_line(error)
        if any(part in reason for part in TERMINAL):
            better = next((way for part, way in OF_WORDS.items() if part in reason), fix)
            raise SourceError(f"Postgres refused {where}: {reason}", fix=better) from error
        if whole := of_tls(error):
            better = next((way for part, way in OF_WORDS.items() if part in whole), TRUST)
            raise SourceError(f"no encrypted connection to {where}: {whole}", fix=better) from error
        if said := refusal(error):
            if any(part in said for part in PASSING):
                again = "run the same command again when it does; or raise max_connections, where they are too many"
                raise SourceUnavailable(f"Postgres lets nobody in for now at {where}: {said}", fix=again) from error
            raise SourceRefused(f"Postgres answered, and refused {where}: {said}", fix=fix) from error
        raise SourceUnavailable(
            f"Postgres does not answer at {where}: {reason}",
            fix="start the server (`headwater up` for the local one), or correct source.host and source.port",
        ) from error


def refusal(error: psycopg.Error) -> str:
    """What the server itself said against a connection; empty where it said nothing, or was not reached. Pure.

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


@contextmanager
def explained(what: str, *, fix: str = "", denied: str = "") -> Iterator[None]:
    """Turn an error of Postgres inside the block into a SourceError that says what was being done.

    Args:
        what: is being done.
        fix: what to do when it fails; empty for what mostly helps.
        denied: what to do when the role may not; empty for ``fix``.

    Raises:
        SourceUnavailable: the connection broke, a lock was not had in time, or a statement took too long (transient).
        SourceError: Postgres said no (terminal).
    """
    try:
        with waiting_for(f"Postgres: {what}"):
            yield
    except psycopg.errors.QueryCanceled as error:
        raise SourceUnavailable(
            f"{what}: took longer than {STATEMENT_SECONDS} s, or somebody has ended it: {_last_line(error)}",
            means="nothing was changed by this step",
            fix=fix or "run the same command again when the server has less to do (see pg_stat_activity)",
        ) from error
    except psycopg.errors.LockNotAvailable as error:
        raise SourceUnavailable(
            f"{what}: gave up after waiting {LOCK_SECONDS} s for a lock",
            means="another transaction holds the table; nothing was changed by this step",
            fix=fix or "end the long transaction (see pg_stat_activity) and run the same command again",
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        if is_policy(error):
            raise SourceError(
                f"{what}: row-level security would hide rows from the role: {_last_line(error)}",
                means="a row that is hidden would be taken for one that is not there, so nothing was compared",
                fix=SHOW_ALL,
            ) from error
        raise SourceError(
            f"{what}: {_last_line(error)}",
            fix=denied
            or fix
            or "set source.setup_user to the role that owns the tables and may CREATE in the database",
        ) from error
    except psycopg.errors.CharacterNotInRepertoire as error:
        raise SourceError(
            f"{what}: a text in the database is not UTF-8: {_last_line(error)}",
            means="the connector can't read it either: a snapshot with it fails, and a stream stops at it for good",
            fix="correct that row, and what writes such texts (`headwater check` tells of a database in SQL_ASCII)",
        ) from error
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"{what}: {_last_line(error)}", fix=fix or "run the same command again") from error
    except psycopg.Error as error:
        raise SourceError(f"{what}: {_last_line(error)}", fix=fix) from error


def is_policy(error: psycopg.Error) -> bool:
    """Whether Postgres refused to read a table as row-level security would hide rows of it (``row_security = off``)."""
    # Its SQLSTATE is that of a missing GRANT, its words may be in any language.
    return error.diag.source_function == "check_enable_rls"


def unless_locked(connection: Connection, query: LiteralString, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a question that Postgres only answers under a lock, like its words for an expression; none if
    somebody has locked one of the tables, or waits to, for longer than UNLOCKED_WAIT."""
    found: list[tuple[Any, ...]] = []
    with connection.transaction():
        before = connection.execute("SELECT current_setting('lock_timeout')").fetchone()
        with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", [UNLOCKED_WAIT])
            found = connection.execute(query, values).fetchall()
        connection.execute("SELECT set_config('lock_timeout', %s, true)", before)
    return found


def has_table(connection: Connection, schema: str, name: str) -> bool:
    """Whether a table is there."""
    found = connection.execute(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
        [schema, name],
    )
    return found.fetchone() is not None


def has_columns(connection: Connection, schema: str, table: str, *names: str) -> bool:
    """Whether a table has all of these columns."""
    found = connection.execute(
        "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND a.attname = ANY(%s)",
        [schema, table, list(names)],
    ).fetchone()
    return found is not None and found[0] == len(names)


def _last_line(error: psycopg.Error) -> str:
    """The line of a message that says why; libpq lists every address it tried before it."""
    diagnostic = error.diag.message_primary if error.diag else None
    lines = str(error).strip().splitlines()
    return (
        (diagnostic or (lines[-1] if lines else type(error).__name__))
        .removeprefix("FATAL: ")
        .removeprefix("DETAIL: ")
        .strip()
    )
