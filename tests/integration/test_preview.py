"""`preview`: documents straight from Postgres, by the file as it is now; no Kafka, nothing captured."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import load
from operations.preview.asked import Asked
from operations.preview.previewer import Previewer
from tests.support import inside
from tests.support.servers import Servers, servers
from tests.support.source import PATIENCE, SourceDatabase, source_database
from tests.support.twelve import fill

# A session that another test's builder has started first hands its rows over by sockets that PySpark leaves to the
# garbage collector.
pytestmark = [
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

VIEWS = """
views:
  order:
    root: orders
    columns: [order_id, placed]
    refs:
      customer: {table: customers, on: {customer_id: customer_id}, columns: [name, rating]}
    children:
      items: {table: OrderItems, on: {order_id: orderId}, order_by: line desc, columns: [line, quantity]}
    aggregates:
      pieces: {table: OrderItems, on: {order_id: orderId}, value: sum(quantity)}
  item: {root: OrderItems}
  late:
    root: orders
    columns: [order_id]
    fields: {half: "order_id / 2", risk: "10 / (order_id - 5)"}
    where: "order_id > 3"
"""


@dataclass
class Seen:
    """A database and a file; its Kafka, Connect and sinks are at addresses where nobody is."""

    stack: Servers
    database: SourceDatabase
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.yaml"

    def write(self, views: str = VIEWS) -> None:
        at = self.database.endpoints
        self.file.write_text(f"""version: 1
