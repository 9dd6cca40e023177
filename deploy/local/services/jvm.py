"""What the Java servers share: flags and a bounded log."""

from __future__ import annotations

from pathlib import Path

import psutil

from deploy.local.services.base import Service
from deploy.local.site import Site

LOG4J2 = """\
# Written by headwater at each start.
status = warn
appenders = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1.}} - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRefs = file
rootLogger.appenderRef.file.ref = file
"""


def logging(site: Site, service: str, folder: Path) -> Path:
    """Write a log4j2 configuration: WARN and worse to ``home/logs/<service>-server.log``, 30 MB at most."""
    path = folder / "log4j2.properties"
    path.write_text(LOG4J2.format(log=server_log(site, service)))
    return path


def server_log(site: Site, service: str) -> Path:
    """Where the server itself logs; ``<service>.log`` holds what goes to its standard output."""
    return site.folder("logs") / f"{service}-server.log"


class JavaService(Service):
    """A server that is a Java process: known by a mark on its command line."""

    def is_ours(self, site: Site, candidate: psutil.Process) -> bool:
        """Does its command line carry the mark of this home?"""
        return mark(site, self.name) in candidate.cmdline()


def mark(site: Site, service: str) -> str:
    """A system property that tells whose server it is."""
    return f"-Dheadwater.service={site.home}#{service}"


def java(site: Site, service: str, unit: Path, heap: tuple[str, str], log4j2: Path) -> list[str]:
    """The head of a command line: everything before the main class.

    Args:
        site: whose server.
        service: its name.
        unit: folder with its jars.
        heap: first and largest size, e.g. ``("128m", "1g")``.
        log4j2: the logging configuration.
    """
    return [
        str(site.jdk.java),
        f"-Xms{heap[0]}",
        f"-Xmx{heap[1]}",
        "-XX:+UseSerialGC",  # the smallest footprint; heaps this size collect in milliseconds
        "-XX:+ExitOnOutOfMemoryError",  # a half-dead server is worse than a dead one, which `up` heals
        "-Djava.awt.headless=true",
        "-Duser.timezone=UTC",  # in another zone Debezium shifts the dates it reads through java.sql
        "-Djava.net.preferIPv4Stack=true",
        mark(site, service),
        f"-Dlog4j2.configurationFile={log4j2}",
        "-cp",
        f"{unit}/*",
    ]


def properties(settings: dict[str, object]) -> str:
    """A Java properties file."""
    return "# Written by headwater at each start.\n" + "".join(f"{k}={v}\n" for k, v in settings.items())
