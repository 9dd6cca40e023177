"""Read your own writes in what Headwater keeps in sync.

Take a token in the transaction that writes, keep it for the session, and wait for it before a read that must show the
write:

    from headwater_client import Headwater, take_token

    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("UPDATE products SET price = 12 WHERE id = 7")
        token = take_token(cursor, "shop")
    Headwater().wait(token, sinks=["search"])

Nothing here needs more than the standard library. ``headwater_client.sqlalchemy`` takes tokens by itself,
``headwater_client.asgi`` and ``headwater_client.wsgi`` keep them in a cookie, ``headwater_client.cache`` reads
documents from Redis.
"""

from headwater_client.freshness import Freshness, at_least_as_fresh, max_staleness, whatever
from headwater_client.session import Tokens, current, forget, remember
from headwater_client.tokens import BadPipelineName, take_token
from headwater_client.waiting import Age, Answer, Headwater

__all__ = [
    "Age",
    "Answer",
    "BadPipelineName",
    "Freshness",
    "Headwater",
    "Tokens",
    "at_least_as_fresh",
    "current",
    "forget",
    "max_staleness",
    "remember",
    "take_token",
    "whatever",
]