name: {self.database.name}
source:
  host: {at.postgres_host}
  port: {at.postgres_port}
  database: {self.database.name}
  user: {self.database.replicator}
  password: {self.database.password}
  tables: [public.orders, public.OrderItems, public.customers]
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
row_store: {{url: "redis://127.0.0.1:1/0"}}
engine: {{state_dir: {self.folder}/state}}
sinks:
  cache: {{type: redis, url: "redis://127.0.0.1:1/0", views: [order, item, late]}}
{views}""")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return inside.call(["preview", str(self.file), *words], dict(os.environ))

    def report(self, *words: str, ok: int = 0) -> dict[str, Any]:
        done = self.call(*words, "--json")
        assert done.returncode == ok, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    stack = servers()
    stack.up(["postgres"])
    with source_database(stack.endpoints) as database:
        with database.connect() as connection:
            fill(connection)
        database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {database.replicator}")
        yield Seen(stack, database, tmp_path_factory.mktemp("preview"))


@pytest.fixture
def seen(made: Seen) -> Seen:
    made.write()
    return made


ORDER = {
    "order_id": 3,
    "placed": "2026-01-01T03:00:00Z",
    "customer": {"name": "customer 4", "rating": 0.4},
    "items": [{"line": 3, "quantity": 3}, {"line": 2, "quantity": 2}, {"line": 1, "quantity": 1}],
    "pieces": 6,
}


def test_one_document_with_all_that_is_joined(seen: Seen) -> None:
    report = seen.report("order", "3")
    assert report["documents"] == [{"key": "3", "document": ORDER, "why": ""}]
    said = seen.call("order", "3")
    document = said.stdout.partition("\n")[2]
    assert json.loads(document) == ORDER and list(json.loads(document)) == list(ORDER)


def test_a_command_of_its_own_starts_no_spark_and_is_soon_done(seen: Seen) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "console.cli", "preview", str(seen.file), "order", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-2000:]
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    heavy = {"pyspark", "pyarrow", "pandas", "elasticsearch", "redis", "confluent_kafka", "requests", "py4j"}
    assert "psycopg" in modules and not heavy & modules
    # Of the processor, because others use the machine too; twice what it takes. benchmarks/first.py has the clock's.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3


def test_composite_keys_and_keys_that_are_nowhere(seen: Seen) -> None:
    assert seen.report("item", "3|1")["documents"][0]["document"]["productId"] == 5
    missing = seen.report("item", "3,1", ok=1)
    assert missing["documents"] == [] and "3|1" in missing["near"]
    wrong = seen.report("order", "no number", ok=1)
    assert wrong["documents"] == [] and "no number is not a bigint" in wrong["not_a_key"]


def test_the_report_has_the_documented_keys(seen: Seen) -> None:
    page = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text(encoding="utf-8")
    shown = json.loads(page.partition("\n## preview\n")[2].partition("```json\n")[2].partition("```")[0])
    report = seen.report("order", "3")
    assert report.keys() == shown.keys() and report["documents"][0].keys() == shown["documents"][0].keys()


def test_a_sample_is_the_same_each_time(seen: Seen) -> None:
    first, second = (seen.report("order", "--sample", "7")["documents"] for _ in range(2))
    assert first == second and len({one["key"] for one in first}) == 7


def test_a_condition_is_postgress_own_sql(seen: Seen) -> None:
    where = "customer_email LIKE '4@%' -- everybody's fourth"
    keys = [one["key"] for one in seen.report("order", "--where", where)["documents"]]
    assert keys == ["3", "23", "43"]
    # Functions are found where anybody's session finds them.
    third = "CREATE OR REPLACE FUNCTION third(n bigint) RETURNS boolean LANGUAGE sql AS 'SELECT n = 3'"
    seen.database.execute(third, f"GRANT USAGE ON SCHEMA public TO {seen.database.replicator}")
    assert [one["key"] for one in seen.report("order", "--where", "third(order_id)")["documents"]] == ["3"]
    assert len(seen.report("order", "--where", "true", "--sample", "2")["documents"]) == 2
    assert seen.report("order", "--where", "false", ok=1)["documents"] == []


@pytest.mark.parametrize(
    "condition",
    [
        "true); DELETE FROM public.orders; SELECT (true",
        "EXISTS (SELECT set_config('transaction_read_only', 'off', false)) AND nextval('s') > 0",
        "set_config('transaction_read_only', 'off', true) = 'off'",
        "nextval('s') > 0",
        "colour = 'red'",
        "total >",
    ],
)
def test_a_condition_can_change_nothing(seen: Seen, condition: str) -> None:
    seen.database.execute("CREATE SEQUENCE IF NOT EXISTS s")
    seen.database.execute(f"GRANT ALL ON SEQUENCE s TO {seen.database.replicator}")
    done = seen.call("order", "--where", condition)
    assert done.returncode == 1 and "Postgres says" in done.stderr, done
    assert seen.database.rows("SELECT count(*) FROM orders") == [(60,)]
    assert seen.database.rows("SELECT is_called FROM s") == [(False,)]


def test_a_condition_that_takes_too_long_is_given_up(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.preview.asked.TIMEOUT_SECONDS", 1)
    done = seen.call("order", "--where", "pg_sleep(30) IS NULL")
    assert done.returncode == 1 and "took longer than 1 s" in done.stderr


def test_key_and_condition_exclude_each_other(seen: Seen) -> None:
    assert "exclude each other" in seen.call("order", "3", "--where", "true").stderr


def test_errors_name_the_place_in_the_file(seen: Seen) -> None:
    seen.write(VIEWS.replace("customer_id: customer_id", "custmer_id: customer_id"))
    done = seen.call("order")
    assert done.returncode == 1 and f"{seen.file}:" in done.stderr and "custmer_id" in done.stderr
    seen.write(VIEWS.replace("root: orders", "root: ordrs"))
    assert f"{seen.file}:" in seen.call("order").stderr
    seen.write()
    assert "did you mean order" in seen.call("ordr").stderr


def test_a_table_that_the_role_may_not_read(seen: Seen) -> None:
    seen.database.execute(f"REVOKE SELECT ON customers FROM {seen.database.replicator}")
    try:
        done = seen.call("order", "3")
        assert done.returncode == 1 and "customers" in done.stderr and "headwater apply" in done.stderr
        # Before the first `apply` the tables' owner reads, but runs nothing that somebody typed.
        owner = f"  setup_user: {seen.database.owner}\n  setup_password: {seen.database.password}\n  tables: ["
        seen.file.write_text(seen.file.read_text().replace("  tables: [", owner))
        done = seen.call("order", "3")
        assert done.returncode == 0 and f"reading as {seen.database.owner}" in done.stderr
        done = seen.call("order", "--where", "true")
        assert done.returncode == 1 and "headwater apply" in done.stderr
    finally:
        seen.database.execute(f"GRANT SELECT ON customers TO {seen.database.replicator}")


def test_spark_sql_is_computed_and_what_fails_says_why(seen: Seen) -> None:
    found = {one["key"]: one for one in seen.report("late", "--where", "order_id IN (2, 5, 6)")["documents"]}
    assert found["6"]["document"] == {"order_id": 6, "half": 3.0, "risk": 10.0}
    assert found["5"]["document"] is None and "risk" in found["5"]["why"] and "DIVIDE_BY_ZERO" in found["5"]["why"]
    assert found["2"]["document"] is None and "leaves it out" in found["2"]["why"]
    seen.write(VIEWS.replace('half: "order_id / 2"', 'half: "ordr_id / 2"'))
    done = seen.call("late", "6")
    assert done.returncode == 1 and f"{seen.file}:" in done.stderr and "ordr_id" in done.stderr


def test_spark_is_started_once_and_stays(seen: Seen) -> None:
    said: list[str] = []
    with Previewer(said.append) as previewer:
        for half in (3.0, 4.0):
            asked = Asked(key=str(int(half * 2)))
            [one] = previewer.report(load(seen.file), "late", asked)["documents"]
            assert one["document"]["half"] == half
    assert len([line for line in said if line.startswith("starting Spark")]) == 1, said


def test_a_save_shows_it_again_and_an_error_does_not_end_it(seen: Seen, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        words = [sys.executable, "-m", "console.cli", "preview", str(seen.file), "order", "3", "--watch", "--json"]
        running = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_for(out, lambda lines: len(documents(lines)) == 1, running)
        seen.write(VIEWS.replace("columns: [order_id, placed]", "columns: [order_id"))
        wait_for(out, lambda lines: any("error [pipeline-file]" in line for line in lines), running)
        seen.write(VIEWS.replace("columns: [order_id, placed]", "columns: [order_id]"))
        wait_for(out, lambda lines: len(documents(lines)) == 2, running)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
    finally:
        if running.poll() is None:
            running.kill()
            running.wait(30)
    first, second = documents(out.read_text().splitlines())
    assert first == ORDER and second == {name: value for name, value in ORDER.items() if name != "placed"}


def documents(lines: list[str]) -> list[Any]:
    return [json.loads(line)["documents"][0]["document"] for line in lines if line.startswith("{")]


def wait_for(out: Path, good: Any, running: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30 * PATIENCE
    while not good(out.read_text().splitlines()):
        assert running.poll() is None and time.monotonic() < until, out.read_text()
        time.sleep(0.1)
