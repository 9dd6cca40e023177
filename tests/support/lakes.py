"""Servers for warehouses that are not on this machine: S3's protocol (moto) and a REST catalogue, as processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from deploy.local import artifacts
from deploy.local.java import choose
from deploy.spark.build import spark_jars

HOST = "127.0.0.1"
# moto takes any; that wrong ones are refused is tested against a server that was told to look.
KEYS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret-8f2c"}
TOKEN, CREDENTIAL = "a-token-of-the-test", "client:secret"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(argv: Sequence[str], address: str, log: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A server for as long as the block takes; yields its address once it answers anything at all."""
    with log.open("wb") as out:
        server = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **(env or {})})
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            try:
                requests.get(address, timeout=5)
                break
            except requests.RequestException:
                time.sleep(0.05)
        yield address
    finally:
        server.kill()
        server.wait()


@contextmanager
def s3_server(folder: Path, buckets: Sequence[str] = (), *, open_calls: int | None = None) -> Iterator[str]:
    """moto's S3; with ``open_calls`` it lets everybody do that many, and then only keys that it knows."""
    port = free_port()
    argv = [sys.executable, "-c", "from moto.server import main; main()", "-H", HOST, "-p", str(port)]
    env = {} if open_calls is None else {"INITIAL_NO_AUTH_ACTION_COUNT": str(open_calls)}
    with process(argv, f"http://{HOST}:{port}/moto-api/data.json", folder / "s3.log", env):
        for bucket in buckets:
            requests.put(f"http://{HOST}:{port}/{bucket}", timeout=10).raise_for_status()
        yield f"http://{HOST}:{port}"


@contextmanager
def rest_server(folder: Path, warehouse: str, endpoint: str, *, token: str = TOKEN) -> Iterator[str]:
    """Iceberg's REST protocol over SQLite, its files in a bucket."""
    port = free_port()
    jars = [*artifacts.spark_jars(), *artifacts.ensure(["spark-s3"])["spark-s3"].glob("*.jar")]
    classes = ":".join([*map(str, jars), f"{spark_jars()}/*"])
    properties = {
        "uri": f"jdbc:sqlite:{folder}/rest.db",
        "warehouse": warehouse,
        "jdbc.schema-version": "V1",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "client.region": "us-east-1",
        "s3.access-key-id": KEYS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    source = Path(__file__).with_name("RestCatalogServer.java")
    java = [str(choose().java), "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", classes, str(source)]
    argv = [*java, str(port), token, *(f"{key}={value}" for key, value in properties.items())]
    with process(argv, f"http://{HOST}:{port}/v1/config", folder / "rest.log"):
        yield f"http://{HOST}:{port}"
