"""The application: routes, errors, the guard before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from cdc.errors import ConfigError, HeadwaterError, Refused, StateError, UnknownName
from console.http import documents, events, freshness, jobs, matches, metrics, overview, queries, reports, stream
from console.http.guard import Access, Guard
from console.http.pages import act, letters, show
from console.http.pages import stream as board
from console.http.pages.render import STATIC, page
from console.http.served import Pipelines
from operations.jobs.job import told
from operations.push.streams import Streams


def make_app(pipelines: Pipelines, access: Access, leaving: Callable[[], bool] = lambda: False) -> FastAPI:
    """The application of a server.

    Args:
        pipelines: that it answers for; watched and closed with it.
        access: who may ask.
        leaving: whether the server is about to end: streams of events end then, so that it need not wait for them.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pipelines.watch()
        yield
        app.state.streams.close()
        pipelines.close()

    app = FastAPI(
        title="Headwater",
        version=version("headwater"),
        description="Where pipelines stand, and whether readers can see a write. Docs: docs/api.md.",
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.pipelines, app.state.access, app.state.leaving = pipelines, access, leaving
    app.state.streams = Streams(leaving)
    doors = (reports, freshness, metrics, overview, documents, jobs, events, stream, queries, matches)
    for part in (*doors, show, board, letters, act):
        app.include_router(part.router)
    app.mount("/static", _Static(directory=STATIC))
    app.add_exception_handler(HeadwaterError, _explained)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_middleware(Guard, access=access)
    return app


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return await _explained(
        request, ConfigError(f"{where}: {first['msg']}", fix="/openapi.json describes each question")
    )


class _Static(StaticFiles):
    """Scripts and styles; those that others wrote bear their versions in their names."""

    def file_response(self, *arguments: Any, **more: Any) -> Response:
        answer = super().file_response(*arguments, **more)
        answer.headers["Cache-Control"] = "no-cache"  # asked for each time whether it has changed: 304
        return answer


async def _explained(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadwaterError)
    status = 503 if error.transient else 500
    if isinstance(error, StateError) and request.method == "POST":
        status = 409  # another one is under way: nothing of this server is broken
    if isinstance(error, ConfigError):
        status = 404 if isinstance(error, UnknownName) else 403 if isinstance(error, Refused) else 400
    return _answer(request, status, told(error))


async def _plain(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: an address that is not there, a method that it has not."""
    assert isinstance(error, HTTPException)
    body = {"code": "refused", "what": str(error.detail), "means": "", "fix": "", "transient": False}
    return _answer(request, error.status_code, body)


def _answer(request: Request, status: int, body: dict[str, Any]) -> Response:
    if request.url.path.startswith(("/v1/", "/openapi.json", "/static/")):
        return JSONResponse({"error": body}, status)
    back = request.path_params.get("sink") if status != 404 else None  # of one that is not there no page is
    return page(request, "error.html", status, error=body, pipeline=request.query_params.get("pipeline"), back=back)
