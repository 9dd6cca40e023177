"""A Headwater command in a process of its own that ends with this one."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Sequence

# How long a child may take to end after it was asked: a Spark session closes in seconds.
END_SECONDS = 30.0
# Of what it says, so many lines are kept for the reason of a failure.
LAST_LINES = 5


def command_of(verb: str, *words: str) -> list[str]:
    """The command line of a verb, by this Python and without a shell."""
    return [sys.executable, "-m", "console.cli", verb, *words]


class Child:
    """A running command that ends with this process, however that does: its standard input is a pipe that nobody writes
    to, and a verb that is owned takes its end as the word to stop.

    Args:
        command: program and words.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._last: list[str] = []
        self.progress = ""
        self._reader = threading.Thread(target=self._read, name=f"child {self._process.pid}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.rstrip()
            if text:
                self._said.put(text)
                self._last = [*self._last, text][-LAST_LINES:]
                self.progress = text.strip()

    def lines(self) -> list[str]:
        """What it has said since the last call."""
        out = []
        while not self._said.empty():
            out.append(self._said.get())
        return out

    def last_words(self) -> str:
        """The end of what it has said."""
        return "\n".join(self._last)

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._reader.join(timeout=5)
            self._close()
        return code

    def end(self) -> None:
        """Ask it to stop, wait for it, and kill it if it does not listen."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
