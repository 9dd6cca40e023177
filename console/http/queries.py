"""Standing queries over HTTP: listed, registered, removed; each answers as the command line's ``--json``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from console.http.reports import Asked
from operations.standing.queries import list_queries, put_query, remove_query

router = APIRouter()
View = Annotated[str, Path(max_length=500)]
Name = Annotated[str, Path(max_length=64, description="The query's.")]


async def _sent(request: Request) -> bytes:
    """The very text: what the framework reads knows NaN, and what is written again may be another query."""
    return await request.body()


Clause = Annotated[bytes, Depends(_sent)]
_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "additionalProperties": True,
                "title": "Query",
                "description": "Query DSL of the search server, as under `query` of a search: "
                '`{"term": {"status": "open"}}`.',
            }
        }
    },
}


@router.get("/v1/queries/{view}")
def listed(view: View, asked: Asked) -> dict[str, Any]:
    """As `headwater queries list --json`: the queries that stand on a view, and whether all documents were judged."""
    return list_queries(asked.pipeline, view)


@router.get("/v1/queries/{view}/{name}")
def one(view: View, name: Name, asked: Asked) -> dict[str, Any]:
    """One of them, in the same shape."""
    return list_queries(asked.pipeline, view, name)


@router.put("/v1/queries/{view}/{name}", openapi_extra={"requestBody": _BODY})
def put(view: View, name: Name, query: Clause, asked: Asked) -> dict[str, Any]:
    """As `headwater queries put --json`: register a query, or change it. One that the server can't parse is refused."""
    return put_query(asked.pipeline, view, name, query)


@router.delete("/v1/queries/{view}/{name}")
def remove(view: View, name: Name, asked: Asked) -> dict[str, Any]:
    """As `headwater queries remove --json`; what matched it is told as `left`."""
    return remove_query(asked.pipeline, view, name)
