"""The Javas of this machine, and which of them Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import ConfigError

# What Spark 4.1 runs on. The Hadoop that it brings asks Java for what 23 refuses and 24 has no more
# (Subject.getSubject); the servers do not.
FOR_SPARK = range(17, 23)
# AutoCreateSharedArchive (a class archive that renews itself) came with Java 19.
SELF_RENEWING_ARCHIVE = 19
# An archive of classes is mapped where it was made for. Java's default is a random address, for which it rewrites every
# pointer in it at each start: a tenth of a second, and memory (100 MiB of Spark's) that no other process shares and the
# kernel can't drop. Newer Javas may not have the flag any more, and would refuse to start.
AT_ITS_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
NEWEST_AT_ITS_ADDRESS = 25
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
        there = AT_ITS_ADDRESS if self.major <= NEWEST_AT_ITS_ADDRESS else ()
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


def named() -> list[Path]:
    """Java homes that somebody has chosen: JAVA_HOME, then that of ``java`` on the PATH."""
    homes = []
    if home := os.environ.get("JAVA_HOME"):
        homes.append(Path(home))
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def candidates() -> list[Path]:
    """Java homes in the order of preference between equals: those that are named, the system's folder."""
    return named() + (sorted(SYSTEM_FOLDER.iterdir()) if SYSTEM_FOLDER.is_dir() else [])


def for_spark() -> Path | None:
    """The Java home that Spark runs on: a named one if it fits, else the newest that does. The servers choose for
    themselves (deploy/local/java.py), and JAVA_HOME may be theirs.

    Returns:
        the home; None if only a Java is here that does not say which it is (a version manager's stand-in for ``java``,
        say): Spark takes that by itself.

    Raises:
        ConfigError: there is none that Spark runs on.
    """
    found = [jdk for home in candidates() if (jdk := read(home)) is not None]
    fitting = [jdk for jdk in found if jdk.major in FOR_SPARK]
    if fitting:
        chosen = [jdk for home in named() for jdk in fitting if jdk.home == home]
        return chosen[0].home if chosen else max(fitting, key=lambda jdk: jdk.major).home
    if _untold():
        return None
    seen = ", ".join(dict.fromkeys(f"{jdk.version} in {jdk.home}" for jdk in found)) or "none"
    raise ConfigError(
        f"Spark runs on Java {FOR_SPARK[0]} to {FOR_SPARK[-1]}, and there is none here (found: {seen})",
        means="Spark was not started; the local stack's servers run on newer ones too",
        fix="install one beside it (Debian: apt-get install openjdk-17-jdk-headless, or openjdk-21-jdk-headless): in "
        f"{SYSTEM_FOLDER} it is found, whatever JAVA_HOME names; or set JAVA_HOME to one that is somewhere else",
    )


def _untold() -> bool:
    """Whether the Java that Spark would take by itself is there, and has no file that says its version."""
    home = os.environ.get("JAVA_HOME")
    there = shutil.which(f"{home}/bin/java" if home else "java")
    return there is not None and read(named()[0]) is None
