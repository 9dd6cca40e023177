"""Fetch Maven artifacts through the ``mvn`` client: one run for any number of them, no transitive surprises.

Everything is asked for by coordinate; where the client fetches from is the client's own configuration. The local
repository is a folder of ours: a half-filled default repository breaks other resolvers on the machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from cdc.errors import StackError

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
# A hung connection must not hang `headwater up` for ever; 200 MiB at 1 Mbit/s still fit.
FETCH_SECONDS = 1800
# How often a fetch reports how far it is: often enough to show life, rarely enough to be readable in a log.
REPORT_SECONDS = 3.0


@dataclass(frozen=True, order=True)
class Coordinate:
    """A Maven coordinate ``group:artifact:version[:type[:classifier]]``."""

    group: str
    artifact: str
    version: str
    type: str = "jar"
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Parse ``g:a:v[:type[:classifier]]``; raises ValueError on any other number of parts."""
        parts = text.split(":")
        if not 3 <= len(parts) <= 5 or not all(parts):
            raise ValueError(f"not a Maven coordinate: {text!r}")
        return cls(*parts)

    def __str__(self) -> str:
        parts = [self.group, self.artifact, self.version]
        if self.classifier or self.type != "jar":
            parts += [self.type] + ([self.classifier] if self.classifier else [])
        return ":".join(parts)

    @property
    def file_name(self) -> str:
        """The artifact's file name as every Maven repository spells it."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.type}"

    def xml(self, element: str) -> str:
        """As a ``<dependency>`` or ``<artifactItem>`` of a pom."""
        fields = {"groupId": self.group, "artifactId": self.artifact, "version": self.version, "type": self.type}
        if self.classifier:
            fields["classifier"] = self.classifier
        inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
        return f"<{element}>{inner}</{element}>"


def pom(body: str) -> str:
    """A minimal pom around ``body``: only a carrier for a plugin run, never built or published."""
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headwater.local</groupId><artifactId>fetch</artifactId><version>1</version>"
        f"<packaging>pom</packaging>{body}</project>"
    )


def copy_pom(coordinates: Iterable[Coordinate], target: Path) -> str:
    """A pom whose ``dependency:copy`` puts exactly these files into ``target``, none of their dependencies."""
    group, artifact, version = PLUGIN.split(":")
    items = "".join(coordinate.xml("artifactItem") for coordinate in coordinates)
    return pom(
        f"<build><plugins><plugin><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><configuration><outputDirectory>{escape(str(target))}</outputDirectory>"
        f"<artifactItems>{items}</artifactItems></configuration></plugin></plugins></build>"
    )


def run(
    pom_text: str,
    goal: str,
    work: Path,
    *options: str,
    report: Callable[[], None] | None = None,
    pass_fds: Sequence[int] = (),
) -> None:
    """Run one goal of the dependency plugin on a generated pom.

    Args:
        pom_text: the pom.
        goal: ``copy`` or ``copy-dependencies``.
        work: folder of ours for pom and local repository; kept after a failure so that the next run goes on.
        options: further ``-D`` options.
        report: called every few seconds while Maven runs.
        pass_fds: file descriptors that Maven keeps open. With a lock among them, the lock stays taken for as long as
            Maven works, even if we are killed: the next run can't meet it in the same repository.

    Raises:
        StackError: no ``mvn``, or it failed (often transient: the network).
    """
    work.mkdir(parents=True, exist_ok=True)
    pom_file = work / "pom.xml"
    pom_file.write_text(pom_text)
    repository = f"-Dmaven.repo.local={work / 'repository'}"
    process = subprocess.Popen(
        [_program(), "-B", "-ntp", "-f", str(pom_file), repository, f"{PLUGIN}:{goal}", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
    )
    output: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda pipe: output.append(pipe.read()), args=(process.stdout,), daemon=True)
    reader.start()
    try:
        code = _await(process, report)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join(5)
        process.stdout.close()
    if code != 0:
        raise StackError(
            f"Maven could not fetch what is missing: {first_error(b''.join(output).decode(errors='replace'))}",
            fix="check the network and Maven's settings.xml, then run it again: what is there is kept",
        )


def _program() -> str:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise StackError(
            "Maven (mvn) is not on the PATH",
            means="the local servers can't be fetched",
            fix="install Maven (Debian: apt-get install maven), or point the pipeline at servers that already exist",
        )
    return mvn


def _await(process: subprocess.Popen[bytes], report: Callable[[], None] | None) -> int:
    deadline = time.monotonic() + FETCH_SECONDS
    while True:
        try:
            return process.wait(REPORT_SECONDS)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise StackError(
                    f"Maven did not finish within {FETCH_SECONDS} s", fix="run it again: what is there is kept"
                ) from None
            if report is not None:
                report()


def first_error(output: str) -> str:
    """Maven's first error line, without colour codes and without the address it fetched from."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.removeprefix("[ERROR]").strip() for line in text.splitlines() if line.startswith("[ERROR]")]
    line = next((line for line in lines if line), text.strip().splitlines()[-1] if text.strip() else "no output")
    return re.sub(r"https?://\S+", "(repository)", line)[:600]
