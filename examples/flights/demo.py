"""``make demo``: the whole way from an empty machine to three sinks that follow a database, checked row by row.

Every step is a command that you could type yourself; the demo prints it before it runs it. At a terminal it ends with
the page open and rows that go on changing, until Ctrl-C; elsewhere once everything was compared.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdc.errors import HeadwaterError
from deploy.local.stack import LocalStack
from examples.common import Passwords
from examples.flights.live import Live, Visible
from examples.flights.page import BOARD, DemoPage

HERE = Path(__file__).parent
PIPELINE = HERE / "pipeline.yaml"
TABLES = ("flights", "airlines", "airports", "planes", "weather")
# The first fill on two slow cores takes a minute or two; far beyond that something is wrong.
FILL_SECONDS = 600


class DemoFailed(Exception):
    """The demo's own verdict, with the reason."""


def main() -> int:
    """Run the demo; 0 and ``DEMO OK …`` or 1 and ``DEMO FAILED …`` as the last line."""
    began = time.monotonic()
    try:
        line = Demo().run()
    except Exception as error:  # of any client, too: whoever reads the last line must find the verdict there
        kind = "" if isinstance(error, DemoFailed | HeadwaterError) else f"{type(error).__name__}: "
        print(f"DEMO FAILED {' '.join(f'{kind}{error}'.split())}", flush=True)
        return 1
    print(f"took {time.monotonic() - began:.0f} s; the servers stay up: `make help` and README.md say what to try next")
    print(line, flush=True)
    return 0


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}", flush=True)


