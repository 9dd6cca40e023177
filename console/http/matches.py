"""What enters, changes and leaves under standing queries, as server-sent events."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from cdc.pipeline import Pipeline
from console.http.reports import Asked
from console.http.stream import From, LastEvent, begun, refuse_unseeing
from operations.push.source import Place
from operations.standing.place import standing_place
from operations.standing.seen import Seen

router = APIRouter()


@router.get("/v1/matches/{view}", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
async def matches(
    request: Request,
    view: str,
    asked: Asked,
    query: Annotated[
        tuple[Annotated[str, Query(max_length=64)], ...],
        Query(description="Only of this query; may be repeated. All of the view's without one."),
    ] = (),
    start: Annotated[
        Literal["snapshot", "now"],
        Query(alias="from", description="First who matches now, or only what comes."),
    ] = "snapshot",
    cursor: From = None,
    last_event_id: LastEvent = None,
) -> Response:
    """What becomes of a view's documents under its standing queries as server-sent events, docs/standing-queries.md:
    `match`, `reset`, `snapshot`, `ready`, `alive`, `slow`."""
    refuse_unseeing(request)
    streams = request.app.state.streams
    place = streams.place(asked.pipeline, view, None, _place)
    subscriber = streams.subscribe(place, Seen(query), last_event_id or cursor or None, documents=start == "snapshot")
    return await begun(subscriber)


def _place(pipeline: Pipeline, view: str, _sink: str | None) -> Place:
    return standing_place(pipeline, view)
