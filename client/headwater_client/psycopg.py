"""psycopg 3: a transaction that takes its token before it is committed.

with writing(connection, "shop") as cursor:
    cursor.execute("UPDATE …")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from headwater_client.session import remember
from headwater_client.tokens import take_token


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
            token = take_token(asking, pipeline, schema=schema, if_written=True)
        remember(token)
