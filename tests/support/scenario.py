"""A whole pipeline of a test's own: a fresh shop database, all three sinks, and the command as users run it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from psycopg import sql
from ruamel.yaml import YAML

from examples.common import Passwords
from examples.shop import generate
from examples.shop.workload import WorkloadReport, run_workload
from tests.support import inside
from tests.support.killing import kill_family
from tests.support.log_lines import sentences
from tests.support.servers import Servers

SHOP = Path(generate.__file__).with_name("pipeline.yaml")
SMALL = generate.Sizes(60, 40, 120)
# A loaded machine starts Spark in half a minute; what takes longer than this is stuck.
START_SECONDS = 300.0
EQUAL_SECONDS = 180.0


@dataclass
class Scenario:
    """One pipeline with its database, its state folder and its runner process.

    Attributes:
        code: another version's source, whose commands are called; None for this one's.
        program: what Python is called with for ``run``.
        sinks: those of the shop's that it has; none for all.
    """

    stack: Servers
    folder: Path
    name: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}")
    runner: subprocess.Popen[bytes] | None = None
    conninfo: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    code: Path | None = None
    sinks: Sequence[str] = ()
    program: Sequence[str] = ("-m", "console.cli")
    stops: int = field(default=0, init=False)

    # -- life --------------------------------------------------------------------------------------------------------

    def prepare(self, sizes: generate.Sizes = SMALL) -> None:
        """Database, pipeline file, capture."""
        self.conninfo = generate.load(self.stack.endpoints, self.name, sizes=sizes)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def readable(self, *, allowed: bool) -> None:
        """Whether the pipeline's role may read the tables: after the snapshot it must never need to."""
        word, to = ("GRANT", "TO") if allowed else ("REVOKE", "FROM")
        self.execute(f"{word} SELECT ON ALL TABLES IN SCHEMA public {to} headwater")

    def write_pipeline(self) -> None:
        """The shop's pipeline under names of this scenario's own."""
        yaml = YAML(typ="safe")
        document = yaml.load(SHOP.read_text())
        document["name"] = self.name
        document["source"]["database"] = self.name
        views = document["views"]
        document["views"] = {f"{self.name}_{name}": view for name, view in views.items()}
        for sink in document["sinks"].values():
            if "views" in sink:
                sink["views"] = [f"{self.name}_{name}" for name in sink["views"]]
        document["sinks"]["cache"]["key_prefix"] = f"{self.name}:"
        warehouse = self.folder / "warehouse"
        document["sinks"]["warehouse"] |= {
            "catalog_uri": str(warehouse / "catalog.db"),
            "warehouse": str(warehouse),
            "namespace": self.name,
            "trigger_seconds": 2,
        }
        document["engine"] = {"state_dir": str(self.folder / "state")}
        self.write_file(document)

    def write_file(self, document: dict[str, Any]) -> None:
        """Write the pipeline file, with ``extra`` by its paths."""
        for path, value in self.extra.items():
            *parents, last = path.split(".")
            place = document
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = value
        if self.sinks:
            document["sinks"] = {name: document["sinks"][name] for name in self.sinks}
        with self.file.open("w") as out:
            YAML().dump(document, out)

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.folder / "pipeline.yaml"

    def view(self, name: str) -> str:
        """A view's name here."""
        return f"{self.name}_{name}"

    def environment(self) -> dict[str, str]:
        """What commands see."""
        passwords = Passwords.load(home=self.stack.site.home).as_environment()
        other = {} if self.code is None else {"PYTHONPATH": str(self.code)}
        mine = {name: value for name, value in os.environ.items() if name != inside.SPARK}
        return {**mine, **self.stack.endpoints.environment(), **passwords, **other}

    def _call(self, verb: str, options: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if verb in inside.VERBS and self.code is None and threading.current_thread() is threading.main_thread():
            return inside.call([verb, str(self.file), *options], self.environment())
        command = [sys.executable, "-m", "console.cli", verb, str(self.file), *options]
        return subprocess.run(
            command, env=self.environment(), cwd=self.code, capture_output=True, text=True, check=False, timeout=500
        )

    def run(self, verb: str, *options: str, ok: tuple[int, ...] = (0,)) -> str:
        """Run a verb on the pipeline file; its standard output."""
        done = self._call(verb, options)
        assert done.returncode in ok, f"headwater {verb} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run_error(self, verb: str, *options: str) -> str:
        """Run a verb that must end with exit code 1; what it says on standard error."""
        done = self._call(verb, options)
        assert done.returncode == 1, f"headwater {verb} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return sentences(done.stderr)

    def start(self, *options: str) -> None:
        """Start ``headwater run`` and wait until every sink has applied what is in the log."""
        self.launch(*options)
        only = [options[at + 1] for at, word in enumerate(options) if word == "--sink"]

        def running(report: dict[str, Any]) -> bool:
            sinks = [sink for sink in report["sinks"] if not only or sink["sink"] in only]
            return all(sink["lag_events"] == 0 and sink["state"] == "running" for sink in sinks)

        self.wait(running)

    def launch(self, *options: str) -> None:
        """Start ``headwater run`` and wait for nothing."""
        with (self.folder / "run.log").open("ab") as log:
            command = [sys.executable, *self.program, "run", str(self.file), *options]
            self.runner = subprocess.Popen(command, env=self.environment(), cwd=self.code, stdout=log, stderr=log)

    def wait(self, good: Any, seconds: float = START_SECONDS) -> dict[str, Any]:
        """Wait until the status is as ``good`` wants it."""
        until = time.monotonic() + seconds
        while True:
            report = self.status()
            if good(report):
                return report
            assert self.runner is None or self.runner.poll() is None, f"the runner ended:\n{self.log()}"
            assert time.monotonic() < until, f"not so after {seconds} s: {report}\n{self.log()}"
            time.sleep(0.3)

    def status(self, *sinks: str) -> dict[str, Any]:
        """What ``headwater status --json`` prints, of these sinks or of all."""
        report: dict[str, Any] = json.loads(self.run("status", "--json", *(f"--sink={sink}" for sink in sinks)))
        return report

    def status_of(self, sink: str, flow: str) -> dict[str, Any]:
        """One flow's status."""
        report = self.status(sink)
        return next(found for found in report["sinks"][0]["flows"] if found["flow"] == flow)

    def kill(self) -> None:
        """kill -9 of the whole runner: Python, its JVM, the JVM's Python workers."""
        assert self.runner is not None
        kill_family(self.runner.pid)
        self.runner.wait(30)
        self.runner = None

    def kill_alone(self) -> None:
        """kill -9 of the runner's Python and of nothing that it has started."""
        assert self.runner is not None
        self.runner.kill()
        self.runner.wait(30)
        self.runner = None

    def stop(self) -> None:
        """End the runner as an operator does; kill it when it does not listen."""
        if self.runner is None:
            return
        self.stops += 1  # by Ctrl-C and by SIGTERM in turns: PySpark has a handler of its own for the first
        by_hand = self.stops % 2 == 1 and self.code is None
        self.runner.send_signal(signal.SIGINT if by_hand else signal.SIGTERM)
        try:
            self.runner.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self.runner = None
        assert "a defect of Headwater's" not in self.log(), self.log()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Captured and followed as long as the ``with`` lasts; then everything is removed."""
        try:
            self.prepare()
            self.start()
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Remove everything that was made: what failed while it was made is not to be hidden by what fails here."""
        self.stop()
        self.stack.up()
        if self.file.exists():  # it is written before anything is captured
            self.run("drop", "--topics", "--yes")
        endpoints = self.stack.endpoints
        with psycopg.connect(
            host=endpoints.postgres_host,
            port=endpoints.postgres_port,
            user=endpoints.postgres_superuser,
            password=endpoints.postgres_password,
            dbname="postgres",
            autocommit=True,
        ) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self.name)))

    # -- load and proof ----------------------------------------------------------------------------------------------

    def load(self, seed: int, seconds: float, rate: float = 60.0) -> Load:
        """Write in the background, as an application does."""
        return Load(self.conninfo, seed, seconds, rate)

    def execute(self, statement: str, *values: Any) -> None:
        """One statement as the owner, committed."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode(), values)

    def dead_letters(self) -> list[dict[str, Any]]:
        """Every dead letter so far, those that have healed since too."""
        topic = f"{self.name}.dead-letters"
        settings = {"group.id": "test", "bootstrap.servers": self.stack.endpoints.kafka, "enable.partition.eof": True}
        consumer = Consumer(settings)
        found: list[dict[str, Any]] = []
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(10)
                if message is None or message.error():
                    return found
                if message.value() is not None:
                    found.append(json.loads(message.value()))
        finally:
            consumer.close()

    def assert_equal(self, *options: str, seconds: float = EQUAL_SECONDS) -> dict[str, Any]:
        """Every sink equals Postgres, row by row, once it has caught up."""
        self.readable(allowed=True)
        try:
            text = self.run("verify", "--json", "--wait", str(seconds), *options, ok=(0, 2))
        finally:
            self.readable(allowed=False)
        report: dict[str, Any] = json.loads(text)
        wrong = [
            {k: view[k] for k in ("view", "missing", "extra", "changed")}
            for sink in report["sinks"]
            for view in sink["views"]
            if view["differences"]
        ]
        assert report["equal"] and not wrong, f"{wrong}\n{self.run('status', '--json')}\n{self.log()}"
        assert sum(view["expected"] for sink in report["sinks"] for view in sink["views"]) > 0
        return report

    def log(self) -> str:
        """The end of what the runner said, as sentences."""
        path = self.folder / "run.log"
        return sentences(path.read_text(errors="replace"))[-3000:] if path.exists() else ""


class Load:
    """A running workload; leaving the block waits for its end."""

    def __init__(self, conninfo: str, seed: int, seconds: float, rate: float) -> None:
        self.report: WorkloadReport | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(conninfo, seed, seconds, rate))

    def _work(self, conninfo: str, seed: int, seconds: float, rate: float) -> None:
        try:
            self.report = run_workload(conninfo, seed, seconds=seconds, rate=rate)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        assert self.error is None, self.error
        assert self.report is not None and self.report.committed > 2 * self.report.seconds, self.report
