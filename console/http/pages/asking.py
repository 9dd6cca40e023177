"""What every page needs to know of who asks, and the one way in for forms."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Query, Request

from cdc.errors import Refused
from console.http.served import Served
from console.http.sessions import FIELD

# A form of ours has a few short fields.
FORM_BYTES = 8_192


def shown(
    request: Request,
    pipeline: Annotated[str | None, Query(description="Its name; the first one without it.")] = None,
) -> Served:
    """The pipeline that a page shows."""
    pipelines = request.app.state.pipelines
    one: Served = pipelines.get(pipeline or (pipelines.names[0] if pipelines.names else None))
    return one


async def fields(request: Request) -> dict[str, str]:
    """A form's fields.

    Raises:
        Refused: it is larger than any of ours.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            raise Refused("the form is too long", fix="send one of the server's own pages")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


async def confirmed(request: Request) -> dict[str, str]:
    """The fields of a form that a page of this session has sent: every page that does something depends on this.

    Raises:
        Refused: it bears no proof of that.
    """
    given = await fields(request)
    session = request.state.session
    if session is None or not session.confirms(given.get(FIELD, "")):
        raise Refused(
            "the form is not of a page of this session",
            means="nothing was done; the page may be older than the server's last start",
            fix="open the page again, then send the form again",
        )
    return given


Shown = Annotated[Served, Depends(shown)]
Confirmed = Annotated[dict[str, str], Depends(confirmed)]
