"""What is done with a sink, as jobs: begun by one request, asked for by others."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cdc.errors import UnknownName
from console.http.reports import Asked
from console.http.served import known_sinks
from operations.jobs import Verb

router = APIRouter()


class JobRequest(BaseModel):
    """What is to be done."""

    verb: Verb = Field(description="As the command line has it.")
    sink: str = Field(description="With which sink.")
    generation: int | None = Field(default=None, ge=1, description="Of promote and rollback; else the verb's choice.")
    why: str | None = Field(default=None, max_length=200, description="Of pause: shown until it is resumed.")


@router.post("/v1/jobs", status_code=202)
def begin(body: JobRequest, asked: Asked) -> dict[str, Any]:
    """Begin a job; one at a time a sink."""
    known_sinks(asked.pipeline, [body.sink])
    return asked.jobs.begin(body.verb, body.sink, generation=body.generation, why=body.why).to_dict()


@router.get("/v1/jobs")
def jobs(
    asked: Asked, sink: Annotated[str | None, Query(description="Only of this sink.")] = None
) -> dict[str, list[dict[str, Any]]]:
    """The newest jobs, the newest first; those of earlier servers among them."""
    return {"jobs": [job.to_dict() for job in asked.jobs.newest(sink)]}


@router.get("/v1/jobs/{number}")
def job(number: str, asked: Asked) -> dict[str, Any]:
    """A job: `running`, `done`, `failed` or `cut` (its server is gone), with what it has said."""
    found = asked.jobs.get(number)
    if found is None:
        raise UnknownName(f"there is no job {number}", fix="GET /v1/jobs has those that there are")
    return found.to_dict()
