"""Django: take the token of a write, and remember it for the request's user.

    with transaction.atomic():
        product.save()
        written("shop")

It is taken inside the transaction, so it may be sent to the user before the COMMIT.
"""

from __future__ import annotations

import logging

from django.db import Error, connections

from headwater_client.session import remember
from headwater_client.tokens import take_token

_log = logging.getLogger(__name__)


def written(pipeline: str, *, schema: str = "headwater", using: str | None = None) -> None:
    """Take a token of what the transaction under way has written; of what was committed last, where there is none.

    Args:
        pipeline: the name of Headwater's pipeline.
        schema: where its helper objects are.
        using: the database's alias; the default one if None.
    """
    connection = connections[using or "default"]
    inside = connection.in_atomic_block
    # A pipeline that was dropped must not take the application's writes with it. A savepoint that is refused, or can't
    # be gone back to, is an error: what was written is lost. Without a transaction Django makes none: nothing is.
    savepoint = connection.savepoint()
    try:
        with connection.cursor() as cursor:
            token = take_token(cursor, pipeline, schema=schema, after_commit=not inside, if_written=inside)
    except Error as error:
        connection.savepoint_rollback(savepoint)
        _log.warning("no token for what was written: %s", error)
        token = None
    connection.savepoint_commit(savepoint)
    remember(token)
