"""The same persons with Avro in their topics, and a warehouse behind a REST catalogue with its files in a bucket."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import requests

from tests.support.erased import Erased
from tests.support.lakes import KEYS, TOKEN, rest_server, s3_server

BUCKET = "erased"


@dataclass
class ErasedElsewhere(Erased):
    """The pipeline, and the warehouse's servers.

    Attributes:
        rest, s3: where they are; known while ``serving``.
    """

    rest: str = ""
    s3: str = ""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The servers, for the time of a block."""
        servers = self.folder / "servers"
        servers.mkdir()
        with s3_server(servers, [BUCKET]) as self.s3, rest_server(servers, f"s3://{BUCKET}/w", self.s3) as self.rest:
            yield

    def environment(self) -> dict[str, str]:
        return super().environment() | KEYS

    def _call(self, verb: str, options: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """What needs Spark has a process of its own: the tests' own virtual machine knows nothing of buckets."""
        if verb != "erase" or "--yes" not in options:
            return super()._call(verb, options)
        command = [sys.executable, "-m", "console.cli", verb, str(self.file), *options]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False, timeout=500)

    def lake(self) -> dict[str, Any]:
        return {
            "catalog_uri": self.rest,
            "warehouse": f"s3://{BUCKET}/w",
            "token": TOKEN,
            "s3_endpoint": self.s3,
        }

    def form(self) -> dict[str, Any]:
        return {"format": "avro", "registry": {"url": self.stack.endpoints.registry_url}}

    def schemas(self, table: str) -> list[int]:
        """Versions that the registry has of the schema of a table's records."""
        subject = f"{self.name}.public.{table}-value"
        answer = requests.get(f"{self.stack.endpoints.registry_url}/subjects/{subject}/versions", timeout=10)
        answer.raise_for_status()
        found: list[int] = answer.json()
        return found

    def lake_files(self) -> Path:
        """Every object of the bucket just now, fetched."""
        folder = self.folder / "fetched"
        shutil.rmtree(folder, ignore_errors=True)
        keys = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
        client = boto3.client("s3", endpoint_url=self.s3, region_name="us-east-1", **keys)
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for one in page.get("Contents", ()):
                path = folder / one["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read())
        return folder
