"""The page that shows a view's changes as they come. What is told comes from ``/v1/stream``, by the page's script."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from cdc.errors import ConfigError, HeadwaterError
from cdc.filters import MAX_CHARS
from console.http.guard import led_here
from console.http.pages.asking import Shown
from console.http.pages.render import page
from console.http.pages.show import LONGEST, seen
from operations.push.lens import Lens
from operations.push.source import Place, kept_views, newest_but

# What stands there at the beginning, and at most.
ROWS = 50

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.get("/stream")
def board(
    request: Request,
    asked: Shown,
    view: Annotated[str, Query(max_length=LONGEST)] = "",
    sink: Annotated[str, Query(max_length=LONGEST)] = "",
    filter: Annotated[str, Query(max_length=MAX_CHARS)] = "",
) -> HTMLResponse:
    """A form; with a view, the table of its newest documents, which the script fills from the stream."""
    pipeline, streams = asked.pipeline, request.app.state.streams
    places = kept_views(pipeline)
    if not view and places:
        sink, view = places[0]
    keepers = [name for name, kept in places if kept == view]
    if sink in ("", *dict(places)) and sink not in keepers:  # none was said, or it is that of the view before
        sink = next(iter(keepers), "")
    allowed = request.state.role == "operate"
    wrong, cursor = "", None
    if filter and led_here(request):  # nor does the script use it, which would ask in its user's name
        wrong = "a page of another site has led here with this filter: press Show if you want it"
    elif view and allowed:
        try:
            Lens.of(filter)
            place: Place = streams.place(pipeline, view, sink or None)
            sink, cursor = place.sink, newest_but(place, ROWS)
        except ConfigError as error:
            wrong = f"{error.what}; {error.fix}"
        except HeadwaterError as error:
            wrong = error.what
    question: dict[str, Any] = {"sink": sink, "from": "now", "filter": filter or None, "cursor": cursor}
    return page(
        request,
        "stream.html",
        pipeline=pipeline.name,
        view=seen(asked),
        places=places,
        keepers=keepers,
        asked={"view": view, "sink": sink, "filter": filter},
        allowed=allowed,
        wrong=wrong,
        question=question,
        rows=ROWS,
    )
