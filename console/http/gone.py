"""Who has asked may go before he is answered."""

from __future__ import annotations

from starlette.types import Receive


async def gone(receive: Receive) -> None:
    """Return once who has asked is gone.

    Args:
        receive: of the request, whose body was read.
    """
    while (await receive())["type"] != "http.disconnect":
        pass
