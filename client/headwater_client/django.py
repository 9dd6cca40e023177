"""Django: take the token of a write, and remember it for the request's user.

    with transaction.atomic():
        product.save()
        written("shop")

It is taken inside the transaction, so it may be sent to the user before the COMMIT.
"""

from __future__ import annotations

from django.db import connections

from headwater_client.session import remember
from headwater_client.tokens import take_token


def written(pipeline: str, *, schema: str = "headwater", using: str | None = None) -> None:
    """Take a token of what the transaction under way has written; of what was committed last, where there is none.

    Args:
        pipeline: the name of Headwater's pipeline.
        schema: where its helper objects are.
        using: the database's alias; the default one if None.
    """
    connection = connections[using or "default"]
    inside = connection.in_atomic_block
    with connection.cursor() as cursor:
        remember(take_token(cursor, pipeline, schema=schema, after_commit=not inside, if_written=inside))
