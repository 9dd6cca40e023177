"""A file whose source is watched."""

from __future__ import annotations

TEXT = """\
version: 1
name: shop
source: {host: 127.0.0.1, port: 1, database: shop, user: u, password: p, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views: {order: {root: orders}}
sinks: {cache: {type: redis, url: "redis://127.0.0.1:1", view: order}}
engine: {state_dir: STATE}
"""
