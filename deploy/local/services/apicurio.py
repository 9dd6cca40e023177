"""Apicurio Apicurio: the schemas of Avro records, behind Confluent's API. Only started when it is asked for."""

from __future__ import annotations

from pathlib import Path

import requests

from cdc.errors import StackError
from deploy.local.process import Launch
from deploy.local.services import jvm
from deploy.local.services.base import PROBE_SECONDS, direct
from deploy.local.site import HOST, Site

# What its class files are of.
OLDEST_JAVA = 21
# Its own default opens 20 connections to the database at once; a worker and a few readers need less.
CONNECTIONS = {"initial-size": 2, "min-size": 2, "max-size": 20}


class Apicurio(jvm.JavaService):
    """The schema registry; its schemas lie in an H2 file, so they survive a restart."""

    name = "registry"
    port_names = ("registry", "registry-management")
    boot_seconds = 120.0
    stop_seconds = 30.0
    optional = True

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """The application with all its jars."""
        return ("registry",)

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Make its folder; settings are on the command line."""
        (site.data(self.name) / "tmp").mkdir(exist_ok=True)

    def _settings(self, site: Site) -> dict[str, object]:
        folder = site.data(self.name)
        return {
            "quarkus.http.host": HOST,
            "quarkus.http.port": site.port("registry"),
            # Metrics and health have a listener of their own, which is open to every network unless it is told.
            "quarkus.management.host": HOST,
            "quarkus.management.port": site.port("registry-management"),
            # In memory by default: after a restart no record could be read, and ids would be given out anew; and so it
            # is with H2's last half second, which it writes after it has answered, unless it is told not to.
            "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'schemas'};WRITE_DELAY=0",
            **{f"apicurio.datasource.jdbc.{name}": value for name, value in CONNECTIONS.items()},
            "apicurio.storage.snapshot.location": folder / "tmp",
            "apicurio.import.work-dir": folder / "tmp",
            "quarkus.otel.sdk.disabled": "true",  # it would look for a collector
            "quarkus.http.access-log.enabled": "false",
            "quarkus.log.level": "WARN",
            "quarkus.banner.enabled": "false",
            "java.io.tmpdir": folder / "tmp",
        }

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """``java -jar quarkus-run.jar``.

        Raises:
            StackError: Java is older than what it was compiled for; it would end with a page of its own words.
        """
        if site.jdk.major < OLDEST_JAVA:
            raise StackError(
                f"Apicurio Apicurio wants Java {OLDEST_JAVA} or newer; {site.jdk.home} is {site.jdk.version}",
                means="the registry is not started; records in JSON do not need it",
                fix=f"set JAVA_HOME to a Java {OLDEST_JAVA}, or use a registry of yours (source.registry.url)",
            )
        folder = site.data(self.name)
        argv = jvm.java(site, self.name, units["registry"], ("64m", "384m"), folder / "log4j2.properties")
        argv = argv[: argv.index("-cp")]  # the jar's own manifest has the class path
        argv += site.jdk.archive_flags(site.archive(self.name, units["registry"]))
        argv += [f"-D{name}={value}" for name, value in self._settings(site).items()]
        argv += ["-jar", str(units["registry"] / "quarkus-run.jar")]
        return Launch(argv, folder, site.log(self.name))

    def ailment(self, site: Site) -> str | None:
        """Confluent's API answers, which needs the database."""
        try:
            with direct() as session:
                answer = session.get(f"{self.address(site)}/schemas/types", timeout=PROBE_SECONDS)
            listed = answer.json()
        except (requests.RequestException, ValueError) as error:
            return f"no answer ({type(error).__name__})"
        if answer.status_code == 200 and "AVRO" in listed:
            return None
        return f"it answers {answer.status_code}: {answer.text[:200]}"

    def address(self, site: Site) -> str:
        """The URL of Confluent's API in it, which the pipeline file names."""
        return f"http://{HOST}:{site.port('registry')}/apis/ccompat/v7"
