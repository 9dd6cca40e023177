"""The pages that do: forms, each of which begins a job and leads back to the sink."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from cdc.errors import ConfigError, UnknownName
from console.http.guard import set_cookie, whole_page
from console.http.pages.asking import Confirmed, Shown, fields
from console.http.pages.render import page
from console.http.served import known_sinks
from console.http.sessions import begun
from operations.jobs.job import Verb

# What is done within this time is shown as done by the page that follows.
PATIENCE_SECONDS = 1.0
LONGEST_WHY = 200
# A click too many must not be enough for these.
_FOR_GOOD = ("drop-letters", "retire")

router = APIRouter(include_in_schema=False)


@router.post("/sinks/{sink}/{verb}")
async def act(request: Request, sink: str, verb: str, asked: Shown, form: Confirmed) -> Response:
    """Begin a job on a sink."""
    known_sinks(asked.pipeline, [sink])
    found = next((one for one in get_args(Verb) if one == verb), None)
    if found is None:
        raise UnknownName(f"nothing is called {verb}", fix=f"choose from {', '.join(get_args(Verb))}")
    number = form.get("generation", "")
    if number and not number.isdecimal():
        raise ConfigError(f"generation {number} is no number", fix="send a form of the server's own page")
    why = form.get("why", "").strip()[:LONGEST_WHY] or None
    if found in _FOR_GOOD and not form.get("sure"):
        raise ConfigError("nothing was said of being sure", fix="say so in the form: what is removed is gone")
    cause = form.get("cause") or None  # every sign of it, as the letters were looked for
    sample = form.get("sample", "").strip() or None
    if sample and not sample.isdecimal():
        raise ConfigError(f"{sample} rows is no number", fix="give a number, or nothing for all rows")
    begin = partial(
        asked.jobs.begin,
        found,
        sink,
        generation=int(number) if number else None,
        why=why,
        cause=cause,
        sample=int(sample) if sample else None,
    )
    job = await asyncio.to_thread(begin)
    await asyncio.to_thread(asked.jobs.wait, job, PATIENCE_SECONDS)
    return RedirectResponse(f"/sinks/{sink}?{urlencode({'pipeline': asked.pipeline.name})}", 303)


@router.get("/login")
def login(request: Request, next: str = "/") -> Response:
    """The form that exchanges a token for a session."""
    return page(request, "login.html", next=_inside(next), wrong="")


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Exchange a token for a session; the guard has seen that the form is of a page of this server."""
    given = await fields(request)
    access = request.app.state.access
    token = given.get("token", "").strip()
    there = _inside(given.get("next", "/"))
    role = access.role_of(token)
    if access.tokens and role in (None, "stream"):  # the latter would be led to pages that it may not see
        wrong = "is not one of this server's" if role is None else "may only subscribe, and sees no page"
        return page(request, "login.html", 403, next=there, wrong=wrong)
    answer = RedirectResponse(there, 303)
    if access.tokens:
        answer.headers.append("Set-Cookie", set_cookie(request, begun(token)))
    return answer


@router.post("/logout")
async def log_out(request: Request, form: Confirmed) -> Response:
    """End a session."""
    answer = RedirectResponse("/login", 303)
    answer.headers.append("Set-Cookie", set_cookie(request, None))
    return answer


def _inside(path: str) -> str:
    """An address of this server: a login must not lead anywhere else."""
    inside = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return whole_page(path) if inside else "/"