class Demo:
    """The demo's steps."""

    def __init__(self) -> None:
        self.stack = LocalStack()
        self.log = self.stack.site.home / "logs" / "demo-run.log"
        self.env: dict[str, str] = {}
        self.runner: subprocess.Popen[bytes] | None = None

    def run(self) -> str:
        """All steps; returns the closing line."""
        say("1. the servers: Postgres, Kafka, Connect with Debezium, Elasticsearch, two Redis")
        self.headwater("up")
        self.env = {**self.stack.endpoints.environment(), **Passwords.load(home=self.stack.site.home).as_environment()}
        say("2. a database: 336,776 flights with airlines, airports, planes and weather")
        self.python("-m", "examples.flights.load")
        say("3. capture: publication, slot, compacted topics, connector; then its first snapshot")
        self.headwater("check", str(PIPELINE))
        self.headwater("apply", str(PIPELINE), "--wait")
        say("4. three sinks fill from the topics (the command keeps running behind the scenes)")
        try:
            self.start_runner()
            with self.page() as page:
                print(f"look at {page.url} meanwhile, and at {page.url}{BOARD} for departures", flush=True)
                self.wait_filled()
                return self.shown(page)
        finally:
            self.stop_runner()

    def shown(self, page: DemoPage) -> str:
        """What is seen of filled sinks, here and at the page; returns the closing line."""
        say("5. live: one transaction each of INSERT, UPDATE and DELETE in plain SQL")
        self.show_live()
        self.wait_filled()
        say("6. every sink against Postgres, row by row")
        line = self.verify()
        if sys.stdout.isatty():
            print(line, flush=True)
            say(f"7. the page, while rows go on changing: {page.url} and {page.url}{BOARD} (Ctrl-C ends it)")
            page.keep_changing()
        return line

    # -- commands ----------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """The environment of every command: the process's, the servers' addresses, the example's passwords.

        What commands say is for a person, also where it goes to a file first: its last line is shown when they end.
        """
        return {**os.environ, **self.env, "HEADWATER_LOG": "text"}

    def headwater(self, *arguments: str) -> None:
        """Run a verb and show what it prints."""
        self.python("-m", "console.cli", *arguments, shown=f"headwater {' '.join(arguments)}")

    def python(self, *arguments: str, shown: str | None = None) -> None:
        """Run Python with arguments."""
        print(f"$ {shown or 'python ' + ' '.join(arguments)}", flush=True)
        done = subprocess.run([sys.executable, *arguments], env=self.environment(), check=False)
        if done.returncode != 0:
            raise DemoFailed(f"`{shown or ' '.join(arguments)}` ended with exit code {done.returncode}")

    def ask(self, *arguments: str) -> Any:
        """Run a verb with ``--json`` and read its answer; exit code 2 (differences) is an answer."""
        command = [sys.executable, "-m", "console.cli", *arguments, "--json"]
        done = subprocess.run(command, env=self.environment(), check=False, stdout=subprocess.PIPE)
        if done.returncode not in (0, 2):
            raise DemoFailed(f"`headwater {' '.join(arguments)}` ended with exit code {done.returncode}")
        return json.loads(done.stdout)

    # -- the runner --------------------------------------------------------------------------------------------------

    def start_runner(self) -> None:
        """Start ``headwater run`` in the background."""
        print(f"$ headwater run {PIPELINE} &", flush=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "console.cli", "run", str(PIPELINE)]
            self.runner = subprocess.Popen(command, env=self.environment(), stdout=log, stderr=subprocess.STDOUT)

    def stop_runner(self) -> None:
        """Stop it the way an operator would."""
        if self.runner is not None and self.runner.poll() is None:
            self.runner.send_signal(signal.SIGTERM)
            try:
                self.runner.wait(60)
            except subprocess.TimeoutExpired:
                self.runner.kill()

    def wait_filled(self) -> None:
        """Wait until every sink has applied all that is in the log."""
        until = time.monotonic() + FILL_SECONDS
        shown = ""
        while time.monotonic() < until:
            assert self.runner is not None
            if self.runner.poll() is not None:
                raise DemoFailed(f"`headwater run` ended by itself: {_last_line(self.log)}")
            report = self.ask("status", str(PIPELINE))
            line = "  ".join(f"{s['sink']}: {_behind(s)}" for s in report["sinks"])
            if line != shown:
                print(line, flush=True)
                shown = line
            if all(sink["lag_events"] == 0 and sink["state"] == "running" for sink in report["sinks"]):
                return
            time.sleep(1)
        raise DemoFailed(f"the sinks were not filled after {FILL_SECONDS} s: {shown}")

    def page(self) -> DemoPage:
        """The server of the page; it is up for as long as the demo."""
        print(f"$ headwater serve {PIPELINE} &", flush=True)
        return DemoPage(self.environment(), PIPELINE, self.log.with_name("demo-serve.log"))

    # -- proofs ------------------------------------------------------------------------------------------------------

    def show_live(self) -> None:
        """Change the database and watch the sinks follow."""
        with Live(self.environment(), PIPELINE) as live:
            for name, visible in live.changes():
                print(f"{name:<7} {_times(visible)}", flush=True)

    def verify(self) -> str:
        """Compare everything; the closing line."""
        report = self.ask("verify", str(PIPELINE))
        for sink in report["sinks"]:
            for view in sink["views"]:
                counts = f"{view['compared']:>8,} rows compared, {view['differences']} differ"
                print(f"{sink['sink']:<10} {view['view']:<9} {counts}")
        rows = report["source_rows"]
        listed = " ".join(f"{table}={rows[f'public.{table}']}" for table in TABLES)
        if not report["equal"]:
            raise DemoFailed(f"sinks differ from Postgres: {listed} equal=no")
        return f"DEMO OK {listed} equal=yes"


def _behind(sink: Mapping[str, Any]) -> str:
    if sink["lag_events"] is None:
        return str(sink["state"])
    return f"{sink['lag_events']:,} behind" + (f" ({sink['last_error']})" if sink["last_error"] else "")


def _times(visible: Visible) -> str:
    return "  ".join(f"{where} {seconds:.2f} s" for where, seconds in visible.items())


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


if __name__ == "__main__":
    sys.exit(main())
