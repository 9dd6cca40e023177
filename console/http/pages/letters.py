"""The page of dead letters: by cause, one by one, and one with its record and its document."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from cdc.errors import HeadwaterError
from console.http.pages.asking import Shown
from console.http.pages.render import page
from console.http.pages.show import seen
from console.http.reports import LONGEST_KEY
from console.http.served import Served
from operations.jobs.job import told
from operations.letters.listing import letter_report, letters_report
from operations.letters.wanted import Wanted

# One by one; /v1/letters has more.
EACH = 50

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
Said = Annotated[str, Query(max_length=1_000)]


@router.get("/letters")
def letters(
    request: Request,
    asked: Shown,
    sink: Said = "",
    cause: Said = "",
    key: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
    values: Annotated[bool, Query()] = False,
    part: Annotated[str | None, Query()] = None,
) -> HTMLResponse:
    """A form, and what it asks for. The letters take seconds: the page asks for them with ``part``."""
    operates = request.state.role == "operate"
    values = values and operates
    said = {"sink": sink, "cause": cause, "key": key, "values": values}
    report = _report(asked, said, whole=operates) if part in ("found", "whole") else None

    def again(which: str) -> str:
        """The address of the part that takes seconds."""
        named = {name: value for name, value in said.items() if value and name != "values"}
        more = {"values": 1} if values else {}
        return f"/letters?{urlencode({**named, **more, 'part': which, 'pipeline': asked.pipeline.name})}"

    template = "_letters.html" if part == "found" else "letters.html"
    shown: dict[str, Any] = {
        "view": seen(asked),
        "sinks": list(asked.pipeline.sinks),
        "asked": said,
        "again": again,
        "report": report,
    }
    return page(request, template, pipeline=asked.pipeline.name, **shown)


def _report(asked: Served, said: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """The letters, or why there are none to show: an error stands in the place that was asked for.

    Args:
        asked: of this pipeline.
        said: what the form has.
        whole: the cause is looked for in whole reasons, shown or not: so does the job that replays or forgets them.
    """
    try:
        wanted = Wanted(
            sinks=[said["sink"]] if said["sink"] else [],
            keys=[said["key"]] if said["key"] else [],
            cause=said["cause"] or None,
            whole=whole,
        )
        if said["key"]:
            return letter_report(asked.pipeline, wanted, values=said["values"])
        return letters_report(asked.pipeline, wanted, values=said["values"], each=EACH)
    except HeadwaterError as error:
        return {"error": told(error)}
