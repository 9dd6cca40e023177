"""Views with a state on Spark's own cluster: two workers, one of them killed, and all as the log says.

The state folder is what both workers and the driver see: that is looked at before anything starts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from ruamel.yaml import YAML

from deploy.local.sparkcluster import SparkCluster
from examples.filling import fill
from examples.social import load as social
from tests.support.cluster_faults import executors, kill_worker
from tests.support.joined import Joined
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]

SCHEMA = "CREATE TABLE happened (id int PRIMARY KEY, type text NOT NULL, about text, at timestamptz NOT NULL);"
VIEWS = """
by_minute:
  root: happened
  window: {time: at, delay: 5 seconds, size: 1 minute, by: {about: about}, measures: {n: "count(*)", last: max(id)}}
asked:
  root: happened
  match:
    {time: at, delay: 5 seconds, within: 10 seconds, first: {where: "type = 'asked'", key: about},
     then: {where: "type = 'answered'", key: about}}
"""
EVENTS, AT_ONCE = 4_000, 200
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


class Asked(Joined):
    """A table of events, kept by a cluster."""

    machines: SparkCluster

    def prepare(self, *_: object) -> None:
        schema = self.folder / "schema.sql"
        schema.write_text(SCHEMA)
        self.conninfo = fill(self.stack.endpoints, self.name, social.OWNER, schema, lambda: iter(()))
        self.write_pipeline()
        self.run("apply", "--wait")

    def write_pipeline(self) -> None:
        yaml = YAML(typ="safe")
        document = yaml.load((self.folder_of(social) / "pipeline.yaml").read_text())
        views = {self.view(name): view for name, view in yaml.load(VIEWS).items()}
        cache = document["sinks"]["cache"] | {"views": [*views], "key_prefix": f"{self.name}:"}
        conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
        document |= {"name": self.name, "views": views, "sinks": {"cache": cache}}
        document["engine"] = {"state_dir": str(self.folder / "state"), "spark_conf": conf}
        document["engine"]["max_offsets_per_trigger"] = AT_ONCE
        del document["row_store"]
        document["source"] |= {"database": self.name, "setup_user": social.OWNER, "tables": ["public.happened"]}
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def happen(self, first: int, count: int) -> None:
        """So many events, out of order by up to three seconds."""
        chance = random.Random(first)
        with psycopg.connect(self.conninfo) as connection, connection.cursor() as cursor:
            for number in range(first, first + count):
                at = BEGIN + timedelta(milliseconds=100 * number - chance.randrange(3_000))
                kind = chance.choice(("asked", "answered"))
                cursor.execute("INSERT INTO happened VALUES (%s, %s, %s, %s)", (number, kind, f"a{number % 7}", at))


@pytest.fixture(scope="module")
def asked(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Captured; nothing runs."""
    folder = tmp_path_factory.mktemp("asked")
    with SparkCluster(folder / "spark", workers=2, silence=30) as machines:
        made = Asked(local_stack, folder)
        made.machines = machines
        try:
            made.prepare()
            yield made
        finally:
            made.close()


def test_what_a_cluster_keeps_is_what_the_log_says_though_a_worker_is_killed(asked: Asked) -> None:
    asked.happen(0, EVENTS // 2)
    asked.start("--master", asked.machines.url)
    assert len(executors(asked.machines)) == 2
    for part in range(10):
        asked.happen(EVENTS // 2 + part * AT_ONCE, AT_ONCE)
        time.sleep(2)
        if part == 3:
            kill_worker(asked.machines, 0)
        if part == 6:
            asked.machines.start_worker(0)
    asked.assert_equal()
    asked.stop()
    # And the process alone goes on from there.
    asked.start()
    asked.happen(EVENTS, AT_ONCE)
    asked.assert_equal()
