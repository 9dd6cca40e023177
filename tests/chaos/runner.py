"""`headwater run` as a service manager keeps it: started again when it ends; and its advice, when it refuses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos.world import World

RESTART_SECONDS = 2.0
# A refusal that its own advice does not cure after so many tries is a failure of the engine's.
MOST_ADVICE = 6
ADVICE = re.compile(r"`headwater (rebuild|drop|apply|resnapshot|retire|promote)\b([^`]*)`")
SHOWN = 300
# A rebuild of half a minute on a machine of its own; one that takes longer than this hangs.
ADVICE_SECONDS = 900.0


@dataclass
class Runner:
    """The process, and what was done for it.

    Attributes:
        advice: every command that a refusal named and that was followed.
        ends: each of its ends, with the last thing that it said.
        refusals: what it said when it ended with exit code 1.
    """

    world: World
    say: Callable[[str], None]
    advice: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    hands_off: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _tried: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Start it, and watch it from now on."""
        self.launch()
        threading.Thread(target=self._watch, daemon=True).start()

    def launch(self) -> None:
        """Start a process."""
        command = [sys.executable, "-m", "console.cli", "run", str(self.world.file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self.world.environment(), stdout=log, stderr=log)

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.world.folder / "run.log"

    def stop(self) -> None:
        """End it as an operator does."""
        self._over.set()
        self.end()

    def end(self) -> None:
        """End the process; whoever watches starts the next one, unless hands are off."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.say("  run did not end within 60 s of SIGTERM: killed")
            for pid in self.family():
                send(pid, signal.SIGKILL)
            self.process.wait(30)

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            if self.hands_off.is_set() or self.process is None or self.process.poll() is None:
                continue
            told = self.said() if self.process.returncode > 0 else ""
            self.refusals += [told] if self.process.returncode == 1 else []
            self.ends.append(f"exit {self.process.returncode}: {told[:SHOWN]}")
            self.say(f"  run ended with {self.process.returncode}: {told[:SHOWN]}")
            self._over.wait(RESTART_SECONDS)
            if not self._over.is_set() and not self.hands_off.is_set():
                self.launch()

    def said(self) -> str:
        """Its newest error, as one line."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 6000))
            text = log.read().decode(errors="replace")
        return " ".join(text[max(0, text.rfind("\nerror")) :].split())

    # -- its processes -------------------------------------------------------------------------------------------------

    def family(self) -> list[int]:
        """Its own pid, then those of all its children."""
        if self.process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            return [self.process.pid, *(child.pid for child in children)]
        return []

    def part(self, target: str) -> list[int]:
        """Pids of ``run`` (its Python), its ``jvm``, or one ``worker``; empty when there is none now."""
        if target == "run":
            return self.family()[:1]
        processes = [psutil.Process(pid) for pid in self.family()[1:] if psutil.pid_exists(pid)]
        with contextlib.suppress(psutil.NoSuchProcess):
            jvms = [one for one in processes if one.name() == "java"]
            if target == "jvm":
                return [one.pid for one in jvms]
            # The JVM's child is the daemon that forks the workers.
            daemons = {one.pid for one in processes if jvms and one.ppid() == jvms[0].pid}
            workers = [one.pid for one in processes if one.ppid() in daemons]
            return workers[:1]
        return []

    # -- advice --------------------------------------------------------------------------------------------------------

    def follow(self, sink: str, refusal: str) -> bool:
        """Do what a refusal says; whether it named anything that can be done.

        Raises:
            AssertionError: it was done often enough and has not helped.
        """
        named = advice_in(refusal, sink)
        for verb, *options in named:
            done = " ".join([verb, *options])
            self._tried[done] = self._tried.get(done, 0) + 1
            assert self._tried[done] <= MOST_ADVICE, f"`headwater {done}` was followed {MOST_ADVICE} times in vain"
            self.advice.append(done)
            self._do(verb, options)
        return bool(named)

    def _do(self, verb: str, options: Sequence[str]) -> None:
        """One command; what writes a sink's place away needs `run` to be stopped."""
        alone = verb == "drop"
        if alone:
            self.hands_off.set()
            self.end()
        began = time.monotonic()
        command = [sys.executable, "-m", "console.cli", verb, str(self.world.file), *options]
        code, said = self._told(command)
        tail = " ".join(said.split())[-SHOWN:] if code else ""
        self.say(f"  advice: {verb} {' '.join(options)}: {code} in {time.monotonic() - began:.0f} s {tail}")
        if verb in ("apply", "drop"):
            self.world.compact_by_force()
        if verb == "rebuild" and not code:
            self._do("retire", [options[0], "--yes"])
        if alone:
            self.launch()
            self.hands_off.clear()

    def _told(self, command: Sequence[str]) -> tuple[int, str]:
        """Run a command; its exit code and what it said, which is in ``advice.log`` too, with the time of each line."""
        said = []
        with (
            (self.world.folder / "advice.log").open("a") as log,
            subprocess.Popen(
                command,
                env=self.world.environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            limit = threading.Timer(ADVICE_SECONDS, process.kill)
            limit.start()
            for line in process.stderr or ():
                said.append(line)
                print(f"{time.strftime('%H:%M:%S')} {line.rstrip()}", file=log, flush=True)
            limit.cancel()
        return process.returncode, "".join(said)


def advice_in(refusal: str, sink: str) -> list[list[str]]:
    """The commands that a message names, as words; ``FILE`` is left out, the sink's name put in.

    Naming a thing is not always advising it: of several ways out the first is taken, and what follows a "then".
    """
    found: list[list[str]] = []
    for match in ADVICE.finditer(refusal):
        between = refusal[: match.start()].rpartition("`")[2] if found else ""
        if found and not re.search(r"\bthen\b", between):
            break
        words = [word for word in match[2].split() if word != "FILE"]
        words = [sink if word in ("SINK", "NAME") else word for word in words]
        if match[1] in ("drop", "retire") and "--yes" not in words:
            words.append("--yes")
        if match[1] == "rebuild" and "--auto" not in words:
            words.append("--auto")
        if match[1] == "resnapshot" and "--wait" not in words:
            words.append("--wait")
        found.append([match[1], *words])
    return found


def send(pid: int, what: signal.Signals) -> None:
    """A signal, if the process is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
