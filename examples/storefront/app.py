"""The storefront: sellers save products, and find them on the search page. Always.

    python -m examples.storefront.app

A product is written to Postgres and to nothing else. The search page asks Elasticsearch, which Headwater keeps in
sync a moment later; so whoever has just written waits for that moment, and nobody else does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qs, urlencode

import psycopg
import redis
import uvicorn
from elasticsearch import Elasticsearch
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from headwater_client import Headwater, at_least_as_fresh, current, forget, whatever
from headwater_client.asgi import ReadYourWrites
from headwater_client.cache import Cache
from headwater_client.psycopg import writing

PIPELINE = "storefront"
PORT = 8480
# A search page that is a second late is worse than one that lacks the newest product.
PATIENCE_SECONDS = 1.0


@dataclass(frozen=True)
class Stores:
    """What the application talks to.

    Attributes:
        connect: opens a connection to Postgres, in autocommit.
        search: Elasticsearch.
        index: readers' alias.
        cache: of products by id.
        headwater: the server of ``headwater serve``.
        pipeline: the pipeline's name.
    """

    connect: Callable[[], psycopg.Connection]
    search: Elasticsearch
    index: str
    cache: Cache
    headwater: Headwater
    pipeline: str = PIPELINE


def make_app(stores: Stores, secret: bytes, patience: float = PATIENCE_SECONDS) -> FastAPI:
    """The application.

    Args:
        stores: what it talks to.
        secret: signs the cookie with a user's newest writes.
        patience: how long a search waits for them, in seconds.
    """
    app = FastAPI(title="storefront", docs_url=None, redoc_url=None)
    app.add_middleware(ReadYourWrites, secret=secret)

    @app.post("/products")
    async def save(request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if not form.get("name") or not form.get("price"):
            raise HTTPException(400, "a product has a name and a price")
        await run_in_threadpool(_insert, stores, form)
        return RedirectResponse(f"/?{urlencode({'q': form['name']})}", status_code=303)

    @app.get("/", response_class=HTMLResponse)
    def find(q: str = "", fresh: str = "mine") -> str:
        chosen = whatever if fresh == "any" else at_least_as_fresh(current())
        answer = chosen.wait(stores.headwater, ["search"], timeout=patience)
        # What was rolled back, say. What this page shows stays for the other one: the cache may have it later.
        forget(answer.settled)
        query = {"match_phrase": {"name": q}} if q else {"match_all": {}}
        hits = stores.search.search(index=stores.index, query=query, size=50)["hits"]["hits"]
        return _page(q, [hit["_source"] for hit in hits], late=answer.state in ("timeout", "unknown"))

    @app.get("/products/{key}")
    def show(key: int) -> Response:
        # By its id a product is there as soon as it is applied: nothing to refresh.
        at_least_as_fresh(current()).wait(stores.headwater, ["cache"], found_by="id", timeout=patience)
        document = stores.cache.get(str(key))
        if document is None:
            raise HTTPException(404, "there is no such product")
        return Response(document, media_type="application/json")

    return app


def _insert(stores: Stores, form: Mapping[str, str]) -> None:
    with stores.connect() as connection, writing(connection, stores.pipeline) as cursor:
        cursor.execute(
            "INSERT INTO products (name, seller, price) VALUES (%s, %s, %s)",
            [form["name"], form.get("seller", "somebody"), form["price"]],
        )


def _page(asked: str, products: list[dict[str, object]], *, late: bool) -> str:
    rows = "".join(
        f'<li><a href="/products/{one["id"]}">{escape(str(one["name"]))}</a> {one["price"]} '
        f"<small>{escape(str(one['seller']))}</small></li>"
        for one in products
    )
    note = "<p>What you have just saved will be here in a moment.</p>" if late else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>storefront</title><h1>storefront</h1>'
        f'<form><label>search <input name="q" value="{escape(asked)}"></label><button>find</button></form>{note}'
        f"<ul>{rows}</ul>"
        '<form method="post" action="/products"><label>name <input name="name" required></label> <label>price '
        '<input name="price" type="number" step="0.01" min="0" required></label> <button>save</button></form></html>'
    )


def main() -> None:
    """Serve it, against the local stack or what the environment names."""
    from examples.common import Passwords, Server, conninfo

    server = Server.from_environment()
    text = conninfo(server, "storefront", user="storefront_owner", password=Passwords.load().setup)
    elasticsearch = os.environ.get("HEADWATER_ELASTICSEARCH", "http://127.0.0.1:15200")
    cache = redis.Redis.from_url(os.environ.get("HEADWATER_REDIS_CACHE", "redis://127.0.0.1:15379/0"))
    stores = Stores(
        connect=lambda: psycopg.connect(text, autocommit=True),
        search=Elasticsearch(elasticsearch),
        index="storefront-products",
        cache=Cache(cache, "product", "storefront:"),
        headwater=Headwater(os.environ.get("HEADWATER_URL", "http://127.0.0.1:8470"), pipeline=PIPELINE),
    )
    print(f"storefront at http://127.0.0.1:{PORT}")
    uvicorn.run(make_app(stores, os.urandom(32)), host="127.0.0.1", port=PORT, log_level="warning")


if __name__ == "__main__":
    main()
