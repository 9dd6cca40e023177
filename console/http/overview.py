"""What the pages show, as JSON: overview, an hour of a sink, what a promotion would do, the trace of a row."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from console.http.reports import LONGEST_KEY, Asked, Written, with_digits
from console.http.served import known_sinks
from operations.generations.promotion_report import promotion_report
from operations.trace.report import trace_report

router = APIRouter()


@router.get("/v1/overview")
def overview(asked: Asked) -> dict[str, Any]:
    """The newest that is known of the pipeline, with its age: asked in the background, so it is answered at once."""
    seen = asked.watching.newest
    return {"pipeline": asked.pipeline.name, "seen": None if seen is None else seen.to_dict(time.time())}


@router.get("/v1/sinks/{sink}/history")
def history(sink: str, asked: Asked) -> dict[str, Any]:
    """The last hour of a sink, a sample every 5 seconds, by columns: `at`, `age`, `behind`, `state`."""
    known_sinks(asked.pipeline, [sink])
    return {"pipeline": asked.pipeline.name, "sink": sink, **asked.watching.history(sink).to_dict()}


@router.get("/v1/sinks/{sink}/promotions/{number}")
def promotion(sink: str, number: int, asked: Asked) -> dict[str, Any]:
    """What a promotion of a generation would do now. Nothing is done."""
    known_sinks(asked.pipeline, [sink])
    return promotion_report(asked.pipeline, sink, number)


@router.get("/v1/trace", response_model=dict[str, Any])
def trace(
    request: Request,
    asked: Asked,
    table: Annotated[str, Query(max_length=500, description="schema.table, or its name alone.")],
    key: Annotated[
        str, Query(max_length=LONGEST_KEY, description="The primary key; of several columns with | between.")
    ],
    values: Annotated[bool, Query(description="Also what the row holds; only for who may operate.")] = False,
) -> Written:
    """Follow a row from Postgres through its topic into each sink, and say where it is stuck. Takes seconds."""
    told = trace_report(asked.pipeline, table, key, values=values and request.state.role == "operate")
    return Written(with_digits(told))
