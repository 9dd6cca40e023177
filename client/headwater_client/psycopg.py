"""psycopg 3: a transaction that takes its token before it is committed.

with writing(connection, "shop") as cursor:
    cursor.execute("UPDATE …")
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from headwater_client.session import remember
from headwater_client.tokens import take_token

_log = logging.getLogger(__name__)


@contextmanager
def writing(
    connection: psycopg.Connection[Any], pipeline: str, *, schema: str = "headwater"
) -> Iterator[psycopg.Cursor[Any]]:
    """A transaction whose token is remembered for the request's user, if it writes anything.

    Args:
        connection: in which nothing else is under way.
        pipeline: the name of Headwater's pipeline.
        schema: where its helper objects are.
    """
    with connection.transaction(), connection.cursor() as cursor:
        yield cursor
        with connection.cursor(row_factory=psycopg.rows.tuple_row) as asking:
            remember(_ask(asking, pipeline, schema))


def _ask(cursor: psycopg.Cursor[Any], pipeline: str, schema: str) -> str | None:
    # A pipeline that was dropped must not take the application's writes with it. A savepoint that is refused, or can't
    # be gone back to, is an error: the transaction has failed by then, and what was written is lost with it.
    cursor.execute("SAVEPOINT headwater_token")
    try:
        token = take_token(cursor, pipeline, schema=schema, if_written=True)
    except psycopg.Error as error:
        cursor.execute("ROLLBACK TO SAVEPOINT headwater_token")
        _log.warning("no token for what was written: %s", error)
        token = None
    cursor.execute("RELEASE SAVEPOINT headwater_token")
    return token
