"""What a server of the stack has to tell: what it needs, how it starts, whether it is well."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import psutil
import requests

from deploy.local.process import Launch
from deploy.local.site import Site

# A health probe answers from loopback in milliseconds; a server that takes longer is not well (or the machine swaps).
PROBE_SECONDS = 3.0


def direct() -> requests.Session:
    """For what listens on this machine: a proxy of the operator's shell would look for it on its own."""
    session = requests.Session()
    session.trust_env = False
    return session


class Service(ABC):
    """One server.

    ``needs``: servers that must be up first. ``units``: what must be in the cache. ``port_names``: its listeners, the
    first is the one clients use. ``boot_seconds``: how long it may take to become healthy on a loaded two-core machine
    with cold disks. ``stop_seconds``: how long a clean stop may take before SIGKILL. ``programs``: names of its
    executables. ``stray_seconds``: how long processes of a killed server may take to notice and end by themselves.
    ``optional``: started only when it is named.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    port_names: ClassVar[tuple[str, ...]]
    boot_seconds: ClassVar[float] = 60.0
    stop_seconds: ClassVar[float] = 20.0
    stop_signal: ClassVar[int] = signal.SIGTERM
    stray_seconds: ClassVar[float] = 0.0
    refuses_root: ClassVar[bool] = False
    programs: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def units(cls) -> tuple[str, ...]:
        """Names of the cache units it runs from."""

    @abstractmethod
    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Make data folder and configuration ready; idempotent; called only when the server isn't running."""

    @abstractmethod
    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """The command line. Its ``cwd`` lies in the server's data folder: ``is_ours`` knows it by that."""

    @abstractmethod
    def ailment(self, site: Site) -> str | None:
        """Ask the running server: None if it can serve, else what is wrong, in a few words.

        Raises:
            StackError: it can't be asked, and a start would not change that: it is left as it is.
        """

    @abstractmethod
    def address(self, site: Site) -> str:
        """Where clients find it, as they'd write it."""

    def is_ours(self, site: Site, candidate: psutil.Process) -> bool:
        """Is this process (or a child) that server of this home, though no pid file says so? May raise psutil.Error.

        Program and working folder together: a shell that merely stands in the data folder is not ours.
        """
        folder = (site.home / "data" / self.name).resolve()
        return Path(candidate.exe()).name in self.programs and Path(candidate.cwd()).is_relative_to(folder)

    def behind(self, site: Site, units: dict[str, Path]) -> bool:
        """Whether it runs, with code of ours that another Headwater has built."""
        return False

    def logs(self, site: Site) -> list[Path]:
        """Log files for error messages, the most telling first."""
        return [site.log(self.name)]
