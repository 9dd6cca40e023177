"""Keep one server: find it, start it, see that it becomes healthy, stop it."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from cdc.errors import StackError
from cdc.saying import Say, to_nobody
from deploy.local import process
from deploy.local.account import blocked_at
from deploy.local.ports import describe, holder, is_free
from deploy.local.process import InterruptedStartError, Record
from deploy.local.services.base import Service
from deploy.local.site import Site

# A server that runs but doesn't answer may just be starting (an interrupted `up`) or recovering; after this it is
# taken for dead and started anew.
GRACE_SECONDS = 20.0
# How long a port may stay taken after its owner's death (the kernel is closing its sockets).
PORT_SECONDS = 3.0
# A process that survives SIGKILL this long hangs in the kernel (a dead disk).
END_SECONDS = 15.0


class Keeper:
    """One server in one home."""

    def __init__(self, service: Service, site: Site) -> None:
        self.service, self.site = service, site
        self.pid_file = site.pid_file(service.name)

    def find(self) -> Record | None:
        """Our running server, by its pid file; else by its mark, if a crash left a server without one."""
        server = Record.load(self.pid_file)
        if server is not None and server.alive():
            return server
        port = self.site.port(self.service.port_names[0])
        if is_free(port):
            return None
        owner = holder(port)
        try:
            if owner is None or not self.service.is_ours(self.site, owner):
                return None
        except (psutil.Error, OSError):
            return None
        adopted = process.record(self.service.name, owner.pid)
        if adopted is not None:
            adopted.save(self.pid_file)
        return adopted

    def _end_strays(self, say: Say) -> None:
        """End what is left of a killed server or of a killed `up`: orphaned backends, a half-started server."""
        patience = self.service.stray_seconds
        deadline = time.monotonic() + patience + END_SECONDS
        # Again and again: a starter may give birth to its server after it has been looked for.
        while strays := process.matching(lambda candidate: self.service.is_ours(self.site, candidate)):
            _, strays = psutil.wait_procs(strays, timeout=patience)
            for stray in strays:
                say(f"{self.service.name}: ending pid {stray.pid}, left from an earlier start")
                with suppress(psutil.NoSuchProcess):
                    stray.kill()
            psutil.wait_procs(strays, timeout=1)
            if time.monotonic() > deadline:
                pids = ", ".join(str(stray.pid) for stray in strays)
                raise StackError(f"{self.service.name}: pid {pids}, left from an earlier start, can't be ended")

    def up(self, units: dict[str, Path], say: Say, cancelled: threading.Event) -> float:
        """Make it healthy; returns the seconds that took, 0.0 if it was. ``cancelled`` ends the waiting.

        Raises:
            StackError: with the last log lines, or naming the process that holds its port.
        """
        began = time.monotonic()
        server = self.find()
        if server is not None:
            if self.service.ailment(self.site) is None:
                return 0.0
            if self._wait(server, GRACE_SECONDS, cancelled) is None:
                return time.monotonic() - began
            say(f"{self.service.name} runs (pid {server.pid}) but does not serve: starting it anew")
            self._stop(server)
        self._end_strays(say)
        self._check_reach(units)
        self._check_ports()
        self.service.prepare(self.site, units)
        launch = self.service.launch(self.site, units)
        try:
            server = process.spawn(self.service.name, launch, cancelled)
        except process.StartError as error:
            raise StackError(f"{error.what}{self._tails()}") from None
        server.save(self.pid_file)
        ailment = self._wait(server, self.service.boot_seconds, cancelled)
        if ailment is not None:
            raise StackError(f"{self.service.name} did not become healthy: {ailment}{self._tails()}")
        return time.monotonic() - began

    def _check_reach(self, units: dict[str, Path]) -> None:
        """A server that refuses root runs as somebody who must be able to read its programs and to reach its data."""
        account = self.site.account
        if account is None or not self.service.refuses_root:
            return
        for unit in self.service.units():
            if folder := blocked_at(units[unit], account):
                raise StackError(
                    f"{self.service.name} refuses to run as root, and the user {account.name!r} can't pass {folder}",
                    means=f"its programs are in {units[unit]}, out of that user's reach",
                    fix=f"unset HEADWATER_CACHE, or set it to a folder that everybody may pass, or chmod o+x {folder}",
                )
        data = self.site.shared_data(self.service.name)
        if folder := blocked_at(data, account):
            raise StackError(
                f"{self.service.name} refuses to run as root, and the user {account.name!r} can't pass {folder}",
                means=f"its data are in {data}, out of that user's reach",
                fix=f"chmod o+x {folder}",
            )

    def _wait(self, server: Record, seconds: float, cancelled: threading.Event) -> str | None:
        """Wait until it is healthy: None, or what ails it when time is up or it has died. A busy machine has longer."""
        began = time.monotonic()
        pause = 0.05
        while True:
            ailment = self.service.ailment(self.site)
            if ailment is None:
                return None
            if not server.alive():
                return "it ended"
            passed = time.monotonic() - began
            if passed > seconds * process.patience():
                return f"{ailment} (after {passed:.0f} s, {process.load()}; it is still running as pid {server.pid})"
            if cancelled.wait(pause):
                raise InterruptedStartError(f"{self.service.name} is still starting as pid {server.pid}: interrupted")
            pause = min(0.5, pause * 1.5)

    def _check_ports(self) -> None:
        for name in self.service.port_names:
            port = self.site.port(name)
            deadline = time.monotonic() + PORT_SECONDS
            while not is_free(port):
                if time.monotonic() > deadline:
                    raise StackError(
                        f"{self.service.name} needs port {port}, which {describe(holder(port))} holds",
                        means="that process was not started from this HEADWATER_HOME; it was left alone",
                        fix="stop it, or set HEADWATER_PORT_BASE to another number (default 15000)",
                    )
                time.sleep(0.1)

    def _tails(self) -> str:
        return "".join(process.log_tail(log) for log in self.service.logs(self.site))

    def down(self) -> bool:
        """Stop it if it is ours and running; True if there was something to stop."""
        server = self.find()
        if server is not None:
            self._stop(server)
        self._end_strays(to_nobody)
        self.pid_file.unlink(missing_ok=True)
        return server is not None

    def _stop(self, server: Record) -> None:
        process.stop(server, self.service.stop_signal, self.service.stop_seconds)

    def kill(self, with_signal: int) -> None:
        """Send it a signal; after SIGKILL wait for its end. StackError if it isn't running."""
        server = self.find()
        if server is None:
            raise StackError(f"{self.service.name} is not running")
        process.send(server, with_signal)
        if with_signal == signal.SIGKILL:
            deadline = time.monotonic() + 10
            while server.alive() and time.monotonic() < deadline:
                time.sleep(0.01)
