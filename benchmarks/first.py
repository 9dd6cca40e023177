"""The first minutes: how soon a document is seen (``preview``), and how soon a database is followed (``init``).

``python -m benchmarks.run preview init``.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
from redis import Redis
from ruamel.yaml import YAML

from benchmarks.results import Measurement
from benchmarks.stack import ready
from examples.common import REPLICATION_ROLE, Passwords
from examples.shop import generate
from tests.support.source import source_database
from tests.support.twelve import fill

SHOP = Path(generate.__file__).with_name("pipeline.yaml")
ROUNDS = 11
WAIT_SECONDS = 300.0


def _headwater(env: Mapping[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "console.cli", *words]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"headwater {' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def measure_preview() -> list[Measurement]:
    """The whole command on the shop's orders, each with customer, items, their products, and two sums."""
    stack = ready()
    info = generate.load(stack.endpoints, "shop", progress=print)
    with psycopg.connect(info, autocommit=True) as connection:
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {REPLICATION_ROLE}")
    passwords = Passwords.load(home=stack.site.home).as_environment()
    env = {**os.environ, **stack.endpoints.environment(), **passwords}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        file = Path(folder) / "pipeline.yaml"
        document = YAML(typ="safe").load(SHOP.read_text())
        del document["views"]["order_card"]["aggregates"]["worth"]  # the one of it that needs Spark
        document["engine"] = {"state_dir": f"{folder}/state"}
        with file.open("w") as out:
            YAML().dump(document, out)
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            _headwater(env, "preview", str(file), "order_card")
            seconds.append(time.perf_counter() - began)
    # The first one reads the program's files from disk.
    command = "python -m benchmarks.run preview"
    return [Measurement("preview_s", statistics.median(seconds[1:]), "s", ROUNDS - 1, command=command)]


def measure_init() -> list[Measurement]:
    """From an empty folder and a database of twelve tables to documents in Redis, all commands included."""
    stack = ready()
    endpoints = stack.endpoints
    with source_database(endpoints) as database, tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        with database.connect() as connection:
            fill(connection)
        words = dict.fromkeys(("HEADWATER_SOURCE_PASSWORD", "HEADWATER_SETUP_PASSWORD"), database.password)
        env = {**os.environ, **endpoints.environment(), **words, "HEADWATER_HOME": folder}
        file, name = f"{folder}/pipeline.yaml", database.name
        at = f"{database.owner}:{database.password}@{endpoints.postgres_host}:{endpoints.postgres_port}/{name}"
        running = None
        try:
            began = time.perf_counter()
            init = (
                "init",
                f"postgres://{at}",
                "--user",
                database.replicator,
                "--sink",
                "redis",
                "--out",
                file,
                "--yes",
            )
            _headwater(env, *init)
            _headwater(env, "check", file)
            _headwater(env, "apply", file, "--wait")
            run = [sys.executable, "-m", "console.cli", "run", file]
            running = subprocess.Popen(run, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with Redis.from_url(endpoints.redis_cache_url) as redis:
                # A view of one table, and one of three.
                seconds = [_seen(redis, f"{name}:{key}", began) for key in ("tag:1", "order:1")]
        finally:
            if running is not None:
                running.send_signal(signal.SIGTERM)
                running.wait(60)
            _headwater(env, "drop", file, "--topics", "--yes")
    command = "python -m benchmarks.run init"
    return [
        Measurement("init_to_running_s", min(seconds), "s", 1, command=command),
        Measurement("init_to_running_s/joined", seconds[1], "s", 1, command=command),
    ]


def _seen(redis: Redis, key: str, began: float) -> float:
    """Seconds since the beginning, once there is such a document."""
    while not redis.exists(key):
        if time.perf_counter() - began > WAIT_SECONDS:
            raise AssertionError(f"no {key} after {WAIT_SECONDS:.0f} s")
        time.sleep(0.02)
    return time.perf_counter() - began
