"""What verify says of a sink that was not seen to catch up: what is so, and not a guess."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cdc.pipeline import Pipeline, loads
from console.cli.verify import _behind
from operations.state_folder import register_of
from spark.status import FlowStatus

TEXT = """
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views: {order: {root: orders}}
sinks: {cache: {type: redis, url: "redis://127.0.0.1:1", view: order}}
engine: {state_dir: STATE}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


def write(pipeline: Pipeline, flow: str, state: str) -> None:
    folder = register_of(pipeline, "cache").generation(1).flow_folder(flow)
    folder.mkdir(parents=True, exist_ok=True)
    FlowStatus(f"cache/{flow}", state, os.getpid(), 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], time.time()).write(folder)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({}, "it has never run"),
        ({"main": "running"}, "`headwater run` is at work on it: what differs may only be late; say --wait with more"),
        ({"main": "running", "card": "filling"}, "did not get nearer for 10 s"),
        ({"main": "running", "card": "failed"}, "card is failed; `headwater status FILE` says why"),
        ({"main": "stopped"}, "main is stopped"),
        ({"main": "retrying"}, "main is retrying"),
    ],
)
def test_it_says_whether_run_is_at_work(pipeline: Pipeline, states: dict[str, str], said: str) -> None:
    for flow, state in states.items():
        write(pipeline, flow, state)
    assert said in _behind(pipeline, "cache", 1, 10.0)
