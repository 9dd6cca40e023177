"""Find a Java for Kafka, Connect and Elasticsearch, and know what it can do."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import StackError
from deploy.local.account import Account, blocked_at

OLDEST = 17
# The newest version the servers were tried on. Newer ones are taken only if nothing else is there.
NEWEST_TRIED = 25
# AutoCreateSharedArchive (a class archive that renews itself) came with Java 19.
SELF_RENEWING_ARCHIVE = 19
SYSTEM_FOLDER = Path("/usr/lib/jvm")


@dataclass(frozen=True)
class Jdk:
    """A Java home and its version, e.g. ``25.0.1`` with major 25."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        """The feature release, e.g. 17."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])  # also "26-ea", "17+35"

    @property
    def java(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"

    def archive_flags(self, archive: Path) -> list[str]:
        """Flags that keep loaded classes in ``archive`` from one run to the next: start-up falls to a third.

        Java 19+ renews the archive by itself; on 17 it is written at the first clean stop and then used as it is.
        """
        # Where it was made for, not at a random address, for which all its pointers are rewritten at each start; a
        # Java of which nobody knows that it has these flags would refuse to start.
        there = ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"] if self.major <= NEWEST_TRIED else []
        if self.major >= SELF_RENEWING_ARCHIVE:
            return ["-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={archive}", *there, "-Xlog:cds=off"]
        flag = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
        return [f"-XX:{flag}={archive}", *there, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def read(home: Path) -> Jdk | None:
    """The Java at ``home``, by its ``release`` file; None if there is none."""
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="(\d[\w.+-]*)"', release, re.MULTILINE)
    if not found or not os.access(home / "bin" / "java", os.X_OK):
        return None
    version = found[1]
    return Jdk(home, version.removeprefix("1.") if version.startswith("1.") else version)


def candidates() -> list[Path]:
    """Java homes in the order of preference between equals: JAVA_HOME, ``java`` on the PATH, the system's folder."""
    homes = []
    if named := os.environ.get("JAVA_HOME"):
        homes.append(Path(named))
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    if SYSTEM_FOLDER.is_dir():
        homes += sorted(SYSTEM_FOLDER.iterdir())
    return homes


def choose(account: Account | None = None) -> Jdk:
    """JAVA_HOME if it will do, else the newest tried Java, else any newer one.

    Args:
        account: the user that must be able to run it too.

    Raises:
        StackError: no Java 17 or newer.
    """
    found = [jdk for home in candidates() if (jdk := read(home)) is not None]
    usable = [j for j in found if j.major >= OLDEST and (account is None or blocked_at(j.home, account) is None)]
    if not usable:
        seen = ", ".join(f"{jdk.version} in {jdk.home}" for jdk in found) or "none"
        raise StackError(
            f"no usable Java {OLDEST} or newer (found: {seen})",
            means="Kafka, Kafka Connect and Elasticsearch can't start",
            fix="install a JDK (Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME",
        )
    named = os.environ.get("JAVA_HOME")
    if named and usable[0].home == Path(named):
        return usable[0]
    tried = [jdk for jdk in usable if jdk.major <= NEWEST_TRIED]
    return max(tried, key=lambda jdk: jdk.major) if tried else min(usable, key=lambda jdk: jdk.major)
