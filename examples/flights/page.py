"""The demo's last part: the page in a browser, while rows go on changing."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from cdc.errors import HeadwaterError
from examples.flights.live import Live

_ADDRESS = re.compile(r"serving .* at (http://\S+)")
START_SECONDS = 30.0
# So many rows in each transaction, and so long between two.
ROWS, PAUSE_SECONDS = 20, 0.5
FLIGHTS = 336_776
# Each is written again as it is: Postgres logs an update, every sink gets it, and no value has changed.
TOUCH = b"UPDATE flights SET dep_delay = dep_delay WHERE flight_id = ANY(%s)"
# Those of the departures board are the first day's. What was added to a delay is taken off again in the end.
BOARD, DEPARTURES = "/stream?view=departure", 842
DELAY = b"UPDATE flights SET dep_delay = dep_delay + %s WHERE flight_id = %s AND dep_delay IS NOT NULL"


class DemoPage:
    """``headwater serve`` in the background.

    Args:
        env: environment with the servers' addresses and the example's passwords.
        pipeline: the pipeline file.
        log: where the server says what it says.
    """

    def __init__(self, env: Mapping[str, str], pipeline: Path, log: Path) -> None:
        self.env, self.pipeline, self.log = env, pipeline, log
        self.url = ""

    def __enter__(self) -> DemoPage:
        for port in ((), ("--port", "0")):  # the usual one may be taken
            command = [sys.executable, "-m", "console.cli", "serve", str(self.pipeline), *port]
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(command, env=dict(self.env), stdout=log, stderr=subprocess.STDOUT)
            started = False
            try:
                started = self._started()
            finally:
                if not started:  # it may be alive, and nobody would end it later
                    self._end()
            if started:
                return self
        said = self.log.read_text(errors="replace").strip().splitlines()
        raise HeadwaterError(f"the page's server did not start: {said[0] if said else 'it printed nothing'}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _started(self) -> bool:
        until = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            found = _ADDRESS.search(self.log.read_text(errors="replace"))
            if found:
                self.url = found[1]
                return True
            time.sleep(0.1)
        return False

    def keep_changing(self) -> None:
        """Write rows until somebody presses Ctrl-C."""
        some, added = random.Random(2013), Counter[int]()
        with Live(self.env, self.pipeline) as live:
            try:
                while self._process.poll() is None:
                    late, minutes = some.randrange(1, DEPARTURES + 1), some.choice((-5, 5, 10, 15))
                    with live.database.transaction():
                        live.database.execute(TOUCH, [some.sample(range(1, FLIGHTS), ROWS)])
                        live.database.execute(DELAY, [minutes, late])
                    added[late] += minutes
                    time.sleep(PAUSE_SECONDS)
            except KeyboardInterrupt:
                pass
            finally:
                with live.database.transaction():
                    for flight, minutes in added.items():
                        live.database.execute(DELAY, [-minutes, flight])
