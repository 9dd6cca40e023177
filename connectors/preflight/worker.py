"""Does Kafka Connect answer, has it Debezium, exactly-once, and does the connector run?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cdc.errors import ConnectError
from cdc.java_kafka import java_client
from cdc.pipeline import Pipeline
from connectors.connector import read_connector
from connectors.debezium import CONNECTOR_CLASS, connector_config, connector_name
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.rest import of_the_worker

# Settings of Debezium's reader of signals: those of Java's client, after this.
SIGNALS = "signal.consumer."
# An empty text, as YAML has it.
NOTHING = '""'
# Of these the value may be shown.
SHOWN = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.login.callback.handler.class",
    "ssl.endpoint.identification.algorithm",
    *(f"ssl.{store}.{what}" for store in ("keystore", "truststore") for what in ("type", "location")),
)
# Older releases miss options that are used here; 3.7 is what the tests run.
TESTED = (3, 7)


def run(site: Site) -> Iterator[Finding]:
    """The worker answers, knows Debezium, accepts the configuration; an existing connector has not failed."""
    yield from _signals(site.pipeline)
    try:
        plugins = site.connect.plugins(connectors_only=False)
    except ConnectError as error:
        yield Finding(Level.ERROR, site.pipeline.connect.url, error.what, error.fix)
        return
    version = plugins.get(CONNECTOR_CLASS)
    if version is None:
        message = "this worker does not have Debezium's Postgres connector"
        fix = "put debezium-connector-postgres into the worker's plugin.path and restart it"
        yield Finding(Level.ERROR, site.pipeline.connect.url, message, fix)
        return
    if _numbers(version) < TESTED:
        message = f"Debezium {version} is older than the tested 3.7: options may be unknown to it"
        yield Finding(Level.WARNING, "debezium", message, "upgrade the connector's plugin")
    running = read_connector(site.connect, connector_name(site.pipeline))
    if running is not None and running.status is not None and running.status.failed:
        message = f"the connector has failed: {running.status.trace}"
        yield Finding(
            Level.ERROR, connector_name(site.pipeline), message, "remove the cause, then `headwater apply FILE`"
        )
    if not {"tables", "server"} & site.failed:
        yield from _accepted(site, plugins)


def _accepted(site: Site, plugins: Collection[str]) -> Iterator[Finding]:
    """Ask the worker to validate; that also tries the login from where the worker runs, and asks for exactly-once."""
    facts, version = list(site.facts.values()), site.db.info.server_version
    config = connector_config(site.pipeline, site.catalogue, facts, plugins, version)
    name = connector_name(site.pipeline)
    for complaint in site.connect.validate({**config, "name": name}):
        fix = of_the_worker(complaint) or "correct what it names"
        yield Finding(Level.ERROR, name, f"the worker refuses the configuration: {complaint}", fix)


def _signals(pipeline: Pipeline) -> Iterator[Finding]:
    """Debezium reads signals with a client of its own, which takes no login from the workers'. Ours is not handed over:
    its password would stand in the connector's configuration, and its files may lie elsewhere on the workers. Pure."""
    given, options = pipeline.connect.options, pipeline.kafka.options_plain()
    if options.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT":
        return
    # A listener of the workers' own may be an open one.
    if f"{SIGNALS}security.protocol" in given or "signal.kafka.bootstrap.servers" in given:
        return
    java = java_client(options, read=lambda _option, _path: "")
    values = {name: (value or NOTHING) if name in SHOWN else "${VARIABLE}" for name, value in java.items()}
    lines = [
        f"`{SIGNALS}{name}: {value}`"
        for name, value in values.items()
        if name.startswith(("security.", "sasl.", "ssl."))
    ]
    message = (
        "Debezium reads its signals with a client of its own, and connect.options has no login for it: a table that is "
        "added or read again would wait for ever"
    )
    fix = f"put into connect.options, as it is on the workers: {', '.join(lines)} (docs/connectors.md#known-limits)"
    yield Finding(Level.ERROR, f"{SIGNALS}security.protocol", message, fix)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


CHECK = Check("connect", "Kafka Connect answers and would take the connector", run)
