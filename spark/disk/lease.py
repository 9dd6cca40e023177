"""Who runs a generation: a lease with a token that grows each time somebody takes it.

A file lock alone does not do: a process that is stopped (SIGSTOP, a frozen virtual machine) keeps its lock, and one
that was thought dead wakes up and writes. So the holder renews its lease every few seconds, another process may take
over one that was not renewed, and the token goes with every write to the sink, which refuses the older one
(Kleppmann, "How to do distributed locking": fencing tokens).
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from cdc.ages import ago
from cdc.errors import DiskFull, Fenced, StateError
from spark.disk.files import write_somehow
from spark.disk.process import host_name, is_gone, is_me, is_namesake, signature

# How often the holder says that it is alive, and after which silence it may be taken over. A machine at its limits
# delays a thread by seconds; twenty of them are no delay any more.
RENEW_SECONDS = 3.0
EXPIRES_SECONDS = 20.0
_LOOK_SECONDS = 0.2
# A lease's own files. The last one is removed last: who sees it no more has nothing to wait for.
_FILES = ("lease.json", "life", "lock")
# A lease's folder -> what was said there in a moment that was still to come, and since when this process has seen that
# it says so (monotonic).
_ahead: dict[Path, tuple[Holder, float]] = {}


# For who wants to run a sink, and for who wants to do something else to it.
LEAVE_IT = "stop that process first; or leave this sink to it: `headwater run --sink` runs others"
STOP_IT = "stop that process, or wait until it has ended; then start this again"


@dataclass(frozen=True)
class Holder:
    """What the lease's file says.

    Attributes:
        token: of the newest holder. It begins with the clock (microseconds since 1970), so that it grows even when the
            file was lost, and two machines with a state folder each don't take the same one: nothing would tell their
            writes apart. Of an older Headwater they are seconds.
        pid, started, host: which process (``spark.disk.process.born``); pid 0 when it was given back.
        renewed: when it last said so (epoch seconds).
    """

    token: int
    pid: int
    started: float
    host: str
    renewed: float


class Lease:
    """The lease on one generation's folder.

    Args:
        folder: the generation's.
        title: how errors name it.
        expires: seconds without renewal after which another process may take over.
    """

    def __init__(self, folder: Path, title: str, expires: float = EXPIRES_SECONDS) -> None:
        self.folder, self.title, self.expires = folder, title, expires
        self.token = 0
        self._stop = threading.Event()
        self._lost = False
        self._thread: threading.Thread | None = None
        self._life: IO[str] | None = None

    def holder(self) -> Holder | None:
        """What the file says; None before the first holder."""
        try:
            return Holder(**json.loads((self.folder / "lease.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def take(self, way_out: str = LEAVE_IT) -> int:
        """Take the lease and keep it until ``release``; returns the token.

        Args:
            way_out: what who wants it is to do when another process has it.

        Raises:
            StateError: another process holds it and is alive.
        """
        with self._alone():
            known = self.holder()
            if known is not None and self._held(known):
                raise StateError(
                    f"{self.title} is already run by process {known.pid} on {host_name(known.host)}",
                    fix=way_out,
                )
            # Lua compares it as a double, which is exact up to 2^53: microseconds are until the year 2255.
            self.token = max(int(time.time() * 1_000_000), known.token + 1 if known else 1)
            self._write(Holder(token=self.token, renewed=time.time(), **signature()))
            self._show_life()
        self._thread = threading.Thread(target=self._keep, name=f"lease {self.title}", daemon=True)
        self._thread.start()
        return self.token

    def wait_out(self) -> None:
        """Wait for the silence of who can't be seen from here, and has this host's name, until it may be taken over.

        It is this container's own process as a rule, from before it was killed and started again: to refuse the lease
        for it would end a `run` that has nothing else to do. Where locks of files work it is seen at once that it has
        died. One that renews its lease lives, and is not waited for. One of another name is waited for as well if
        he has said something in a moment that is still to come: he may have died before the clock was put back.
        """
        first = known = self.holder()
        while known is not None and known == first and self._is_waited_for(known) and self._held(known):
            time.sleep(_LOOK_SECONDS)
            known = self.holder()

    @staticmethod
    def _is_waited_for(known: Holder) -> bool:
        return is_namesake(known.host) or ago(known.renewed, time.time()) == math.inf

    def busy(self) -> bool:
        """Whether a process that is alive holds it."""
        known = self.holder()
        return known is not None and self._held(known)

    def _held(self, known: Holder) -> bool:
        if known.pid == 0:
            return False
        if is_namesake(known.host) and self._has_died(known):
            return False
        silence = self._silence(known)
        return silence < self.expires and not is_gone(known.host, known.pid, known.started, silence, self.expires)

    def lately(self, known: Holder) -> bool:
        """Whether a holder has renewed it lately, wherever he is."""
        return self._silence(known) < self.expires

    def _silence(self, known: Holder) -> float:
        """For how long a holder has said nothing (seconds).

        In a moment that is still to come it was said by a dead one before the clock was put back, or by a living one
        whose clock is ahead: taken for dead, each would take the lease from the other again and again. So it is watched
        here whether it is renewed, by this process's own clock that nobody puts back.
        """
        now, seen = time.time(), _ahead.get(self.folder)
        if seen is None or seen[0] != known:
            if known.renewed <= now:
                return now - known.renewed
            seen = _ahead[self.folder] = known, time.monotonic()
        return max(time.monotonic() - seen[1], now - known.renewed)

    def _show_life(self) -> None:
        """Lock a file for as long as this process lives: containers of one machine see that of each other.

        A holder that is frozen keeps the lock of before: then there is none, and silence alone tells.
        """
        self._life = (self.folder / "life").open("a+")
        try:
            fcntl.flock(self._life, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._life.close()
            return
        self._life.truncate(0)
        self._life.write(str(self.token))
        self._life.flush()

    def _has_died(self, known: Holder) -> bool:
        """Whether a holder had such a lock, and has it no more."""
        try:
            with (self.folder / "life").open() as life:
                fcntl.flock(life, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return life.read() == str(known.token)
        except OSError:  # it lives; or it is an older Headwater's, which shows nothing
            return False

    def held_by_other(self) -> bool:
        """Whether a process that is alive holds it, and is not this one."""
        known = self.holder()
        # By its number alone one in another container is this one: there all are number 1.
        return known is not None and not is_me(known.host, known.pid, known.started) and self._held(known)

    def _keep(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            try:
                self.renew()
            except Fenced:
                return
            except (OSError, DiskFull):
                continue  # an absent disk: the lease runs out by itself if it lasts

    def renew(self) -> None:
        """Say that this process is alive.

        Raises:
            Fenced: another process has taken over (terminal).
        """
        if not (self.folder / "lease.json").exists():  # with its generation: the folder is not to be made again
            self._lost = True
        self.check()
        with self._alone():
            known = self.holder()
            if known is None or known.token != self.token:
                self._lost = True
            else:
                self._write(replace(known, renewed=time.time()))
        self.check()

    def check(self) -> None:
        """Raise if the lease was lost; costs nothing.

        Raises:
            Fenced: another process has taken over (terminal).
        """
        if self._lost:
            raise Fenced(
                f"{self.title} was taken over by another process while this one was away",
                means="the other one goes on from the same place; this one has stopped writing, nothing is lost",
                fix="nothing, if the other process is meant to run; else stop that one first",
            )

    def release(self) -> None:
        """Give the lease back; the token stays, so that the next one is higher. Idempotent."""
        if not self._ended() or not self.folder.exists():
            return
        with self._alone():
            known = self.holder()
            if known is not None and known.token == self.token:
                self._write(replace(known, pid=0))

    def clear(self) -> None:
        """Remove all that is in the folder but the lease, which goes on.

        Raises:
            Fenced: another process has taken over; nothing was removed (terminal).
        """
        self.check()
        for path in self.folder.iterdir():
            if path.name not in _FILES:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)  # the renewal's own goes

    def discard(self) -> None:
        """Give the lease back with its folder and all that is in it: nobody takes it before that is gone.

        Raises:
            Fenced: another process has taken over; nothing was removed (terminal).
        """
        self._ended()
        with self._alone():
            known = self.holder()
            self._lost = known is not None and known.token != self.token
            if not self._lost:
                self.clear()
                for name in _FILES:
                    (self.folder / name).unlink(missing_ok=True)
                with suppress(OSError):  # who has come in this moment has made the folder his own
                    self.folder.rmdir()
        self.check()

    def _ended(self) -> bool:
        """Renew it no more; whether it was renewed until now."""
        if self._thread is None:
            return False
        self._stop.set()
        self._thread.join(timeout=RENEW_SECONDS)
        self._thread = None
        if self._life is not None:
            self._life.close()
        return True

    def _write(self, holder: Holder) -> None:
        write_somehow(self.folder / "lease.json", json.dumps(asdict(holder)))

    def _alone(self) -> IO[str]:
        """A lock that is held for the moment of reading and writing the file, by nobody for longer; closed at its end.

        Who has waited while the folder was discarded has locked a file that nobody else finds any more.
        """
        path = self.folder / "lock"
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                handle = path.open("a")
                fcntl.flock(handle, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if os.path.samestat(path.stat(), os.fstat(handle.fileno())):
                        return handle
                handle.close()
