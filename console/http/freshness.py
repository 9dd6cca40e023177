"""Reading one's own writes: wait for one, ask how old a sink is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from cdc.ages import at_least
from cdc.token import MAX_CHARS, parse_token
from console.http.gone import gone
from console.http.reports import Asked
from console.http.served import known_sinks, known_views
from operations.freshness.answers import of_all
from operations.freshness.sights import NEW_SECONDS
from operations.freshness.wait import Wait
from operations.freshness.waits import Waits
from operations.state.accepted import sinks_to_wait_for

# Who waits longer holds a connection that somebody between may have closed long ago.
LONGEST_MS = 60_000
# "Is it visible now?" takes a moment to know: the database and the slot are asked, an index is refreshed. Less than the
# second that headwater-client waits longer than it lets a server wait.
NOW_SECONDS = 0.75
# Who asks first how old a sink is begins the look, and waits for it so long; looked for that often.
FIRST_SECONDS, LOOK_SECONDS = 2.5, 0.1

router = APIRouter()
Name = Annotated[str, Field(max_length=500)]
Token = Annotated[str, Field(max_length=MAX_CHARS)]


class WaitRequest(BaseModel):
    """What to wait for."""

    # A misspelt `token` would wait for something else, and a misspelt `sinks` for all of them.
    model_config = ConfigDict(extra="forbid")

    token: Token | None = Field(default=None, description="Of the write; without any: all that is committed now.")
    tokens: list[Token] = Field(
        default=[], max_length=64, description="Of more writes: all are waited for at once, `writes` tells of each."
    )
    sinks: list[Name] = Field(
        default=[],
        max_length=64,
        description="These sinks; if empty all but those that were saved and not applied, and never had anything.",
    )
    views: list[Name] = Field(default=[], max_length=256, description="Only these views of them; all if empty.")
    found_by: Literal["search", "id"] = Field(
        default="search", description="A search index shows a document to a look-up by its id earlier than to a search."
    )
    max_staleness_ms: int | None = Field(
        default=None, ge=0, description="Instead of a token: enough if what readers see is at most this old."
    )
    timeout_ms: int = Field(
        default=2_000,
        ge=0,
        le=LONGEST_MS,
        description="Then `timeout` is answered; 0: as soon as it is known whether it is visible now.",
    )


@router.post("/v1/wait")
async def wait(request: Request, body: WaitRequest, asked: Asked) -> dict[str, Any]:
    """Wait until readers can see a write: `visible`, `timeout`, `rejected`, `aborted` or `unknown`; never a lie.

    Of several writes the worst is answered, and each in `writes`, in the order of `token` and `tokens`.
    """
    pipeline, waits = asked.pipeline, asked.waits
    search, now = body.found_by == "search", body.timeout_ms == 0
    until = time.monotonic() + (NOW_SECONDS if now else body.timeout_ms / 1000)
    # Beside the loop, in which all others wait: a file that `run` has just taken up is read there.
    sinks = known_sinks(pipeline, body.sinks) if body.sinks else await asyncio.to_thread(sinks_to_wait_for, pipeline)
    views = known_views(pipeline, sinks, body.views)
    tokens = [parse_token(one) for one in ([] if body.token is None else [body.token]) + body.tokens]
    if tokens:
        begun = waits.begin([Wait(token, sinks, views, search) for token in tokens])
    elif body.max_staleness_ms is not None:
        begun = [waits.fresh(sinks, views, body.max_staleness_ms / 1000, search=search)]
    else:
        begun = waits.begin([Wait(None, sinks, views, search)])
    told = [asyncio.wrap_future(one.known if now else one.ended) for one in begun]
    watching = asyncio.create_task(_watch(request, waits, begun))
    try:
        await asyncio.wait(told, timeout=max(until - time.monotonic(), 0.0))
    finally:  # also when the server ends
        watching.cancel()
        answers = [waits.give_up(one) for one in begun]
    answer = of_all(answers).to_dict()
    return {**answer, "writes": [one.to_dict() for one in answers]} if body.tokens else answer


async def _watch(request: Request, waits: Waits, begun: Sequence[Wait]) -> None:
    """Who asked and has gone (an aborted page load) holds no place that others wait for."""
    await gone(request.receive)
    for one in begun:
        waits.give_up(one)


@router.get("/v1/sinks/{sink}/freshness")
async def freshness(
    sink: str, asked: Asked, views: Annotated[tuple[str, ...], Query(description="Only these; all if empty.")] = ()
) -> dict[str, Any]:
    """How old what a sink has applied is: measured from the commits in Postgres."""
    known_sinks(asked.pipeline, [sink])
    known_views(asked.pipeline, [sink], views)
    until = time.monotonic() + FIRST_SECONDS
    as_of, reach = asked.waits.as_of(sink, views, within=NEW_SECONDS)
    while reach is None and time.monotonic() < until:  # who asks first begins the look
        await asyncio.sleep(LOOK_SECONDS)
        as_of, reach = asked.waits.as_of(sink, views, within=NEW_SECONDS)
    if reach is None:  # a row store is silent: what it said last is better than nothing
        as_of, reach = asked.waits.as_of(sink, views)
    return {
        "pipeline": asked.pipeline.name,
        "sink": sink,
        "as_of": as_of,
        "staleness_seconds": None if as_of is None else round(at_least(as_of, time.time()), 3),
        "generation": None if reach is None or not reach.generations else reach.generations[-1],
        "behind": None if reach is None else reach.behind,
        "reason": None if reach is None else reach.reason,
    }
