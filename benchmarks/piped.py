"""A pipeline file of a benchmark's own on the local stack, and what is done with it from a shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc.errors import StackError
from cdc.pipeline import Pipeline, load
from deploy.local.process import log_tail
from deploy.local.stack import LocalStack
from examples.common import Passwords

START_SECONDS, STOP_SECONDS = 600.0, 120.0


class Piped:
    """A pipeline that is measured.

    Args:
        stack: its servers.
        folder: for its file, state and log.
        text: of its file; FOLDER stands for the folder.
    """

    def __init__(self, stack: LocalStack, folder: Path, text: str) -> None:
        self.stack, self.folder = stack, folder
        self.file, self.log = folder / "pipeline.yaml", folder / "run.log"
        self.file.write_text(text.replace("FOLDER", str(folder)))
        passwords = Passwords.load(home=stack.site.home).as_environment()
        self.env = {**os.environ, **stack.endpoints.environment(), **passwords}

    @property
    def pipeline(self) -> Pipeline:
        """The loaded file."""
        return load(self.file, self.env)

    def command(self, verb: str, *options: str) -> list[str]:
        """What a shell would be given."""
        return [sys.executable, "-m", "console.cli", verb, str(self.file), *options]

    def headwater(self, verb: str, *options: str) -> str:
        """Run a verb to its end; its standard output.

        Raises:
            StackError: it has failed (terminal).
        """
        done = subprocess.run(self.command(verb, *options), env=self.env, check=False, capture_output=True, text=True)
        if done.returncode:
            raise StackError(f"headwater {verb} has failed ({done.returncode}): {done.stderr[-1000:]}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """``headwater status --json``, whatever it judges."""
        command = self.command("status", "--json")
        done = subprocess.run(command, env=self.env, check=False, stdout=subprocess.PIPE, text=True)
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def caught_up(self, *sinks: str) -> bool:
        """Whether these sinks, or all, run and lag behind nothing."""
        found = [sink for sink in self.status()["sinks"] if not sinks or sink["sink"] in sinks]
        return all(sink["state"] == "running" and sink["lag_events"] == 0 for sink in found)

    @contextmanager
    def applied(self, wait: bool = True) -> Iterator[None]:
        """Its connector and topics, with the snapshot in them if that is waited for; dropped at the end."""
        self.headwater("apply", *(["--wait"] if wait else []))
        try:
            yield
        finally:
            self.headwater("drop", "--topics", "--yes")

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """``headwater run``, as soon as it has been started; stopped at the end."""
        with self.log.open("ab") as out:
            runner = subprocess.Popen(self.command("run", *options), env=self.env, stdout=out, stderr=out)
        try:
            yield runner
        finally:
            runner.send_signal(signal.SIGTERM)
            runner.wait(STOP_SECONDS)

    def check(self, runner: subprocess.Popen[bytes]) -> None:
        """StackError if the runner has ended."""
        if (code := runner.poll()) is not None:
            raise StackError(f"headwater run ended (exit code {code}){log_tail(self.log)}")

    def await_caught_up(self, runner: subprocess.Popen[bytes], *sinks: str, patience: float = START_SECONDS) -> None:
        """Wait until these sinks, or all, lag behind nothing.

        Raises:
            StackError: the runner has ended, or they did not catch up (terminal).
        """
        until = time.monotonic() + patience
        while not self.caught_up(*sinks):
            self.check(runner)
            if time.monotonic() > until:
                raise StackError(f"the sinks did not catch up within {patience:.0f} s{log_tail(self.log)}")
            time.sleep(0.5)


__all__ = ["Piped"]
