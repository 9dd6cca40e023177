"""A joined view's table is right whatever step of a commit its process dies at: in a fill, live, and for a fan-out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark.join.engine import FAN_OUT
from tests.support.servers import servers
from tests.support.table_crashes import STEPS

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


def test_a_crash_at_any_step_of_a_commit_leaves_the_right_rows(tmp_path: Path) -> None:
    servers().up(["kafka", "redis-store"])
    ends, name = servers().endpoints, f"hwtest-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": ends.kafka})
    topics = [NewTopic(f"{name}.{table}", 2, 1) for table in ("parents", "kids", "toys")]
    topics.append(NewTopic(f"{name}-letters", 1, 1))
    for future in admin.create_topics(topics).values():
        future.result(30)
    try:
        spec = {"folder": str(tmp_path), "kafka": ends.kafka, "topic": name, "store": ends.redis_store_url}
        argv = [sys.executable, "-m", "tests.support.table_crashes", json.dumps(spec)]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-3000:]
    finally:
        for future in admin.delete_topics([topic.topic for topic in topics]).values():
            future.result(30)
        forget(ends.redis_store_url, name)
    found = json.loads(ran.stdout.splitlines()[-1])
    for name in ("kids", "counted"):
        view = found[name]
        # A batch and a deferred job may crash together, and one of them is heard.
        assert view["left"] == [] and len(view["crashes"]) >= len(STEPS)
        assert view["filled"] >= FAN_OUT + 200
        assert view["table"] == view["wanted"]
        assert view["pending"] == []


def forget(url: str, prefix: str) -> None:
    """Remove what the row store keeps of the test."""
    from redis import Redis

    with Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"{prefix}:*"):
            client.delete(key)
