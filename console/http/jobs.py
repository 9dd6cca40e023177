"""What is done with a pipeline, as jobs: begun by one request, asked for by others."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from cdc.errors import UnknownName
from console.http.reports import Asked
from console.http.served import known_sinks
from operations.jobs.job import Verb

router = APIRouter()
Names = Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=1_000)]


class JobRequest(BaseModel):
    """What is to be done."""

    model_config = ConfigDict(extra="forbid")

    verb: Verb = Field(description="As the command line has it; `repair` is `verify --repair`.")
    sink: str | None = Field(
        default=None, description="With which sink; of verify, repair and letters all without one; none of resnapshot."
    )
    generation: int | None = Field(
        default=None, ge=1, description="Of promote, rollback, retire, verify, repair, letters; else the verb's choice."
    )
    why: str | None = Field(default=None, max_length=200, description="Of pause: shown until it is resumed.")
    sample: int | None = Field(default=None, ge=1, description="Of verify, repair: so many random rows a view.")
    seed: int | None = Field(default=None, description="Of the sample: the same one again.")
    wait: float | None = Field(
        default=None, ge=0, le=3_600, description="Of verify, repair: seconds for which a sink may stand still."
    )
    tables: Names | None = Field(default=None, description="Of resnapshot: these. Of letters: only of their rows.")
    where: str | None = Field(default=None, max_length=10_000, description="Of resnapshot: only these rows, as SQL.")
    all: bool | None = Field(default=None, description="Of resnapshot: all captured tables.")
    sweep: bool | None = Field(default=None, description="Of resnapshot: false does not look for missed deletes.")
    views: Names | None = Field(default=None, description="Of letters: only of these.")
    keys: Names | None = Field(default=None, description="Of letters: only of these.")
    cause: str | None = Field(default=None, max_length=1_000, description="Of letters: a regular expression.")
    since: str | None = Field(default=None, max_length=50, description="Of letters: 30m, 2h, 7d ago, or a time.")


@router.post("/v1/jobs", status_code=202)
def begin(body: JobRequest, asked: Asked) -> dict[str, Any]:
    """Begin a job; of a kind one at a time a sink."""
    known_sinks(asked.pipeline, () if body.sink is None else (body.sink,))
    return asked.jobs.begin(**body.model_dump()).to_dict()


@router.get("/v1/jobs")
def jobs(
    asked: Asked, sink: Annotated[str | None, Query(description="Of this sink, or of all.")] = None
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
