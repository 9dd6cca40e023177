"""Each kind of fault, done to the world, and its end: what was frozen goes on, wires are whole, servers are up."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from redis import Redis, RedisError

from cdc.errors import StackError
from deploy.local.process import Record
from operations.state.folder import register_of
from spark.disk.lease import EXPIRES_SECONDS
from tests.chaos.runner import Runner, send
from tests.chaos.steps import RUNNER, Step
from tests.chaos.world import World

# A worker lives as long as its task or a minute; there may be none just now.
LOOK_SECONDS = 20.0
# Segments close after 3 s, the cleaner looks each second: once it spares nothing, all is compacted after this.
CLEANED_SECONDS = 12.0
# There is a batch every second or two; a busy machine may need longer.
QUIET_SECONDS = 20
# How long a new runner may take to get that far, and an old one to notice that it was taken over.
ENDS_SECONDS = 120.0


class Faults:
    """Does the steps.

    Args:
        world: the servers and wires.
        runner: ``headwater run``.
        say: gets a line for what is worth telling.
    """

    def __init__(self, world: World, runner: Runner, say: Callable[[str], None]) -> None:
        self.world, self.runner, self.say = world, runner, say

    def do(self, step: Step) -> None:
        """One fault from its beginning to its end."""
        getattr(self, f"_{step.kind}")(step)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _pids(self, target: str) -> list[int]:
        """A process of `run`'s, or a server with its children."""
        if target not in RUNNER:
            server = Record.load(self.world.stack.site.pid_file(target))
            assert server is not None, f"{target} is not running"
            children = psutil.Process(server.pid).children(recursive=True)
            return [server.pid, *(child.pid for child in children)]
        until = time.monotonic() + LOOK_SECONDS
        while not (found := self.runner.part(target)) and time.monotonic() < until:
            time.sleep(0.2)
        if not found:
            self.say(f"  there is no {target} just now")
        return found

    def _kill(self, step: Step) -> None:
        if step.target in RUNNER:  # the runner is started again by whoever watches it
            for pid in self._pids(step.target):
                send(pid, signal.SIGKILL)
            return
        self.world.stack.kill(step.target)
        time.sleep(step.seconds)
        self._up()

    def _freeze(self, step: Step) -> None:
        pids = self._pids(step.target)
        for pid in pids:
            send(pid, signal.SIGSTOP)
        try:
            time.sleep(step.seconds)
        finally:
            for pid in pids:
                send(pid, signal.SIGCONT)

    def _up(self) -> None:
        """Start what is down; a server may need a second try."""
        for left in (2, 1, 0):
            try:
                self.world.stack.up()
                return
            except StackError as error:
                self.say(f"  up: {str(error).splitlines()[0]}")
                if not left:
                    raise

    def _zombie(self, step: Step) -> None:
        """The old runner stands still, the lease expires, another one takes over, the old one wakes up and must end."""
        old, frozen = self.runner.process, self.runner.family()
        assert old is not None
        self.runner.hands_off.set()
        try:
            for pid in frozen:
                send(pid, signal.SIGSTOP)
            time.sleep(EXPIRES_SECONDS + 1)
            self.runner.launch()
            self._taken_over(old.pid)
            time.sleep(step.seconds)
        finally:
            for pid in frozen:
                send(pid, signal.SIGCONT)
            self.runner.hands_off.clear()
        self.say(f"  the old runner ended with {old.wait(ENDS_SECONDS)}")

    def _taken_over(self, pid: int) -> None:
        """Wait until no living generation is held by this process any more."""
        pipeline = self.world.pipeline()
        until = time.monotonic() + ENDS_SECONDS
        while True:
            registers = [register_of(pipeline, sink) for sink in pipeline.sinks]
            held = [register.generation(register.living()).lease.holder() for register in registers]
            if all(holder is not None and holder.pid != pid for holder in held):
                return
            assert time.monotonic() < until, f"nobody took over: {held}"
            time.sleep(0.5)

    # -- wires ---------------------------------------------------------------------------------------------------------

    def _cut(self, step: Step) -> None:
        self.world.links[step.target].mode = step.detail
        try:
            time.sleep(step.seconds)
        finally:
            self.world.mend(step.target)

    def _held(self, step: Step) -> None:
        """A batch is tried and can't end, the log is compacted under it, its runner dies: a replay finds less."""
        self.world.links[step.target].mode = "deaf"
        try:
            time.sleep(step.seconds)
            with self.world.compact_everything():
                time.sleep(CLEANED_SECONDS)
                for pid in self.runner.family():
                    send(pid, signal.SIGKILL)
                time.sleep(CLEANED_SECONDS)
        finally:
            self.world.mend(step.target)

    def _compacted(self, _step: Step) -> None:
        """`run` is away while the cleaner works."""
        self.runner.hands_off.set()
        try:
            for pid in self.runner.family():
                send(pid, signal.SIGKILL)
            with self.world.compact_everything():
                time.sleep(CLEANED_SECONDS)
        finally:
            self.runner.hands_off.clear()

    # -- memory --------------------------------------------------------------------------------------------------------

    def _lose(self, step: Step) -> None:
        if step.detail == "last-second":
            self._lose_the_last_second(step.target)
            return
        with self._client(step.target) as client:
            client.flushall()

    def _client(self, server: str) -> Redis:
        return Redis("127.0.0.1", self.world.stack.site.port(server), socket_timeout=10)

    def _lose_the_last_second(self, server: str) -> None:
        """As when the machine goes down: what `appendfsync everysec` had not put on the disk yet is gone."""
        log = self._append_only(server)
        for _ in range(QUIET_SECONDS):  # a second in which something was written
            before = log.stat().st_size
            time.sleep(1.0)
            if log.stat().st_size > before:
                break
        self.world.stack.kill(server)
        after = log.stat().st_size
        if after > before:  # else Redis has written its log anew meanwhile: nothing is lost this time
            os.truncate(log, before)
        self.say(f"  {max(0, after - before):,} bytes of {server}'s log are lost")
        self._up()

    def _append_only(self, server: str) -> Path:
        """Redis 6 has one file, later ones a folder whose newest part grows."""
        folder = self.world.stack.site.data(server)
        found = [folder / "appendonly.aof", *folder.glob("appendonlydir/*.incr.aof")]
        return max((path for path in found if path.exists()), key=lambda path: path.stat().st_mtime)

    # -- at the end ----------------------------------------------------------------------------------------------------

    def nothing_broken(self) -> None:
        """Wires whole, servers up, nothing frozen: also after a fault that failed half-way."""
        for link in self.world.links:
            self.world.mend(link)
        for pid in self.runner.family():
            send(pid, signal.SIGCONT)
        with contextlib.suppress(RedisError):
            self._up()
