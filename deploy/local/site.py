"""Where one stack lives: its folders, its ports, the account and the Java it uses."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cdc.errors import StackError
from deploy import lasting
from deploy.local import java
from deploy.local.account import Account, blocked_at, own, reachable, unprivileged
from deploy.local.java import Jdk

HOST = "127.0.0.1"
DEFAULT_PORT_BASE = 15000
# Data of servers that don't run as root goes below this folder when HEADWATER_HOME is closed to their user.
SYSTEM_DATA = Path("/var/lib/headwater")
# name -> distance from the port base
PORTS = {
    "postgres": 432,
    "kafka": 92,
    "kafka-controller": 93,
    "connect": 83,
    "elasticsearch": 200,
    "elasticsearch-transport": 300,
    "elasticsearch-9": 209,
    "elasticsearch-9-transport": 309,
    "opensearch": 203,
    "opensearch-transport": 303,
    "redis-cache": 379,
    "redis-store": 380,
    "registry": 80,
    "registry-management": 81,
}
# Java splits class paths at ':', Kafka splits log.dirs at ',', option files split at blanks, and Java reads properties
# as Latin-1: refuse what they'd mangle.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_/.+@~=-]+")


def _number(text: str) -> int:
    try:
        base = int(text)
    except ValueError:
        base = -1
    if not 1024 <= base <= 65535 - max(PORTS.values()):
        raise StackError(
            f"HEADWATER_PORT_BASE={text!r} is no usable port base",
            fix=f"take a number from 1024 to {65535 - max(PORTS.values())}; the default is {DEFAULT_PORT_BASE}",
        )
    return base


def configured_base() -> int:
    """Where the ports begin: ``HEADWATER_PORT_BASE``, else 15000.

    Raises:
        StackError: it is no number in range.
    """
    text = os.environ.get("HEADWATER_PORT_BASE")
    return _number(text) if text else DEFAULT_PORT_BASE


@dataclass(frozen=True)
class Site:
    """Folders and ports of one stack. ``home`` is absolute."""

    home: Path
    port_base: int
    account: Account | None = field(default_factory=unprivileged)

    @classmethod
    def find(cls, home: Path | None = None, port_base: int | None = None) -> Site:
        """From arguments, else ``HEADWATER_HOME`` / ``HEADWATER_PORT_BASE``, else ``.headwater`` here and 15000.

        Raises:
            StackError: the port base is no number in range.
        """
        place = (home or Path(os.environ.get("HEADWATER_HOME") or ".headwater")).expanduser().absolute()
        return cls(place, configured_base() if port_base is None else _number(str(port_base)))

    def refuse_mangled(self) -> None:
        """Refuse to start servers where they can't be. What runs there since an older version can be stopped, and who
        wants no server of ours is not held up by the folder's name.

        Raises:
            StackError: the folder's path holds characters that servers can't take.
        """
        if not PLAIN_PATH.fullmatch(str(self.home)):
            raise StackError(
                f"HEADWATER_HOME {str(self.home)!r} holds a blank or another character that the servers can't take",
                fix="set HEADWATER_HOME (default: .headwater in the current folder) to a folder whose path has only"
                " letters from a to z, digits and / . _ + @ ~ = -",
            )

    def port(self, name: str) -> int:
        """The port of a server, or of its second listener, by its name in PORTS."""
        return self.port_base + PORTS[name]

    @cached_property
    def jdk(self) -> Jdk:
        """The Java of this stack's servers."""
        return java.choose(self.account)

    def folder(self, name: str) -> Path:
        """``home/name``, made if it is missing."""
        path = self.home / name
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"can't make the folder {path}: {error.strerror}", fix="set HEADWATER_HOME to a folder you may write to"
            ) from error
        return path

    def pid_file(self, service: str) -> Path:
        """``home/run/<service>.pid``."""
        return self.folder("run") / f"{service}.pid"

    def log(self, service: str) -> Path:
        """``home/logs/<service>.log``."""
        return self.folder("logs") / f"{service}.log"

    @property
    def spark_archive(self) -> Path:
        """The class archive of Spark."""
        return self.home / "spark.jsa"

    def archive(self, service: str, unit: Path) -> Path:
        """The class archive of a Java server, one for each Java and program version."""
        return self.folder("run") / f"{service}-{self.jdk.version}-{unit.name}.jsa"

    def data(self, service: str) -> Path:
        """``home/data/<service>``, made if it is missing, as root or as ourselves."""
        path = self.folder("data") / service
        path.mkdir(mode=0o755, exist_ok=True)
        return path

    def shared_data(self, service: str) -> Path:
        """The data folder of a server that refuses root: owned by, and within reach of, the unprivileged account.

        If the home is closed to that account, the folder lies below /var/lib/headwater and home/data holds a link.
        """
        link = self.folder("data") / service
        if link.is_symlink():
            place = link.resolve()
        elif self.account is not None and blocked_at(link.parent, self.account):
            name = hashlib.sha256(str(self.home).encode()).hexdigest()[:12]
            place = SYSTEM_DATA / name / service
        else:
            place = link
        reachable(place, self.account)
        if place != link and not link.is_symlink():
            link.symlink_to(place)
        if self.account is not None and place.stat().st_uid != self.account.uid:
            own(place, self.account)
        return place

    def has_secret(self, name: str) -> bool:
        """Has this secret been made?"""
        return (self.home / "secrets" / name).exists()

    def secret(self, name: str) -> str:
        """A secret of this stack (URL-safe text), made on first use and kept in a file only we can read."""
        folder = self.folder("secrets")
        folder.chmod(0o700)
        path = folder / name
        if not path.exists():
            temporary = folder / f".{name}.{os.getpid()}"
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(secrets.token_urlsafe(24) + "\n")
            lasting.rename(temporary, path)
        return path.read_text().strip()
