"""Elasticsearch 8.19, the minimal distribution, one node; and what is alike in its relatives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import psutil
import requests

from cdc.errors import StackError
from deploy.local.account import own
from deploy.local.process import Launch
from deploy.local.services import jvm
from deploy.local.services.base import PROBE_SECONDS, direct
from deploy.local.site import HOST, Site

# Below this the kernel refuses the many memory maps of Lucene's files: read them without mapping instead.
MAP_COUNT = 262144
MAP_COUNT_FILE = Path("/proc/sys/vm/max_map_count")


class Elasticsearch(jvm.JavaService):
    """The search index."""

    name = "elasticsearch"
    port_names = ("elasticsearch", "elasticsearch-transport")
    boot_seconds = 120.0
    stop_seconds = 30.0
    refuses_root = True
    # What its class files are of, and its product's name, in files and variables.
    oldest_java: ClassVar[int] = 17
    own_settings: ClassVar[dict[str, str]] = {"xpack.security.enabled": "false"}
    product: ClassVar[str] = "elasticsearch"

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """The distribution."""
        return (cls.name,)

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Write its configuration folder anew; keep the data."""
        root = site.shared_data(self.name)
        for name in ("config", "tmp"):
            shutil.rmtree(root / name, ignore_errors=True)
        for name in ("config/jvm.options.d", "tmp", "data", "logs"):
            (root / name).mkdir(parents=True, exist_ok=True)
        config = root / "config"
        (config / f"{self.product}.yml").write_text(self._settings(site, root))
        (config / "jvm.options").write_text(
            "\n".join([*self._jvm_options(site, root), *self.more_options(units)]) + "\n"
        )
        (config / "log4j2.properties").write_text(jvm.LOG4J2.format(log=self._log(root)))
        self._pid_file(root).unlink(missing_ok=True)
        link = jvm.server_log(site, self.name)
        if not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(self._log(root))
        own(root, site.account)

    def more_options(self, units: dict[str, Path]) -> list[str]:
        """Options of the virtual machine that one of the relatives needs."""
        return []

    def _log(self, root: Path) -> Path:
        return root / "logs" / f"{self.product}.log"

    def _pid_file(self, root: Path) -> Path:
        return root.resolve() / f"{self.product}.pid"

    def _settings(self, site: Site, root: Path) -> str:
        http, transport = self.port_names
        settings = {
            "cluster.name": "headwater",
            "node.name": "local",
            "path.data": root / "data",
            "path.logs": root / "logs",
            "http.host": HOST,
            "http.port": site.port(http),
            "transport.host": HOST,
            "transport.port": site.port(transport),
            "discovery.type": "single-node",
            # The serial collector leaves garbage until there is no room. Counted as used memory it had requests refused
            # (429) that there was room for; Elasticsearch knows to collect first with G1 alone.
            "indices.breaker.total.use_real_memory": "false",
            **self.own_settings,
            # On a nearly full disk it would make every index read-only, and the sink would hold for ever.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "action.destructive_requires_name": "false",
        }
        if int(MAP_COUNT_FILE.read_text()) < MAP_COUNT:
            settings["node.store.allow_mmap"] = "false"
        return "".join(f"{key}: {value}\n" for key, value in settings.items())

    def _jvm_options(self, site: Site, root: Path) -> list[str]:
        return [
            "-Xms1g",
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            # No class archive: the --patch-module that Elasticsearch adds for itself switches class-data sharing off.
            # Its default touches the whole heap at the start: seconds, and memory that is not needed yet.
            "-XX:-AlwaysPreTouch",
            f"-Djava.io.tmpdir={root / 'tmp'}",
            jvm.mark(site, self.name),
            "-XX:-HeapDumpOnOutOfMemoryError",
            f"-XX:ErrorFile={root / 'logs'}/hs_err_pid%p.log",
        ]

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """Its own launcher, which ends when the node is ready and leaves a pid file.

        Raises:
            StackError: Java is older than what it was compiled for.
        """
        self.check_java(site)
        root = site.shared_data(self.name)
        pid_file = self._pid_file(root)
        env = {
            "ES_JAVA_HOME": str(site.jdk.home),
            "ES_PATH_CONF": str(root / "config"),
            "ES_TMPDIR": str(root / "tmp"),
            "CLI_JAVA_OPTS": _launcher_options(root / "tmp"),
        }
        return Launch(
            [str(units[self.name] / "bin" / "elasticsearch"), *_options(pid_file)],
            cwd=root,
            log=site.log(self.name),
            env=env,
            account=site.account,
            pid_file=pid_file,
            starter_seconds=self.boot_seconds,
        )

    def check_java(self, site: Site) -> None:
        """Refuse a Java that is too old."""
        if site.jdk.major < self.oldest_java:
            raise StackError(
                f"{self.name} wants Java {self.oldest_java} or newer; {site.jdk.home} is {site.jdk.version}",
                means="it is not started; the others do not need it",
                fix=f"set JAVA_HOME to a Java {self.oldest_java}",
            )

    def is_ours(self, site: Site, candidate: psutil.Process) -> bool:
        """The server by its mark; its launcher, a shell script at first, by how it is told the pid file to write: who
        merely looks at that file is not ours."""
        command, options = candidate.cmdline(), _options(self._pid_file(site.home / "data" / self.name))
        return jvm.mark(site, self.name) in command or command[-len(options) :] == options

    def ailment(self, site: Site) -> str | None:
        """Cluster health is yellow or green: every primary shard serves."""
        try:
            url = f"{self.address(site)}/_cluster/health?timeout={PROBE_SECONDS - 1:.0f}s&wait_for_status=yellow"
            with direct() as session:
                status = session.get(url, timeout=PROBE_SECONDS).json().get("status")
        except (requests.RequestException, ValueError) as error:
            return f"no answer ({type(error).__name__})"
        return None if status in ("yellow", "green") else f"cluster health is {status}"

    def address(self, site: Site) -> str:
        """As a URL."""
        return f"http://{HOST}:{site.port(self.port_names[0])}"

    def logs(self, site: Site) -> list[Path]:
        """Its own log, then the launcher's output."""
        return [jvm.server_log(site, self.name), site.log(self.name)]


class Elasticsearch9(Elasticsearch):
    """The search index in its next major version. Only started when it is asked for."""

    name = "elasticsearch-9"
    port_names = ("elasticsearch-9", "elasticsearch-9-transport")
    optional = True
    oldest_java = 21


def _options(pid_file: Path) -> list[str]:
    """With which its launcher is started, and ends its command line, as a script and as a Java process."""
    return ["-d", "-p", str(pid_file)]


def _launcher_options(folder: Path) -> str:
    """Java options of its launcher, which leaves a folder at each start: ours, where a shell does not cut its name."""
    there = "" if any(char.isspace() for char in str(folder)) else f" -Djava.io.tmpdir={folder}"
    return "-XX:TieredStopAtLevel=1" + there
