"""What is asked and answered at once: pipelines, their status, their generations, the server's own health."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response

from console.http.served import Served
from operations.status.alive import ailments
from operations.status.generations import generations_report
from operations.status.sinks import status_report

router = APIRouter()
# No key of a row that anybody reads is longer, whatever a sink takes: with every sign of it escaped an address of this
# length is still taken by the server (64 KiB).
LONGEST_KEY = 4_000


async def served(
    request: Request,
    pipeline: Annotated[str | None, Query(description="Its name; may be left out where there is one.")] = None,
) -> Served:
    """The pipeline that a question is about."""
    one: Served = request.app.state.pipelines.get(pipeline)
    return one


Asked = Annotated[Served, Depends(served)]


def with_digits(report: dict[str, Any]) -> bytes:
    """An answer that shows what rows hold, as JSON: the framework's own writer has no room for all of their numbers."""
    return orjson.dumps(report)


class Written(Response):
    """JSON that is written already."""

    media_type = "application/json"


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether this server answers; says nothing of pipelines."""
    # In the loop, and asks nobody: who looks whether it lives must not stand in line behind those who ask servers.
    return {"status": "ok"}


@router.get("/v1/pipelines")
def pipelines(request: Request) -> dict[str, list[str]]:
    """The pipelines that this server answers for."""
    return {"pipelines": request.app.state.pipelines.names}


@router.get("/v1/status")
def status(asked: Asked) -> dict[str, Any]:
    """As `headwater status --json`."""
    return status_report(asked.pipeline)


@router.get("/v1/alive")
def alive(asked: Asked) -> dict[str, Any]:
    """As `headwater status --alive`: whether a process is at work on every sink, from the state folder alone."""
    found = ailments(asked.pipeline)
    return {"alive": not found, "ailments": found}


@router.get("/v1/generations")
def generations(asked: Asked) -> dict[str, Any]:
    """As `headwater generations --json`."""
    return generations_report(asked.pipeline)
