"""The servers that plan, apply and drop talk to, opened together and closed together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cdc.log.client import Kafka
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.encoding import Encoding
from connectors.debezium import connector_name
from connectors.names import Names
from connectors.postgres import Connection, connect
from connectors.rest import ConnectClient


@dataclass(frozen=True)
class Servers:
    """Open connections.

    Attributes:
        pipeline: whose servers they are.
        setup: Postgres as the role that owns the tables.
        source: Postgres as the replication role.
        kafka: the brokers.
        connect: Kafka Connect.
    """

    pipeline: Pipeline
    setup: Connection
    source: Connection
    kafka: Kafka
    connect: ConnectClient

    @property
    def names(self) -> Names:
        """Names of what we keep in the database."""
        return Names.of(self.pipeline)

    @property
    def encoding(self) -> Encoding:
        """How to read and write records of this pipeline's topics."""
        return encoding_of(self.pipeline.source.reader())

    @property
    def connector(self) -> str:
        """The connector's name."""
        return connector_name(self.pipeline)


@contextmanager
def open_servers(pipeline: Pipeline) -> Iterator[Servers]:
    """Connect to Postgres, twice, and prepare clients of Kafka and Kafka Connect.

    Raises:
        SourceUnavailable: Postgres does not answer (transient).
        SourceError: a role or the database is refused.
    """
    with ExitStack() as stack:
        setup = stack.enter_context(connect(pipeline.source, setup=True))
        source = stack.enter_context(connect(pipeline.source))
        client = ConnectClient(pipeline.connect)
        stack.callback(client.close)
        yield Servers(pipeline, setup, source, Kafka(pipeline), client)
