"""The pages that show: overview, one sink, what a promotion would do, the trace of a row."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from cdc.errors import HeadwaterError
from console.http.pages.asking import Shown
from console.http.pages.model import heard, overview, words_of
from console.http.pages.render import page
from console.http.reports import LONGEST_KEY
from console.http.served import Served, known_sinks
from operations.generations.promotion_report import promotion_report
from operations.jobs.job import told
from operations.push.source import kept_views
from operations.state.folder import register_of
from operations.trace.report import trace_report

# Without a key the page is the form alone.
LONGEST = 500

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
Part = Annotated[str | None, Query()]


def seen(asked: Served) -> dict[str, Any]:
    """What the newest look says, as pages show it."""
    watching = asked.watching
    histories = {sink: watching.history(sink) for sink in asked.pipeline.sinks}
    return overview(watching.newest, histories, time.time())


@router.get("/")
def first(request: Request, asked: Shown, part: Part = None) -> HTMLResponse:
    """The flow as a picture."""
    template = "_overview.html" if part == "live" else "overview.html"
    jobs = [job.to_dict() for job in asked.jobs.newest()[:5]]
    return page(request, template, pipeline=asked.pipeline.name, view=seen(asked), jobs=jobs, source=_source(asked))


@router.get("/sinks/{sink}")
def one_sink(request: Request, sink: str, asked: Shown, part: Part = None) -> HTMLResponse:
    """One sink."""
    known_sinks(asked.pipeline, [sink])
    view = seen(asked)
    found = next((one for one in view["sinks"] if one["sink"] == sink), None)
    if found is not None:  # this page's colour is this sink's
        view |= {"level": found["level"], "words": words_of(found), "heard": heard([(sink, found)])}
    jobs = [job.to_dict() for job in asked.jobs.newest(sink)[:5]]
    template = "_sink.html" if part == "live" else "sink.html"
    streams = [name for keeper, name in kept_views(asked.pipeline) if keeper == sink]
    more: dict[str, Any] = {"name": sink, "sink": found, "jobs": jobs, "streams": streams}
    if part != "live":  # asked of the state folder: who has just pressed a button finds the other one
        stages = {one.stage for one in register_of(asked.pipeline, sink).entries()}
        more |= {"previous": bool(stages & {"previous", "retiring"})}
    return page(request, template, pipeline=asked.pipeline.name, view=view, **more)


@router.get("/sinks/{sink}/promote/{number}")
def promotion(request: Request, sink: str, number: int, asked: Shown) -> HTMLResponse:
    """What a promotion would do, before it is done."""
    known_sinks(asked.pipeline, [sink])
    report = promotion_report(asked.pipeline, sink, number)
    view = seen(asked)
    found = next((one for one in view["sinks"] if one["sink"] == sink), None)
    builds = {one["generation"]: one for one in found["builds"]} if found else {}
    return page(request, "promote.html", pipeline=asked.pipeline.name, view=view, report=report, builds=builds)


@router.get("/trace")
def trace(
    request: Request,
    asked: Shown,
    table: Annotated[str, Query(max_length=LONGEST)] = "",
    key: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
    values: Annotated[bool, Query()] = False,
    part: Part = None,
) -> HTMLResponse:
    """A form; with a row, the page that asks for its trace. With ``part``: the trace itself, which takes seconds."""
    operates = request.state.role == "operate"
    report = None
    if part in ("found", "whole") and table and key:
        try:
            report = trace_report(asked.pipeline, table, key, values=values and operates)
        except HeadwaterError as error:  # it stands in the place that was asked for
            report = {"error": told(error)}
    tables = asked.watching.newest
    known = [one["table"] for one in (tables.tables if tables else None) or []]
    template = "_trace.html" if part == "found" else "trace.html"
    return page(
        request,
        template,
        pipeline=asked.pipeline.name,
        view=seen(asked),
        tables=sorted(known),
        asked={"table": table, "key": key, "values": values and operates},
        report=report,
    )


def _source(asked: Served) -> dict[str, Any]:
    source = asked.pipeline.source
    return {"host": source.host, "database": source.database, "slot": source.slot}
