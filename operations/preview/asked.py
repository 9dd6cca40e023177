"""Which documents somebody wants to see: one key, those that meet a condition, or a few of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from cdc.errors import ConfigError, MayNotRead, SourceUnavailable
from cdc.keys import alike
from cdc.view import View
from connectors.postgres import Connection, is_policy
from truth.condition import ids_where
from truth.rows import identity, rows_of_ids
from truth.sample import sampled_ids

# Somebody waits at a terminal, and the database has other things to do.
TIMEOUT_SECONDS = 30
MAX_CONDITION = 10_000
# The same rows every time, so that two previews can be held against each other.
SEED = 1


@dataclass(frozen=True)
class Asked:
    """What is wanted.

    Attributes:
        key: one document's id.
        where: SQL over the root's columns.
        sample: how many documents, of those that meet ``where`` if it is given.
    """

    key: str | None = None
    where: str | None = None
    sample: int = 5

    def __post_init__(self) -> None:
        if self.key is not None and self.where is not None:
            raise ConfigError("KEY and --where exclude each other", fix="ask for one document, or for some")
        if self.where is not None and (len(self.where) > MAX_CONDITION or "\0" in self.where or not self.where.strip()):
            raise ConfigError(f"--where takes a condition of at most {MAX_CONDITION:,} characters")


def keys_of(connection: Connection, view: View, asked: Asked) -> list[str]:
    """The ids of the documents that are wanted; one that was named may not be there.

    Args:
        connection: of ``truth.rows.snapshot``.
        view: the view.
        asked: what is wanted.

    Raises:
        ConfigError: Postgres does not take the condition (terminal).
        psycopg.Error: see ``within``.
    """
    if asked.key is not None:
        return [asked.key]
    if asked.where is None:
        # Of a type that few events have, all would be read for the last one; of other views every row is a document.
        return sampled_ids(connection, view, asked.sample, SEED, any_will_do=bool(view.event_types))
    try:
        return ids_where(connection, view, asked.where, asked.sample)
    except (psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege, psycopg.OperationalError):
        raise
    except psycopg.Error as error:
        said = (error.diag.message_primary or str(error)).strip()
        raise ConfigError(
            f"--where {asked.where}: Postgres says: {said}",
            means="nothing was read; the transaction is read only",
            fix=error.diag.message_hint
            or f"write SQL over the columns of {view.table.qualified}: {', '.join([*view.table.by_name][:20])}",
        ) from error


def near_keys(connection: Connection, view: View, key: str) -> list[str]:
    """Keys like one that is not there, that are."""
    others = alike(key, len(view.key))
    return [identity(view, row) for page in rows_of_ids(connection, view, view.key, others) for row in page]


@contextmanager
def within(connection: Connection, view: View) -> Iterator[None]:
    """A limit on how long each statement takes, and words for what Postgres refuses.

    Raises:
        SourceUnavailable: a statement took too long (transient).
        MayNotRead: the pipeline's role may not read a table (terminal).
    """
    connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{TIMEOUT_SECONDS}s"])
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise SourceUnavailable(
            f"reading the rows of {view.name} took longer than {TIMEOUT_SECONDS} s",
            means="nothing was changed",
            fix="ask for one KEY or for fewer documents; an index on the columns of --where or of a view's `on` helps",
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        if is_policy(error):
            raise  # no GRANT helps; ``snapshot`` has the words
        user = connection.info.user
        raise MayNotRead(
            f"role {user} may not read what view {view.name} needs: {error.diag.message_primary}",
            fix=f"`headwater apply` grants it, or the owner says: GRANT SELECT ON … TO {user}",
        ) from error
