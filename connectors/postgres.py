"""Connections to the source database, and its errors in our words."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from pydantic import SecretStr

from cdc.errors import SourceError, SourceUnavailable
from cdc.pipeline import Source
from cdc.waits import waiting_for
from connectors.refused_login import AS_OWNER, AS_USER, last_line, login_error
from connectors.session_settings import ours

# A database that does not answer a TCP connection within this time is down for an operator who waits at a terminal.
CONNECT_SECONDS = 10
# A pooler whose sessions are all taken lets who comes next wait.
BESIDE_SECONDS = 3
# So often two sessions are asked in turn whether a pooler shares them: beside a busy application one round does not
# show it in 2 to 9 of 100 cases.
ASKED_IN_TURN = 6
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
# What to do about policies that hide rows.
SHOW_ALL = (
    "ALTER ROLE … BYPASSRLS (as a superuser); or for each table with row-level security that the role may read"
    " CREATE POLICY … FOR SELECT TO … USING (true)"
)

Connection = psycopg.Connection[tuple[Any, ...]]

# Poolers by which this process was once told that they keep a session for each client: host, port, database, user. What
# is looked at every few seconds is a connection of its own each time.
_keeping: set[tuple[str, int, str, str]] = set()


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
    at = (source.host, source.port, source.database, user)
    with _answering(source, who, fix):
        connection = _open(source, user, secret)
        try:
            limits = {"lock_timeout": f"{LOCK_SECONDS}s", "statement_timeout": f"{STATEMENT_SECONDS}s"}
            settings = ours(connection.info.server_version) | limits
            process = _process(connection) if at in _keeping else connection.info.backend_pid
            if not _set(connection, settings, process):
                process, known = _own_process(source, connection, lambda: _open(source, user, secret))
                if not _set(connection, settings, process):
                    raise _pooler_error(source)
                if known:
                    _keeping.add(at)
        except BaseException:
            connection.close()
            raise
    return connection


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between: it makes up the keys by which its clients cancel their queries, and with them
    the process number that the client is told."""
    return _process(connection) != connection.info.backend_pid


def _pooler_error(source: Source) -> SourceError:
    return SourceError(
        f"{source.address} is a connection pooler, not Postgres: it shares its sessions, so replication does not go"
        " through it, and what a session sets may reach another session",
        fix="give Postgres's own address in source.host and source.port; applications may go on using the pooler",
    )


def _process(connection: Connection, seconds: float = CONNECT_SECONDS) -> int:
    with within(connection, seconds):
        # Asked often, it would be prepared, in whosever session it is.
        row = connection.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def _set(connection: Connection, settings: Mapping[str, str], process: int) -> bool:
    """Set what a session is to have, if it is that process's; whether that was done. In one statement: behind a pooler
    the next one may be done in a session of the application's."""
    values = sql.SQL(", ").join(sql.SQL("({}, {})").format(name, value) for name, value in settings.items())
    # With schemas: until then the search path is anybody's.
    select = sql.SQL(
        "SELECT pg_catalog.set_config(name, value, false) FROM (VALUES {}) AS s (name, value)"
        " WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {}"
    )
    with within(connection, CONNECT_SECONDS):
        return connection.execute(select.format(values, process)).rowcount != 0


def _own_process(source: Source, connection: Connection, another: Callable[[], Connection]) -> tuple[int, bool]:
    """The process behind a pooler's session, and whether all was asked by which it is known to be ours.

    Stops at a pooler that gives a session of the server's to several clients in turn (PgBouncer's transaction mode):
    what we set there would stay for the application's. One that keeps a session for each client is let through.

    Of two clients that are there at once, both have the same process, or one has two in turn. While others are at work
    neither need be seen at once; of a session that is a client's own neither ever is.
    """
    process, known = _process(connection), False
    with suppress(psycopg.Error), another() as other:  # there may be no room for one more
        for _ in range(ASKED_IN_TURN):
            if _process(other, BESIDE_SECONDS) == process or _process(connection) != process:
                raise _pooler_error(source)
        known = True
    if _process(connection) != process:
        raise _pooler_error(source)
    return process, known


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
        raise login_error(error, where, fix) from error


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
            f"{what}: took longer than {STATEMENT_SECONDS} s, or somebody has ended it: {last_line(error)}",
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
                f"{what}: row-level security would hide rows from the role: {last_line(error)}",
                means="a row that is hidden would be taken for one that is not there, so nothing was compared",
                fix=SHOW_ALL,
            ) from error
        raise SourceError(
            f"{what}: {last_line(error)}",
            fix=denied
            or fix
            or "set source.setup_user to the role that owns the tables and may CREATE in the database",
        ) from error
    except psycopg.errors.CharacterNotInRepertoire as error:
        raise SourceError(
            f"{what}: a text in the database is not UTF-8: {last_line(error)}",
            means="the connector can't read it either: a snapshot with it fails, and a stream stops at it for good",
            fix="correct that row, and what writes such texts (`headwater check` tells of a database in SQL_ASCII)",
        ) from error
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"{what}: {last_line(error)}", fix=fix or "run the same command again") from error
    except psycopg.Error as error:
        raise SourceError(f"{what}: {last_line(error)}", fix=fix) from error


def is_policy(error: psycopg.Error) -> bool:
    """Whether Postgres refused to read a table as row-level security would hide rows of it (``row_security = off``)."""
    # Its SQLSTATE is that of a missing GRANT, its words may be in any language.
    return error.diag.source_function == "check_enable_rls"


def unless_locked(
    connection: Connection, query: LiteralString, values: Sequence[Any] | Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """The rows of a question that Postgres only answers under a lock, like its words for an expression or a file's
    size; none if somebody has locked one of the tables, or waits to, for longer than UNLOCKED_WAIT."""
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
